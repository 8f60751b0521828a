// reference: a training on one rank, held step by step against a second implementation of it (reference/). Each step
// begins with the run's own weights and moments, and each quantity with what the run itself says of those before it, so
// that roundings do not pile up and the first quantity that differs is the one that went wrong.
//
// The run on one rank is the golden of the judged run, made anew. Where the judged run has its bits, what holds for one
// holds for the other, whatever the layout.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/oracles/finding.h"
#include "harness/record/collector.h"
#include "harness/record/golden.h"
#include "harness/record/run_record.h"
#include "reference/run.h"
#include "reference/step.h"
#include "reference/training.h"
#include "runtime/plan/plan.h"

namespace seeksim::harness {

struct Evidence;

// One value that is not what the reference has, within its bound.
struct ReferenceDifference {
  std::int64_t step = 0;
  std::string quantity;   // "loss", "gradient", "first moment", ...
  std::string parameter;  // as files name it; empty: of the whole step
  std::int64_t element = -1;
  double found = 0;
  double expected = 0;
  double bound = 0;
  std::int64_t more = 0;  // values of this quantity and parameter that differ in this step too
  std::string text() const;
};

struct ReferenceVerdict {
  // A bound is tight below this share of the value, of its parameter's root mean square, or of the step's rate: then a
  // value that is missing, doubled or halved is seen.
  static constexpr double kTight = 1.0 / 4;
  // Of a whole run: so many times the largest deviation of runs whose values are off by what rounding does to them.
  static constexpr double kRoom = 4;
  std::string unknown;                           // why nothing could be judged; empty: it was
  std::vector<ReferenceDifference> differences;  // in the order of steps, and of quantities in each
  std::vector<std::int64_t> steps;               // that were judged
  std::vector<std::int64_t> passes;              // those of them whose losses and gradients were judged too
  std::int64_t values = 0;                       // that were held against a bound
  std::int64_t tight = 0;                        // those whose bound says something
  std::int64_t unsettled = 0;                    // steps in which rounding may have chosen a token's expert
  double used = 0;                               // the largest share of a bound that a value within it takes
  double wall_s = 0;                             // of the reference alone
  std::optional<Golden> golden;                  // the run on one rank that was judged

  double share() const { return values > 0 ? double(tight) / double(values) : 0; }
};

// How much of a run is judged. ends: the first two steps and the last one. beside_golden: the same, but losses and
// gradients, which cost most, only of as many steps as take about as long as the run itself.
enum class Judging : std::uint8_t { whole, ends, beside_golden };

// Listens to a run on one rank, then judges it.
class ReferenceJudge {
 public:
  ReferenceJudge(const runtime::Definition& definition, Judging how);
  // What the run is to call, for these steps.
  bool looks_at(std::int64_t step) const { return wants(step) || wants(step - 1); }
  void take_state(std::int64_t step, Collector::State state);
  void take_gradients(std::int64_t step, const std::vector<runtime::NamedTensor>& gradients);
  ReferenceVerdict judge(const RunRecord& run) const;

 private:
  bool wants(std::int64_t step) const;
  bool wants_passes(std::int64_t step) const;
  void judge_freely(const RunRecord& run, ReferenceVerdict& verdict) const;

  reference::Training training_;
  Judging how_;
  std::map<std::int64_t, Collector::State> states_;
  std::map<std::int64_t, std::vector<runtime::NamedTensor>> gradients_;
};

// The loss of held-out samples after the last step of a run, against the reference's own run and its noisy ones.
void judge_held_out(const RunRecord& run, const reference::Training& training, const reference::FreeRun& clean,
                    const std::vector<reference::FreeRun>& noisy, ReferenceVerdict& verdict);

Finding reference_steps(const Evidence& evidence, const std::string& argument);
// A golden was made for this run, and the reference has judged it.
bool golden_was_judged(const Evidence& evidence);
// Why a golden is wrong; empty: the reference has nothing against it.
std::string contradiction(const ReferenceVerdict& verdict);

}  // namespace seeksim::harness
