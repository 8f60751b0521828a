// The power fails at every call that writes, syncs, renames or removes anything: what is left loads, to the newest
// checkpoint that was complete or one that came out whole after all, and the run ends in the golden's bits.
#include "kernels/random.h"
#include "runtime/rules/bugs.h"
#include "tests/runtime/checkpoint/checkpoint_world.h"

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

std::uint32_t draw(std::uint64_t seed, std::uint32_t what) { return kernels::philox({what, 0, 0, 0}, seed)[0]; }

// Ranks die at random instants, also while others write or load; the job is started again, and again with other ranks
// dying, and at last with none: the bits are the golden's, and no step before the newest complete checkpoint is made
// again.
void survive(std::uint64_t seed, const TrainOutcome& golden, int& restarted, int& went_back) {
  TrainPlan plan = saving_plan(int(seed % 4), seed / 4 % 2 == 0);
  plan.definition.steps = 6;
  const RecoveryPolicy policies[] = {RecoveryPolicy::stop, RecoveryPolicy::restart_from_checkpoint,
                                     RecoveryPolicy::rebuild_and_redo};
  plan.recovery.policy = policies[seed / 8 % 3];
  plan.recovery.peer_copies = int(seed / 24 % 2);
  plan.checkpoint.every_steps = 1 + std::int64_t(seed / 48 % 2);
  const auto disks = std::make_shared<sim::Disks>();
  std::int64_t newest = 0;
  for (int attempt = 0; attempt < 3; ++attempt) {
    sim::WorldPlan world = world_of(2 + int(draw(seed, 99 + std::uint32_t(attempt)) % 3), true, seed);
    world.storage.tears = seed % 5 == 0;
    world.network = seed % 2 ? "ib" : "tcp";
    const int kills = attempt == 2 ? 0 : 1 + int(draw(seed, 7) % std::uint32_t(world.ranks()));
    const SavingRun run = run_saving(plan, world, disks, [&](sim::World& w) {
      for (int k = 0; k < kills; ++k) {
        const std::uint32_t at = std::uint32_t(10 * attempt + 2 * k);
        w.kill_at(int(draw(seed, at) % std::uint32_t(world.ranks())), TimeNs(draw(seed, at + 1) % 4'000'000), nullptr);
      }
    });
    const std::string where = "seed " + std::to_string(seed) + ", attempt " + std::to_string(attempt);
    for (const sim::RankEnd& end : run.world.ranks)
      ASSERT_NE(end.how, sim::RankEnd::How::threw) << where << ": " << end.what;
    std::int64_t before = -1;
    for (const std::int64_t step : run.observer.rolled_back_to) before = std::max(before, step);
    went_back += plan.recovery.policy != RecoveryPolicy::stop && attempt == 0 && before >= 0;
    restarted += attempt > 0 && before > 0;
    ASSERT_TRUE(attempt == 0 || before < 0 || before >= newest) << where << ": a checkpoint is lost";
    Looking looking(*disks, plan);
    const std::vector<std::int64_t> left = checkpoints_in(looking.storage, looking.path);
    newest = left.empty() ? 0 : left.front();
    for (const std::int64_t step : left)
      ASSERT_EQ(verify_checkpoint(looking.storage, looking.folder(step)).problem, "") << where << ", step " << step;
    for (const auto& outcome : run.outcomes) {
      if (!outcome || outcome->ending == Ending::evicted) continue;
      const bool finished = outcome->ending == Ending::finished;
      ASSERT_TRUE(finished || attempt < 2) << where << ": " << outcome->why;
      ASSERT_TRUE(!finished || outcome->state == golden.state) << where;
    }
    plan.checkpoint.resume = true;
  }
}

TEST(CheckpointChaos, DeathsAtRandomInstantsAndRestartsLeaveTheGoldensBits) {
  int restarted = 0, went_back = 0;
  TrainPlan plan = saving_plan();
  plan.definition.steps = 6;
  const TrainOutcome golden = run_alone(plan).outcome;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    survive(seed, golden, restarted, went_back);
    if (testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GT(restarted, 50);
  EXPECT_GT(went_back, 10);
}

}  // namespace
}  // namespace seeksim::test
