#include "harness/loading/features/quantised.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "harness/loading/features/refusals.h"
#include "runtime/rules/bugs.h"

namespace seeksim::harness {

using namespace shapes;
using runtime::Bug;
using runtime::QuantisedGradientsPlan;

void check_quantised(const Reader& top, Scenario& scenario) {
  const runtime::TrainPlan& train = scenario.train;
  const runtime::Definition& d = train.definition;
  const int block = d.quantised.block;
  if (!d.quantised.on()) {
    if (top.has("quantized_weights_block"))
      scenario.notes.push_back("quantized_weights_block has no effect without quantised weights");
    scenario.train.definition.quantised = {};
    return;
  }
  if (block > 0 && !std::has_single_bit(unsigned(block)))
    top.problem("quantized_weights_block",
                fmt::format("{} elements: a block has to be a power of two, so that shards end between blocks", block),
                fmt::format("For example {}.", std::bit_floor(unsigned(block))));
  constexpr const char* kZero = "/deepspeed/zero_optimization";
  refuse(top,
         {
             {d.model.experts.on(), "/model/experts",
              "not supported: quantised weights with experts: a router that is rounded sends tokens elsewhere",
              "Leave one of the two out."},
             {d.model.own != nullptr, "/model/family",
              "not supported: quantised weights in a family of your own, whose golden is its own affair",
              "Set zero_quantized_weights to false."},
             {d.fp8.on(), "/fp8",
              "not supported: fp8 with quantised weights, which would be rounded twice with scales of two kinds",
              "Leave one of the two out."},
             {d.quirks.any(), "/quirks", "not supported: quantised weights with quirks", "Leave one of the two out."},
             {train.numerics == runtime::Numerics::fast, "/numerics",
              "not supported: quantised weights in a run of fast arithmetic: an update that is an ulp apart may be "
              "rounded to the next code, which no bound allows for",
              "Use \"exact\" or \"shapes\"."},
             {train.recovery.memory_ladder, "/recovery/memory_ladder",
              "not supported: quantised weights with the memory ladder", "Turn one of them off."},
             {train.bug.is(Bug::gap_in_shards), "/bug",
              "gap_in_shards ends a shard inside a block, and no wire has half of one", "Use overlapping_shards."},
             {train.bug.is(Bug::definition), kZero,
              "not supported: a mistake of definition with quantised weights, which the reference does not know",
              "Set zero_quantized_weights to false."},
         });
}

// ---- gradients -----------------------------------------------------------------------------------------------------

const Keys<QuantisedGradientsPlan>& quantised_gradients_keys() {
  const auto sums = [](const QuantisedGradientsPlan& plan) { return plan.inner > 1; };
  static const Keys<QuantisedGradientsPlan> keys = {
      {"groups", at(&QuantisedGradientsPlan::groups), integer(1, 1'000'000).required(), kBits,
       "Into how many groups the samples of a step are cut; what each adds to a gradient is quantised apart. With "
       "DeepSpeed a group is a rank's micro-batch. It decides bits, and ranks do not. A group is a power of two of "
       "samples, and no larger than a micro-batch."},
      {"inner", at(&QuantisedGradientsPlan::inner).when(sums), integer(0, 1'000'000), kBits,
       "How many neighbouring groups have a sum that is quantised once more on its way to other nodes, a power of two: "
       "with DeepSpeed the ranks of a node. 0 and 1: no sum is."},
      {"bits", at(&QuantisedGradientsPlan::bits), integer(4, 8), kBits, "Of an element of a group: 4 or 8."},
      {"outer_bits", at(&QuantisedGradientsPlan::outer_bits).when(sums), integer(4, 8), kBits,
       "Of an element of a sum: 4 or 8."},
      {"block", at(&QuantisedGradientsPlan::block), integer(1, 1024), kBits,
       "Elements that share a scale: a power of two. Blocks are cut as those of quantised weights."},
  };
  return keys;
}

namespace {

void check_groups(const Reader& own, const Scenario& scenario) {
  const QuantisedGradientsPlan& plan = scenario.train.definition.quantised_gradients;
  const int batch = scenario.train.definition.global_batch, micro = scenario.train.layout.micro_batch;
  if (batch < 1 || plan.groups < 1) return;  // the schema said so, or the batch is wrong
  const int samples = batch / plan.groups;
  if (batch % plan.groups != 0 || !std::has_single_bit(unsigned(samples)))
    return own.problem("groups",
                       fmt::format("{} samples a step in {} groups: a group has to be a power of two of samples, since "
                                   "it is a node of the tree in which they are summed",
                                   batch, plan.groups),
                       fmt::format("For example {}, one sample each.", batch));
  if (samples > micro && scenario.world.ranks() > 1)
    own.problem("groups",
                fmt::format("a group has {} samples and a micro-batch {}: what a group adds is quantised whole, and "
                            "would have to be kept from one micro-step to the next",
                            samples, micro),
                fmt::format("Use {} groups, or micro-batches of {} samples.", batch / std::bit_floor(unsigned(micro)),
                            samples));
  if (plan.inner > 1 && (!std::has_single_bit(unsigned(plan.inner)) || plan.groups % plan.inner != 0))
    own.problem("inner",
                fmt::format("sums of {} of {} groups: a sum has to be of a power of two of groups, and no group left "
                            "over",
                            plan.inner, plan.groups),
                "Use 2, 4 or another power of two that divides the number of groups.");
}

void refuse_with_quantised_gradients(const Reader& top, const Scenario& scenario) {
  const runtime::TrainPlan& train = scenario.train;
  const runtime::Definition& d = train.definition;
  const auto checks_conservation = [](const CheckSpec& check) { return check.name == "conservation"; };
  refuse(top,
         {
             {d.model.experts.on(), "/model/experts",
              "not supported: quantised gradients with experts, whose gradients are a group's and not a rank's",
              "Leave one of the two out."},
             {d.model.own != nullptr, "/model/family",
              "not supported: quantised gradients in a family of your own, whose golden is its own affair",
              "Set zero_quantized_gradients to false."},
             {train.layout.parallel.shard_group > 0, "/world/shard_group",
              "not supported: quantised gradients with shard groups, whose sums meet in fp32",
              "Use zero_hpz_partition_size, or leave one of the two out."},
             {d.quirks.any(), "/quirks", "not supported: quantised gradients with quirks", "Leave one of the two out."},
             {train.numerics == runtime::Numerics::fast, "/numerics",
              "not supported: quantised gradients in a run of fast arithmetic: a gradient that is an ulp apart may be "
              "rounded to the next code, which no bound allows for",
              "Use \"exact\" or \"shapes\"."},
             {train.recovery.memory_ladder, "/recovery/memory_ladder",
              "not supported: quantised gradients with the memory ladder, whose smaller micro-batches hold no group",
              "Turn one of them off."},
             {train.bug.is(Bug::gap_in_shards), "/bug",
              "gap_in_shards ends a shard inside a block, and no wire has half of one", "Use overlapping_shards."},
             {train.bug.is(Bug::definition), "/deepspeed/zero_optimization",
              "not supported: a mistake of definition with quantised gradients, which the reference does not know",
              "Set zero_quantized_gradients to false."},
             {std::any_of(scenario.checks.begin(), scenario.checks.end(), checks_conservation), "/checks",
              "conservation counts samples by tags, which would be quantised", "Remove it."},
         });
}

}  // namespace

void read_quantised_gradients(const Reader& top, Scenario& scenario) {
  QuantisedGradientsPlan& plan = scenario.train.definition.quantised_gradients;
  plan = {};
  const int stage = scenario.train.layout.zero.stage;
  const bool asked = top.child("deepspeed").child("zero_optimization").flag("zero_quantized_gradients", false);
  if (!asked || stage < 2) {
    if (top.has("quantized_gradients"))
      scenario.notes.push_back("quantized_gradients has no effect without zero_quantized_gradients at stage 2 or 3");
    return;
  }
  const Reader own = top.child("quantized_gradients");
  quantised_gradients_keys().read(own, plan);
  if (plan.groups < 1) {
    top.findings().add("/quantized_gradients",
                       "zero_quantized_gradients needs the number of groups whose gradients are quantised apart: with "
                       "DeepSpeed they are the ranks', and here ranks decide no bit",
                       "For example {\"groups\": 8}; a group is a power of two of samples.");
    plan = {};
    return;
  }
  if (plan.inner < 2) plan.inner = 0, plan.outer_bits = QuantisedGradientsPlan{}.outer_bits;
  if (stage == 2)
    scenario.notes.push_back("DeepSpeed 0.19.8 quantises gradients at stage 3 only; here stage 2 does too");
  for (const auto& [key, bits] : {std::pair{"bits", plan.bits}, std::pair{"outer_bits", plan.outer_bits}})
    if (bits != 4 && bits != 8)
      own.problem(key, fmt::format("codes of {} bits: there are codes of 4 and of 8", bits), "Use 4 or 8.");
  if (plan.block > 0 && !std::has_single_bit(unsigned(plan.block)))
    own.problem(
        "block",
        fmt::format("{} elements: a block has to be a power of two, so that shards end between blocks", plan.block),
        fmt::format("For example {}.", std::bit_floor(unsigned(plan.block))));
  check_groups(own, scenario);
  refuse_with_quantised_gradients(top, scenario);
}

}  // namespace seeksim::harness
