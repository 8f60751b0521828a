// Mutants: mistakes in the definition of a step (mutants.inl). Planted as a bug, "definition:<name>", each is made by a
// run and by its one-rank golden alike, so that the two agree and only a judge from outside sees it.
//
// A mutant acts at one named point. For each point there is a function here that gives the right value where no mutant
// of that point is on, and that the trainer calls unconditionally. Those that edit the plan itself stand in
// plan/mutated_definition.h, those that replace an operation of the model in model/mutated_ops.h.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "kernels/optimizer.h"

namespace seeksim::runtime {

enum class Mutant : std::uint8_t {
  none,
#define SEEKSIM_MUTANT(name, point, shows, does, source) name,
#include "runtime/rules/mutants.inl"
#undef SEEKSIM_MUTANT
  count_
};

struct MutantInfo {
  Mutant mutant;
  std::string_view name;    // as scenarios write it, after "definition:"
  std::string_view point;   // where it is planted
  std::string_view shows;   // the configuration that shows it (tests/judge)
  std::string_view does;    // what is wrong while it is on
  std::string_view source;  // where such a mistake was made
};
// In the order of the enum, without none.
std::span<const MutantInfo> mutant_catalogue();
const MutantInfo& info(Mutant mutant);
std::optional<Mutant> mutant_named(std::string_view name);

// ---- the points of a step, in the order in which they come

// The step whose batch is fetched, the first of its samples, and the seed that they are drawn by.
std::int64_t step_of_batch(Mutant mutant, std::int64_t step);
std::int64_t first_sample(Mutant mutant, std::int64_t first);
std::uint64_t data_seed(Mutant mutant, std::uint64_t seed);
// Where the tokens of sample i of a micro-batch come from, and how far behind its inputs its targets are.
std::int64_t source_of_sample(Mutant mutant, std::int64_t i);
std::int64_t target_shift(Mutant mutant);

// What dropout counts by.
struct DropoutCounters {
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  std::int64_t first_sample = 0;
};
DropoutCounters dropout_counters(Mutant mutant, DropoutCounters right, bool backward);

// A micro-batch of a step, by what a loss is divided by.
struct WindowPlace {
  int micro_batch = 0;
  int micro_batches = 1;
  std::int64_t samples = 1;       // of this micro-batch
  std::int64_t full_samples = 1;  // of a whole one
  std::int64_t tokens = 1;        // of a sample
};
// What its loss is multiplied by, beside what is right; 1 without a mutant.
float loss_weight(Mutant mutant, const WindowPlace& place);

// Whether a parameter's squares are part of the norm.
bool counts_in_norm(Mutant mutant, bool matrix, bool first_parameter);
// The norm of the unscaled gradient, from the right one.
float norm_of_step(Mutant mutant, float norm, double scale, std::int64_t parameters);
// The factor by which the optimizer multiplies the held gradient, from the right clipping factor. limit 0: no clipping.
float clip_factor(Mutant mutant, float factor, double limit, float norm, double scale);

// The count that the rate is a function of.
std::int64_t rate_position(Mutant mutant, std::int64_t applied);
// The constants of the optimizer's step number `steps` (from 1), for a parameter that should or should not decay.
// decay: what decays lose.
kernels::OptimizerStep optimizer_constants(Mutant mutant, kernels::OptimizerStep right, float decay, bool decays,
                                           std::int64_t steps);
// Whether the update of this rule is another one: mutated_update() instead of the kernel, on fp32 weights.
bool replaces_update(Mutant mutant, kernels::OptimizerRule rule);
void mutated_update(Mutant mutant, kernels::Lane lane, const kernels::OptimizerStep& step,
                    kernels::Vec<const float> gradient, kernels::Vec<float> weights, kernels::Vec<float> first,
                    kernels::Vec<float> second);

}  // namespace seeksim::runtime
