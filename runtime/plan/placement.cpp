// The only place that knows what a stage's number means.
#include "runtime/plan/placement.h"

#include "kernels/check.h"

namespace seeksim::runtime {

Placement placement_of(int stage) {
  SEEKSIM_CHECK(stage >= 0 && stage <= 3, "ZeRO stage %d", stage);
  auto from = [&](int first) { return stage >= first ? Place::sharded : Place::replicated; };
  return {.parameters = from(3), .gradients = from(2), .optimizer = from(1)};
}

ZeroPlan zero_plan(int stage) {
  ZeroPlan plan;
  plan.stage = stage;
  plan.overlap_comm = stage == 3;
  return plan;
}

}  // namespace seeksim::runtime
