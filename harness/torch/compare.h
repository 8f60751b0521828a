// Two runs of scripts, held against each other: every weight that forward passes used, and every loss.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/input/json.h"
#include "harness/torch/origin.h"
#include "harness/torch/run_record.h"

namespace seeksim::harness::torch {

inline constexpr const char* kCompareSchema = "seeksim-torch-compare-1";

// How near two runs are. Each grade allows what the ones before it allow.
enum class Grade : std::uint8_t {
  bits,          // every value the same bits
  reassociated,  // what another order of fp32 sums makes
  rounding,      // what rounding to a 16-bit type makes
  different,     // farther away
  count_
};
std::string_view name(Grade grade);

// The largest relative distances that a grade allows, of losses and of weights.
double bound_of(Grade grade);

struct RunComparison {
  Grade grade = Grade::different;
  std::int64_t steps = 0;
  std::size_t weights = 0, losses = 0;  // compared
  std::size_t weights_differ = 0, losses_differ = 0;
  std::size_t only_in_a = 0, only_in_b = 0;
  double weight_distance = 0, loss_distance = 0;  // largest relative ones
  std::optional<FirstDifference> first;
  std::vector<std::string> notes;
};

// Compares what both recorded. Throws BadInput where there is nothing that both have.
RunComparison compare_runs(const std::vector<RankRun>& a, const std::vector<RankRun>& b, const std::string& name_a,
                           const std::string& name_b);

// Five lines for people.
std::string comparison_text(const RunComparison& comparison, Grade wanted, const std::string& a, const std::string& b);
Json comparison_json(const RunComparison& comparison, Grade wanted, const std::string& a, const std::string& b);

}  // namespace seeksim::harness::torch
