// Training on simulated ranks: a world, one observer, one outcome a rank.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "sim/world.h"
#include "tests/support/plans.h"

namespace seeksim::test {

struct Simulated {
  std::vector<std::optional<TrainOutcome>> outcomes;  // by rank; none where the rank died
  KeepingObserver observer;
  sim::WorldResult world;

  std::vector<int> finished() const {
    std::vector<int> ranks;
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
      if (outcomes[i] && outcomes[i]->ending == Ending::finished) ranks.push_back(int(i));
    }
    return ranks;
  }
};

inline sim::WorldPlan world_of(int ranks, bool native = true, std::uint64_t seed = 1) {
  sim::WorldPlan world;
  world.ranks_per_node = ranks;
  world.native_collectives = native;
  world.seed = seed;
  world.race_detector = true;
  return world;
}

// prepare: called before the run; sets kills, decorators and the like.
inline Simulated run_simulated(
    const TrainPlan& plan, const sim::WorldPlan& world_plan,
    const std::function<void(sim::World&)>& prepare = [](sim::World&) {}) {
  Simulated result;
  result.outcomes.resize(std::size_t(world_plan.ranks()));
  sim::World world(world_plan);
  prepare(world);
  result.world =
      world.run([&](Rank& rank) { result.outcomes[std::size_t(rank.id)] = train(rank, plan, result.observer); });
  for (const sim::Race& race : result.world.races) ADD_FAILURE() << "rank " << race.rank << ": " << race.text;
  return result;
}

}  // namespace seeksim::test
