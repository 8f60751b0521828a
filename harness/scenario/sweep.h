// Sweeps as plain values: axes of a scenario, how they are combined, and the rows that come out. A row is a list of
// settings, each as --set would make it, so that one row alone is the same scenario with options.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "harness/input/json.h"

namespace seeksim::harness {

// Key paths and values as JSON text, applied in order: {"deepspeed.zero_optimization.stage", "3"}.
using Settings = std::vector<std::pair<std::string, std::string>>;

struct SweepAxis {
  std::string key;
  std::vector<std::string> values;  // as JSON text
  friend bool operator==(const SweepAxis&, const SweepAxis&) = default;
};

struct Sweep {
  enum class Mode : std::uint8_t { product, pairwise, sample } mode = Mode::product;
  std::int64_t sample = 0;                     // rows drawn
  std::vector<std::vector<SweepAxis>> blocks;  // the rows of all of them, one after the other; a row is there once
  std::vector<Settings> skip;                  // a row that has all settings of one of these is left out
  bool empty() const { return blocks.empty(); }
  friend bool operator==(const Sweep&, const Sweep&) = default;
};

// More combinations than anyone waits for are a mistake in an axis.
inline constexpr std::int64_t kCombinationsMax = 100'000;

// Does a "sweep" as written change how many ranks share the batch?
bool varies_world(const Json& written);

// In the order of the axes, the last one fastest. seed: of the draw, for mode sample.
std::vector<Settings> rows_of(const Sweep& sweep, std::uint64_t seed);

// For each entry of sweep.skip: whether it leaves a row out.
std::vector<bool> skips_met(const Sweep& sweep);

// "key=value", as --set takes them.
std::vector<std::string> sets_of(const Settings& row);

// Which axes a report names, in order of appearance, and the shortest endings that tell them apart: "stage".
std::vector<std::string> axis_keys(const Sweep& sweep);
std::string short_name(const std::string& key, const std::vector<std::string>& keys);
// "stage=3 ranks_per_node=5"
std::string label(const Settings& row, const std::vector<std::string>& keys);

}  // namespace seeksim::harness
