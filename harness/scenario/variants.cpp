// Scenarios that follow from one: its golden on one rank, the same without what breaks.
#include <algorithm>
#include <sstream>

#include "harness/loading/fast.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

std::vector<std::string> Expect::names() const {
  std::vector<std::string> all;
  std::istringstream words(argument);
  for (std::string word; words >> word;) all.push_back(word);
  return all;
}

Scenario one_rank(const Scenario& scenario) {
  Scenario one = undisturbed(scenario);
  one.world.nodes = one.world.ranks_per_node = 1;
  one.world.device.capacity_bytes = sim::DeviceModel{}.capacity_bytes;  // short of memory are the others
  one.train.layout.zero = {};                                           // nothing to shard
  one.train.layout.offload = {};
  one.train.layout.checkpointing = {};
  one.train.layout.parallel = {};
  one.train.definition.skip_steps = scenario.golden_skip_steps;
  one.train.definition.drop_batches = scenario.golden_drop_batches;
  one.train.checkpoint = {};
  one.train.recovery = {};
  one.train.bug = {};
  if (is_fast(scenario)) one.train.numerics = runtime::Numerics::exact;
  one.train.provenance = {};
  one.train.layout.micro_batch = std::min(8, one.train.definition.global_batch);
  one.accumulation =
      (one.train.definition.global_batch + one.train.layout.micro_batch - 1) / one.train.layout.micro_batch;
  return one;
}

Scenario undisturbed(const Scenario& scenario) {
  Scenario other = scenario;
  other.faults.clear();
  other.own_faults.clear();
  other.planned = {};
  other.checks.clear();
  other.expect = {};
  other.sweep = {};
  other.world.verify = false;
  other.world.schedule = {};
  other.world.race_detector = false;
  other.train.bug = {};
  return other;
}

std::vector<int> node_of(const sim::WorldPlan& world) {
  std::vector<int> nodes(std::size_t(world.ranks()));
  for (int rank = 0; rank < world.ranks(); ++rank) nodes[std::size_t(rank)] = rank / world.ranks_per_node;
  return nodes;
}

}  // namespace seeksim::harness
