// Quirks: where DeepSpeed, torch and their neighbours do something else than seeksim, by name, so that a user can see
// what the difference does to his run. seeksim's own semantics: the gradient is unscaled with the scale that the loss
// was multiplied by; one global denominator; one vote over all ranks and every precision; a norm over all elements;
// clipping by min(1, limit / (norm + 1e-6)); the schedule counts applied steps.
//
// A quirk acts at one named point of a step (QuirkPoint). For each point there is a pure function here that takes the
// run's Quirks and gives the clean value where none of them is on: a trainer calls it unconditionally. A quirk that is
// named after a ZeRO stage does at every stage what DeepSpeed does at that one, so that one run shows what it does.
//
// No quirks, because the scaler has both as kinds: DeepSpeed's first growth after window + 1 good steps and torch's
// after growth_interval. Nor WarmupLR's two steps at the minimum: seeksim's schedule is DeepSpeed's.
#pragma once

#include <bitset>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/rules/loss_scaler.h"
#include "runtime/seams/buffer.h"

namespace seeksim::runtime {

// One value for each row of quirks.inl.
enum class Quirk : std::uint8_t {
#define SEEKSIM_QUIRK(name, ...) name,
#include "runtime/rules/quirks.inl"
#undef SEEKSIM_QUIRK
  count_
};

// Where in a step, in the order in which it happens.
enum class QuirkPoint : std::uint8_t {
  plan,            // before the first step: the plan itself
  initial_state,   // before the first step: the optimizer's state
  loss,            // the factors with which a loss enters the backward pass
  accumulation,    // micro-batches added up on a rank
  reduction,       // ranks added up
  overflow_check,  // what counts as an overflow
  vote,            // whose overflow counts
  norm,            // the gradient's norm
  unscale_clip,    // the factor between the reduced gradient and the optimizer, and the norm that is reported
  schedule,        // the count that the learning rate is a function of
  count_
};
std::string_view name(QuirkPoint point);

// One row of what `seeksim list quirks` prints.
struct QuirkInfo {
  Quirk quirk;
  std::string_view name;       // as scenarios write it
  std::string_view framework;  // and version, where the source pins one
  std::string_view does;
  std::string_view instead;  // what seeksim does
  QuirkPoint point;
  std::string_view edits;        // the value that is edited there
  bool split_dependent = false;  // the result depends on world or micro-batches: no golden's bits are claimed
  bool by_micro_batch = false;   // it depends on the size of micro-batches alone: one rank's golden has that size, too
  std::string_view rival = "";   // quirks with the same rival exclude each other; empty: goes with all
  std::string_view source;
};
std::span<const QuirkInfo> quirk_catalogue();
const QuirkInfo& info(Quirk quirk);
std::optional<Quirk> quirk_named(std::string_view name);

// The quirks of a run.
class Quirks {
 public:
  Quirks() = default;
  Quirks(std::initializer_list<Quirk> quirks) {
    for (const Quirk quirk : quirks) add(quirk);
  }
  void add(Quirk quirk) { on_.set(std::size_t(quirk)); }
  bool has(Quirk quirk) const { return on_.test(std::size_t(quirk)); }
  bool any() const { return on_.any(); }
  Quirks without(Quirk quirk) const {
    Quirks others = *this;
    others.on_.reset(std::size_t(quirk));
    return others;
  }
  bool split_dependent() const;
  bool act_at(QuirkPoint point) const;  // one of them
  // Two that cannot both hold, and why; empty: none.
  std::string conflict() const;
  friend bool operator==(const Quirks&, const Quirks&) = default;

 private:
  std::bitset<std::size_t(Quirk::count_)> on_;
};

// Their names, in the order of the catalogue.
std::vector<std::string> quirk_names(const Quirks& quirks);

// ---- plan --------------------------------------------------------------------------------------------------------

LossScalerPlan scaler_plan(const Quirks& quirks, LossScalerPlan plan);
// gradient_clipping where the configuration has no such key.
double default_clipping(const Quirks& quirks);

// Samples over which a router counts, for those that the model says.
int samples_of_routing(const Quirks& quirks, int given, int micro_batch);

// ---- initial_state -----------------------------------------------------------------------------------------------

struct OptimizerStart {
  std::int64_t steps = 0;  // that Adam believes to have made: its bias correction goes on from there
  int decays = 0;          // of every decaying weight by lr * weight_decay
  friend bool operator==(const OptimizerStart&, const OptimizerStart&) = default;
};
OptimizerStart optimizer_start(const Quirks& quirks);

// ---- loss --------------------------------------------------------------------------------------------------------

// What the loss is multiplied by, for the step's loss scale.
float loss_factor(const Quirks& quirks, double scale);
// The weight of one token's loss in the step's, for the token counts [rank][micro-batch] of a step. Where means are
// averaged, one of no tokens counts as 0 and keeps its share of the average.
std::vector<std::vector<double>> token_weights(const Quirks& quirks,
                                               const std::vector<std::vector<std::int64_t>>& tokens);

// ---- accumulation, reduction -------------------------------------------------------------------------------------

// The type in which a rank adds up micro-batches.
ElementType accumulation_type(const Quirks& quirks, ElementType parameters);

// What each rank's sum is multiplied by before the ranks are added up, and the result after. {1, 1}: there is no
// average of ranks, since one denominator has done it. Under a quirk a rank brings the mean of its own micro-batches.
struct RankAverage {
  float before = 1;
  float after = 1;
  friend bool operator==(const RankAverage&, const RankAverage&) = default;
};
RankAverage rank_average(const Quirks& quirks, int world);

// ---- overflow_check, vote ----------------------------------------------------------------------------------------

// Whether a non-finite gradient is looked for at all.
bool checks_overflow(const Quirks& quirks, ElementType compute);
// Whether this rank skips the step: own is its own flag, any that of all ranks.
bool skips(const Quirks& quirks, bool own, bool any);

// ---- norm --------------------------------------------------------------------------------------------------------

// DeepSpeed's norm at stages 1 and 2 from the norms of the tensors' slices [rank][tensor]: squares summed in fp64 on a
// rank, rounded to fp32, added up in fp32 in the order of the ranks; -1 where that is not finite.
float partition_norm(const std::vector<std::vector<double>>& slice_norms);

// ---- unscale_clip ------------------------------------------------------------------------------------------------

// A gradient that was multiplied by 1/used. All scales are powers of two wherever bits are promised.
struct UnscaledGradient {
  float norm = 0;
  double used = 1;  // the scale of this step's loss
  double next = 1;  // the scaler's after this step
};
struct GradientFactor {
  float factor = 1;         // the optimizer multiplies the gradient by it
  float reported_norm = 0;  // what the framework would print
  friend bool operator==(const GradientFactor&, const GradientFactor&) = default;
};
// limit 0: no clipping.
GradientFactor gradient_factor(const Quirks& quirks, const UnscaledGradient& gradient, double limit);

// ---- schedule ----------------------------------------------------------------------------------------------------

// What learning_rate() takes for the number of applied steps.
std::int64_t schedule_steps(const Quirks& quirks, std::int64_t applied, std::int64_t skipped, int world);

}  // namespace seeksim::runtime
