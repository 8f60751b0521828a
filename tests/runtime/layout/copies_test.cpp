// Copies of shards on other ranks: where they are, and what is survived with k of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "runtime/layout/copy_places.h"
#include "tests/support/simulated_training.h"

namespace seeksim::test {
namespace {

int elsewhere(const std::vector<int>& nodes, int owner) {
  return int(std::count_if(nodes.begin(), nodes.end(), [&](int node) { return node != nodes[std::size_t(owner)]; }));
}

// Members of every kind of world: by how many there are on each node.
std::vector<std::vector<int>> worlds() {
  return {{1}, {4}, {1, 1}, {4, 4}, {2, 2, 2}, {3, 1}, {1, 4, 2}, {2, 3, 3, 1}, {1, 1, 1, 1, 1}};
}

TEST(CopyPlaces, AreOnOtherNodesAsLongAsThereAreSome) {
  for (const std::vector<int>& sizes : worlds()) {
    std::vector<int> nodes, members;
    for (std::size_t node = 0; node < sizes.size(); ++node)
      nodes.insert(nodes.end(), std::size_t(sizes[node]), int(node));
    for (std::size_t i = 0; i < nodes.size(); ++i) members.push_back(int(10 + i));
    const int n = int(members.size());
    for (int k = 0; k <= n + 1; ++k) {
      const CopyPlaces places(
          members, [&](int rank) { return nodes[std::size_t(rank - 10)]; }, k);
      int all = 0;
      for (int owner = 0; owner < n; ++owner) {
        const std::vector<int> keepers = places.keepers_of(owner);
        const std::set<int> ranks(keepers.begin(), keepers.end());
        ASSERT_EQ(int(keepers.size()), std::min(k, n - 1));
        ASSERT_EQ(ranks.size(), keepers.size()) << "each on another rank";
        ASSERT_FALSE(ranks.contains(owner));
        std::set<int> on;
        int away = 0;
        for (const int keeper : keepers) {
          away += nodes[std::size_t(keeper)] != nodes[std::size_t(owner)];
          on.insert(nodes[std::size_t(keeper)]);
          const std::vector<int> kept = places.kept_by(keeper);
          ASSERT_TRUE(std::binary_search(kept.begin(), kept.end(), owner));
        }
        ASSERT_EQ(away, std::min(int(keepers.size()), elsewhere(nodes, owner))) << "at home only where nobody else is";
        ASSERT_GE(int(on.size()), std::min(int(keepers.size()), int(sizes.size()) - 1)) << "as many nodes as there are";
        all += int(keepers.size());
      }
      const bool even = std::adjacent_find(sizes.begin(), sizes.end(), std::not_equal_to<>()) == sizes.end();
      if (even) {
        ASSERT_EQ(places.kept_at_most() * n, all) << "even worlds share evenly";
      }
    }
  }
}

TrainPlan plan_with(int stage, int copies) {
  TrainPlan plan = tiny_plan();
  plan.definition.steps = 3;
  plan.layout.micro_batch = 1;
  plan.recovery.watchdog_ns = 10 * kSecond;
  plan.recovery.agree_ns = kSecond;
  plan.recovery.peer_copies = copies;
  plan.layout.zero = zero_plan(stage);
  plan.layout.zero.persistence_threshold_elements = 20;
  return plan;
}

sim::WorldPlan nodes_of(int nodes, int per_node) {
  sim::WorldPlan world = world_of(per_node);
  world.nodes = nodes;
  return world;
}

class Copies : public testing::TestWithParam<int> {};

// In the middle of the second step of three.
TEST_P(Copies, AnyTwoRanksAndAnyNodeCanBeLostWithTwoOfThem) {
  const TrainPlan plan = plan_with(GetParam(), 2);
  const Trained golden = run_alone(plan);
  const sim::WorldPlan world = nodes_of(3, 2);
  const TimeNs when = run_simulated(plan, world).world.virtual_ns / 2;
  const std::vector<std::vector<int>> losses = {{0, 1}, {2, 3}, {4, 5}, {0, 2}, {0, 3}, {1, 4}, {2, 5}};
  for (const std::vector<int>& lost : losses) {
    const Simulated run = run_simulated(plan, world, [&](sim::World& w) {
      for (const int rank : lost) w.kill_at(rank, when, [] {});
    });
    ASSERT_EQ(run.finished().size(), 4u) << lost[0] << " and " << lost[1] << ": "
                                         << run.outcomes[std::size_t(lost[0] == 0 ? 4 - lost[1] % 2 : 0)]->why;
    for (const int rank : run.finished()) ASSERT_EQ(run.outcomes[std::size_t(rank)]->state, golden.outcome.state);
  }
}

TEST_P(Copies, OneMoreIsAStopThatNamesOwnerAndKeepers) {
  const TrainPlan plan = plan_with(GetParam(), 2);
  const sim::WorldPlan world = nodes_of(3, 2);
  const TimeNs when = run_simulated(plan, world).world.virtual_ns / 2;
  const CopyPlaces places(
      {0, 1, 2, 3, 4, 5}, [](int rank) { return rank / 2; }, 2);
  std::vector<int> lost = places.keepers_of(1);  // the first owner whose shard is missed
  const std::string names = std::to_string(lost[0]) + ", " + std::to_string(lost[1]);
  lost.push_back(1);
  const Simulated run = run_simulated(plan, world, [&](sim::World& w) {
    for (const int rank : lost) w.kill_at(rank, when, [] {});
  });
  for (std::size_t rank = 0; rank < 6; ++rank) {
    if (std::count(lost.begin(), lost.end(), int(rank)) > 0) continue;
    ASSERT_TRUE(run.outcomes[rank]);
    EXPECT_EQ(run.outcomes[rank]->ending, Ending::stopped);
    EXPECT_EQ(run.outcomes[rank]->why, "rank 1 is gone, and with it its shard of the state; ranks " + names +
                                           ", which kept its copies, are gone too");
  }
}

INSTANTIATE_TEST_SUITE_P(Stages, Copies, testing::Values(1, 2, 3));

TEST(CopiesOffloaded, AreInTheHostsMemoryOrInFiles) {
  for (const Home home : {Home::host, Home::nvme}) {
    TrainPlan plan = plan_with(3, 2);
    plan.layout.offload.optimizer.home = home;
    plan.layout.offload.optimizer.nvme_path = "nvme";
    const Trained golden = run_alone(plan_with(0, 0));
    const sim::WorldPlan world = nodes_of(3, 2);
    const TimeNs when = run_simulated(plan, world).world.virtual_ns / 2;
    const Simulated run = run_simulated(plan, world, [&](sim::World& w) {
      for (const int rank : {2, 3}) w.kill_at(rank, when, [] {});
    });
    ASSERT_EQ(run.finished(), (std::vector<int>{0, 1, 4, 5})) << run.outcomes[0]->why;
    for (const int rank : run.finished()) EXPECT_EQ(run.outcomes[std::size_t(rank)]->state, golden.outcome.state);
  }
}

}  // namespace
}  // namespace seeksim::test
