// Training on simulated ranks: a world, one observer, one outcome a rank.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

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

// The same training by one rank that nothing is cut for.
inline TrainPlan undivided(TrainPlan plan) {
  plan.layout = {};
  plan.bug = {};
  return plan;
}

// Where a run differs from one rank's; empty: nowhere.
inline std::string unlike_one_rank(const TrainPlan& plan, int ranks, const Trained& golden) {
  const Simulated run = run_simulated(plan, world_of(ranks));
  if (int(run.finished().size()) != ranks) return "not all ranks finished";
  for (int r = 0; r < ranks; ++r) {
    for (std::size_t i = 0; i < golden.observer.steps.at(0).size(); ++i) {
      const StepRecord &one = golden.observer.steps.at(0)[i], &many = run.observer.steps.at(r)[i];
      if (one.loss != many.loss) return "loss of step " + std::to_string(i);
      if (one.grad_norm != many.grad_norm) return "gradient norm of step " + std::to_string(i);
    }
    if (!(run.outcomes[std::size_t(r)]->state == golden.outcome.state)) return "state of rank " + std::to_string(r);
  }
  return "";
}

// What an optimizer is tried with.
struct TrainingPrecision {
  const char* name;
  ElementType compute, gradients;
  bool masters;
};
inline constexpr TrainingPrecision kTrainingPrecisions[] = {
    {"fp32", ElementType::f32, ElementType::f32, true},
    {"bf16", ElementType::bf16, ElementType::f32, true},
    {"bf16 gradients", ElementType::bf16, ElementType::bf16, true},
    {"bf16 without masters", ElementType::bf16, ElementType::bf16, false},
    {"fp16", ElementType::f16, ElementType::f16, true}};

inline void expect_state_of_one_rank(const TrainPlan& plan, const Trained& golden, int ranks, const std::string& what) {
  const Simulated run = run_simulated(plan, world_of(ranks));
  ASSERT_EQ(int(run.finished().size()), ranks) << what;
  for (const auto& outcome : run.outcomes) ASSERT_EQ(outcome->state, golden.outcome.state) << what;
}

}  // namespace seeksim::test
