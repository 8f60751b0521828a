// The power fails at every call that writes, syncs, renames or removes anything: what is left loads, to the newest
// checkpoint that was complete or one that came out whole after all, and the run ends in the golden's bits.
#include "tests/runtime/checkpoint_world.h"

namespace seeksim::test {
namespace {

struct Cell {
  int stage;
  bool async;
  bool tears;
};

std::string where(const Cell& cell, int at) {
  return "stage " + std::to_string(cell.stage) + (cell.async ? ", async" : ", sync") + (cell.tears ? ", torn" : "") +
         ", call " + std::to_string(at);
}

sim::WorldPlan world_for(const Cell& cell, int at) {
  sim::WorldPlan world = world_of(2, true, std::uint64_t(at + 1));
  world.storage.tears = cell.tears;
  return world;
}

int calls_in_all(const TrainPlan& plan) {
  PowerCut never;
  run_until_power_fails(plan, world_of(2), std::make_shared<sim::Disks>(), never);
  return never.calls;
}

// What has a manifest after a cut at this call and is no checkpoint; "": nothing.
std::string broken_after(const TrainPlan& plan, const Cell& cell, int at, const std::shared_ptr<sim::Disks>& disks,
                         PowerCut& cut, SavingRun* run = nullptr) {
  cut.at = at;
  SavingRun made = run_until_power_fails(plan, world_for(cell, at), disks, cut);
  if (run != nullptr) *run = std::move(made);
  Looking looking(*disks, plan);
  for (const std::int64_t step : checkpoints_in(looking.storage, looking.path)) {
    const Verified verified = verify_checkpoint(looking.storage, looking.folder(step));
    if (!verified.problem.empty()) return "step " + std::to_string(step) + ": " + verified.problem;
  }
  return {};
}

class CheckpointCrash : public testing::TestWithParam<Cell> {};

TEST_P(CheckpointCrash, AtEveryCallLeavesTheNewestOrTheOneBefore) {
  const Cell cell = GetParam();
  const TrainPlan plan = saving_plan(cell.stage, cell.async);
  TrainPlan again = plan;
  again.checkpoint.resume = true;
  const Trained golden = run_alone(plan);
  const int calls = calls_in_all(plan);
  ASSERT_GT(calls, 30);
  std::set<std::int64_t> loaded;
  for (int at = 1; at <= calls; ++at) {
    const auto disks = std::make_shared<sim::Disks>();
    PowerCut cut;
    SavingRun first;
    ASSERT_EQ(broken_after(plan, cell, at, disks, cut, &first), "") << where(cell, at);
    std::int64_t complete = 0;
    for (const CheckpointRecord& record : first.observer.checkpoints)
      if (record.complete) complete = std::max(complete, record.step);

    const SavingRun second = run_saving(again, world_of(2), disks);
    ASSERT_FALSE(second.observer.rolled_back_to.empty()) << where(cell, at);
    const std::int64_t step = second.observer.rolled_back_to.front();
    loaded.insert(step);
    ASSERT_GE(step, complete) << where(cell, at) << ": a complete checkpoint is lost";
    const std::int64_t newest = cut.steps.empty() ? 0 : *cut.steps.rbegin();
    const std::int64_t before = cut.steps.size() < 2 ? 0 : *std::next(cut.steps.rbegin());
    ASSERT_TRUE(step == newest || step == before) << where(cell, at) << ": " << step << " of " << newest;
    for (const auto& outcome : second.outcomes) {
      ASSERT_TRUE(outcome && outcome->ending == Ending::finished) << where(cell, at) << (outcome ? outcome->why : "");
      ASSERT_EQ(outcome->state, golden.outcome.state) << where(cell, at);
    }
  }
  EXPECT_GE(loaded.size(), 3u);
}

INSTANTIATE_TEST_SUITE_P(All, CheckpointCrash,
                         testing::Values(Cell{0, false, false}, Cell{0, true, false}, Cell{2, false, false},
                                         Cell{2, true, false}, Cell{0, false, true}, Cell{0, true, true},
                                         Cell{2, false, true}, Cell{2, true, true}));

TEST(CheckpointCrashBugs, LeaveABrokenCheckpointSomewhere) {
  for (const Bug bug : {Bug::early_manifest, Bug::manifest_not_synced}) {
    TrainPlan plan = saving_plan(2, true);
    plan.bug.bug = bug;
    const Cell cell{2, true, false};
    const int calls = calls_in_all(plan);
    int broken = 0;
    for (int at = 1; at <= calls; ++at) {
      PowerCut cut;
      broken += !broken_after(plan, cell, at, std::make_shared<sim::Disks>(), cut).empty();
    }
    EXPECT_GT(broken, 0) << name(bug);
  }
}

}  // namespace
}  // namespace seeksim::test
