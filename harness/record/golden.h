// Goldens: the undisturbed one-rank run of a training, and the key under which it is stored: a hash of everything that
// may decide a bit, and of nothing else.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/input/json.h"
#include "harness/record/run_record.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

inline constexpr const char* kContract = "numerics v1";

struct ReferenceVerdict;  // harness/oracles/reference_steps.h

struct Golden {
  std::string key;
  std::string origin;  // a file, or "one-rank run, 0.8 s"
  bool stored = false;
  runtime::StateDigest state;
  std::vector<float> loss;  // one a step
  std::vector<float> grad_norm;
  std::vector<std::uint64_t> gradients;                     // digests, one a step; empty: not recorded
  std::vector<std::pair<std::int64_t, float>> evaluations;  // held-out losses, by steps
  // What the reference says of it, where it was made now; null: it is stored, or the reference knows no such training.
  std::shared_ptr<const ReferenceVerdict> judged;
};

// What the key is a hash of, as JSON with one field a line: printed by `seeksim golden --explain`, hashed by
// golden_key.
Json key_fields(const runtime::Definition& definition);
std::string golden_key(const runtime::Definition& definition);

// "<name>-<key>.json" for any name, in golden/ of the working folder and beside the scenario's folder. Throws BadInput
// on a file that is there and broken.
std::optional<Golden> stored_golden(const Scenario& scenario);
Golden read_golden(const std::string& text, const std::string& file);
// A finished one-rank run as a golden.
Golden golden_of(const RunRecord& run, const std::string& key);
Json to_json(const Golden& golden, const Scenario& scenario);
std::string golden_file_name(const Scenario& scenario, const std::string& key);

// The first difference in words; empty when they are equal.
std::string difference(const Golden& golden, const runtime::StateDigest& state);

// 16 hexadecimal digits.
std::string hex(std::uint64_t digest);

}  // namespace seeksim::harness
