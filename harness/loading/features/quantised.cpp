#include "harness/loading/features/quantised.h"

#include <fmt/format.h>

#include <bit>

#include "harness/loading/features/refusals.h"
#include "runtime/rules/bugs.h"

namespace seeksim::harness {

using runtime::Bug;

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

}  // namespace seeksim::harness
