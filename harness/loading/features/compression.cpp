#include "harness/loading/features/compression.h"

#include <fmt/format.h>

#include <bit>

#include "harness/loading/features/refusals.h"

namespace seeksim::harness {
namespace {

using namespace shapes;
using runtime::Compression;
using runtime::CompressionPlan;

const Words<Compression> kMethods = {{Compression::none, "none"}, {Compression::fp16, "fp16"},
                                     {Compression::bf16, "bf16"}, {Compression::int8, "int8"},
                                     {Compression::sign, "sign"}, {Compression::top, "top"}};

bool takes_the_largest(const CompressionPlan& plan) { return plan.method == Compression::top; }

// The largest number of groups below the given one that is possible.
int groups_below(int batch, int groups) {
  for (int fewer = std::min(groups, batch); fewer > 1; --fewer)
    if (batch % fewer == 0 && std::has_single_bit(unsigned(batch / fewer))) return fewer;
  return 0;
}

void check_groups(const Reader& own, const Scenario& scenario) {
  const CompressionPlan& plan = scenario.train.definition.compression;
  const int batch = scenario.train.definition.global_batch;
  if (plan.groups < 1 || batch < 1) return;  // the schema said so, or the batch is wrong
  if (batch % plan.groups == 0 && std::has_single_bit(unsigned(batch / plan.groups))) return;
  const int fewer = groups_below(batch, plan.groups);
  own.problem("groups",
              fmt::format("{} samples a step in {} groups: a group has to be a power of two of samples, since it is a "
                          "node of the tree in which they are summed",
                          batch, plan.groups),
              fewer > 0 ? fmt::format("For example {}.", fewer) : fmt::format("For example {}.", batch));
}

// What compressed gradients cannot be together with.
void refuse_with_compression(const Reader& top, const Scenario& scenario) {
  const runtime::TrainPlan& train = scenario.train;
  const runtime::RecoveryPlan& recovery = train.recovery;
  const bool spares = recovery.spares > 0;
  const auto checks_conservation = [](const CheckSpec& check) { return check.name == "conservation"; };
  refuse(top,
         {
             {train.layout.zero.stage >= 2, "/deepspeed/zero_optimization/stage",
              "not supported: compressed gradients with ZeRO 2 and 3, which reduce them bucket by bucket in each "
              "micro-step",
              "Use stage 0 or 1."},
             {!train.layout.parallel.alone(), "/world",
              "not supported: compressed gradients in a model that is cut by pipeline or tensor",
              "Use 1 for both, or no compression."},
             {train.layout.offload.optimizer.home != runtime::Home::device,
              "/deepspeed/zero_optimization/offload_optimizer",
              "not supported: compressed gradients with an offloaded optimizer", "Leave one of the two out."},
             {train.definition.quirks.any(), "/quirks", "not supported: compressed gradients with quirks",
              "Leave one of the two out."},
             {train.numerics == runtime::Numerics::fast, "/numerics",
              "not supported: compressed gradients in a run of fast arithmetic", "Use \"exact\" or \"shapes\"."},
             {recovery.memory_ladder, "/recovery/memory_ladder",
              "not supported: compressed gradients with the memory ladder, which changes the ZeRO stage",
              "Turn one of them off."},
             {spares, "/recovery/spares", "not supported: compressed gradients with spares, which hold no residuals",
              "Use restart_from_checkpoint, or no spares."},
             {recovery.grow, "/recovery/grow",
              "not supported: compressed gradients in a run that admits ranks, which hold no residuals",
              "Turn one of them off."},
             {std::any_of(scenario.checks.begin(), scenario.checks.end(), checks_conservation), "/checks",
              "conservation counts samples by tags, which compression would round",
              "Remove it: compression_conserves is judged in every run with compressed gradients."},
         });
}

}  // namespace

const Keys<CompressionPlan>& compression_keys() {
  static const Keys<CompressionPlan> keys = {
      {"method", in_words(kMethods, &CompressionPlan::method), choice(words_of(kMethods)).required(), kBits,
       "What gradients are rounded to: fp16, bf16; int8: 8 bits an element and a power of two a block of 1,024; sign: "
       "one bit an element and the mean magnitude of the block; top: the largest elements of each block."},
      {"groups", at(&CompressionPlan::groups), integer(1, 1'000'000).required(), kBits,
       "How many parts the samples of a step are cut into, each compressed apart: the number of ranks is what "
       "frameworks have. It decides bits, and the number of ranks does not. A group is a power of two of samples."},
      {"error_feedback", at(&CompressionPlan::error_feedback), flag(), kBits,
       "What rounding takes from a group's gradient is added to its next one."},
      {"top", at(&CompressionPlan::top).when(takes_the_largest), integer(1, 1024), kBits,
       "Elements of each block that are sent, where only the largest are."},
  };
  return keys;
}

void read_compression(const Reader& top, Scenario& scenario) {
  const Reader own = top.child("compression");
  CompressionPlan& plan = scenario.train.definition.compression;
  plan = {};
  compression_keys().read(own, plan);
  if (!plan.on() || plan.groups < 1) {
    plan = {};
    return;
  }
  check_groups(own, scenario);
  refuse_with_compression(top, scenario);
}

}  // namespace seeksim::harness
