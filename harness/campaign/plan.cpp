#include "harness/campaign/plan.h"

namespace seeksim::harness::campaign {

const char* name(Policy policy) {
  constexpr const char* kNames[] = {"restart", "rebuild"};
  return kNames[int(policy)];
}

const char* name(WhenShort when) {
  constexpr const char* kNames[] = {"wait", "shrink"};
  return kNames[int(when)];
}

}  // namespace seeksim::harness::campaign
