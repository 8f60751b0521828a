#include "harness/loading/features/context.h"

#include <fmt/format.h>

#include "harness/loading/features/refusals.h"
#include "kernels/slabs.h"
#include "runtime/rules/bugs.h"

namespace seeksim::harness {

void check_gradient_sums(const Reader& model, const runtime::ModelPlan& plan) {
  if (!plan.segmented_gradients) return;
  if (plan.context % kernels::kSlabs != 0)
    model.problem("gradient_sums",
                  fmt::format("8 segments of a sample need a context that is a multiple of 8, not {}", plan.context),
                  "Change \"context\", or use \"tokens\".");
  if (plan.experts.on())
    model.problem("gradient_sums",
                  "not supported: gradients of experts by segments; each is a chain over the tokens that came to it",
                  "Use \"tokens\", or a model without experts.");
  if (plan.own != nullptr)
    model.problem("gradient_sums", "not supported: a family of one's own sums its gradients itself",
                  "Use \"tokens\", or a family that is built in.");
}

void check_context(const Reader& top, const Scenario& scenario) {
  const runtime::TrainPlan& train = scenario.train;
  const runtime::ParallelPlan& parallel = train.layout.parallel;
  if (parallel.context == 1) return;
  refuse(
      top,
      {
          {!train.definition.model.segmented_gradients, "/world/context",
           "one chain over a sample's tokens makes its gradients of weights, and ranks with tokens of their own have "
           "only "
           "links of it",
           "Add \"gradient_sums\": \"segments\" to model: then 1, 2, 4 and 8 ranks have the same bits."},
          {parallel.tensor > 1, "/world/tensor", "not supported: context parallelism with tensor parallelism",
           "Use 1 for one of them."},
          {parallel.expert > 1, "/world/expert", "not supported: context parallelism with expert groups",
           "Use 1 for one of them."},
          {parallel.shard_group > 0, "/world/shard_group", "not supported: shard groups with context parallelism",
           "Leave one of the two out."},
          {train.definition.data.packing.on(), "/data/packing",
           "not supported: packed documents where ranks share a sample's tokens", "Leave one of the two out."},
          {train.definition.curriculum.on(), "/curriculum",
           "not supported: a curriculum by length where ranks share a sample's tokens", "Leave one of the two out."},
          {train.numerics == runtime::Numerics::fast, "/numerics",
           "not supported: context parallelism in a run of fast arithmetic", "Use \"exact\" or \"shapes\"."},
          {train.bug.is(runtime::Bug::definition), "/bug",
           "not supported: a mutant of the definition where ranks share a sample's tokens", "Use 1 for world.context."},
      });
}

}  // namespace seeksim::harness
