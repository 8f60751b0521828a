// Two runs of scripts, held against each other: every weight that forward passes used, and every loss.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
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

// The largest relative distances that a grade allows, of losses and of weights; of "reassociated" where it was not
// measured.
double bound_of(Grade grade);

// Largest relative distances by step and weight; the name of losses is "".
using Distances = std::map<std::pair<std::int64_t, std::string>, double>;

// How far two runs may be apart that differ in the order of their sums alone: measured by running one of them again
// with other orders (torch.sums).
struct Allowance {
  // A few orders do not show the largest distance that an order makes.
  static constexpr double kMargin = 8;
  Distances measured;  // the largest of all orders
  // Counts as measured for each weight, and for each loss, at each step: at step 0 too.
  double least = 0, least_of_losses = 0;
  int orders = 0;

  void add(const Distances& of_an_order);
  // From now on what moved the farthest weight counts for each one at each step, and likewise for losses. Where a
  // gradient is all rounding, Adam's step is too, and which weight that hits when is chance.
  void spread();
  // kMargin times what was measured, and at least what rounding each update the other way makes: 2^-23 a step. Before
  // the first step no sum has been made: 0, where `least` is.
  double of(std::int64_t step, const std::string& name) const;
};

struct RunComparison {
  Grade grade = Grade::different;
  std::int64_t steps = 0;
  std::size_t weights = 0, losses = 0;  // compared
  std::size_t weights_differ = 0, losses_differ = 0;
  std::size_t only_in_a = 0, only_in_b = 0;
  std::map<std::string, std::size_t> names_only_in_a;  // of only_in_a; losses as ""
  std::size_t on_no_rank_of_b = 0;                     // weights of a step, and losses, that some rank of a has
  double weight_distance = 0, loss_distance = 0;       // largest relative ones
  Distances distances;                                 // above 0
  // The largest part of what an allowance allows, where it was: above 1, another order of sums does not explain it.
  std::optional<double> of_allowed;
  std::string of_what;  // "step 2: head.weight"
  std::optional<FirstDifference> first;
  std::vector<std::string> notes;
};

// Compares what both recorded. allowed: the measured bound of "reassociated"; null: bound_of(). Throws BadInput where
// there is nothing that both have.
RunComparison compare_runs(const std::vector<RankRun>& a, const std::vector<RankRun>& b, const std::string& name_a,
                           const std::string& name_b, const Allowance* allowed = nullptr);

// The allowance of run `a` by runs of the same script with other orders of sums. Throws as compare_runs(), and where
// one of them is no such run: where not all values of `a` are there, or none differs and none could.
Allowance allowance_of(const std::vector<RankRun>& a, const std::string& name_a,
                       const std::vector<std::string>& other_orders);

// Five lines for people.
std::string comparison_text(const RunComparison& comparison, Grade wanted, const std::string& a, const std::string& b);
Json comparison_json(const RunComparison& comparison, Grade wanted, const std::string& a, const std::string& b);

}  // namespace seeksim::harness::torch
