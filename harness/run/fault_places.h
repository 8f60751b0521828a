// Every place at which a fault can strike: the run without it is watched, and each Op on its way into which a host
// could be struck becomes a rule that names it. A place is (rank, step, operation, phase, which of those), as triggers
// count them. What has a time and no Op, a partition, has its places at the Ops' times and halfway between.
#pragma once

#include <string>
#include <vector>

#include "faults/plan.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

// One place at which a fault can strike, as the rule that strikes there.
struct FaultPlace {
  faults::Rule rule;
  std::string about;  // the Op, in words
  std::string group;  // by which runs are counted
};
// From runs of the scenario without faults, which are watched. In the order in which ranks come there.
std::vector<FaultPlace> places_of(const Scenario& scenario);

}  // namespace seeksim::harness
