// What ranks write down of a run, sent as bytes and replayed in one place, is what the simulator's collector saw.
#include "harness/processes/told.h"

#include <gtest/gtest.h>

#include "harness/loading/load.h"
#include "harness/record/golden.h"
#include "harness/scenario/scenario.h"
#include "harness/simulate/simulate.h"

namespace seeksim::harness {
namespace {

Scenario scenario_of(const std::string& zero, const std::string& more = "") {
  return load_scenario_text(R"({ "name": "told", "why": "A test.",
    "model": { "layers": 2, "width": 8, "heads": 2, "context": 8, "vocab": 32 },
    "data": { "synthetic": true },
    "world": { "nodes": 1, "ranks_per_node": 2 },
    "deepspeed": { "train_batch_size": 8, "train_micro_batch_size_per_gpu": 2,
                   "zero_optimization": { "stage": )" +
                                zero + R"( } },
    "steps": 4, "checks": [ "ranks_agree" ])" +
                                more + " }",
                            "told.json");
}

// The same world, each rank with a note taker of its own.
RunRecord through_notes(const Scenario& scenario) {
  const int ranks = scenario.world.ranks();
  std::vector<NoteTaker> takers(std::size_t(ranks), NoteTaker(ranks > 1, -1, true));
  std::vector<RankReport> reports(takers.size());
  sim::World world(scenario.world);
  world.run([&](runtime::Rank& rank) {
    const auto id = std::size_t(rank.id);
    const runtime::TrainOutcome outcome = runtime::train(rank, scenario.train, takers[id]);
    reports[id].record.how = RankRecord::How::finished;
    reports[id].record.state = outcome.state;
  });
  Collector collector(ranks, -1, true);
  collector.begin_attempt(0);
  std::vector<std::vector<Note>> notes;
  for (std::size_t rank = 0; rank < takers.size(); ++rank) {
    reports[rank].notes = takers[rank].take();
    RankReport back = report_from(to_bytes(reports[rank]));
    EXPECT_EQ(back.record.state, reports[rank].record.state);
    notes.push_back(std::move(back.notes));
  }
  replay(notes, scenario.train.definition.steps, scenario.train.definition.global_batch, collector);
  RunRecord record = std::move(collector.record());
  record.training.history = collector.history();
  return record;
}

void expect_same(const RunRecord& a, const RunRecord& b) {
  ASSERT_EQ(a.steps.size(), b.steps.size());
  for (std::size_t i = 0; i < a.steps.size(); ++i) {
    EXPECT_EQ(a.steps[i].loss, b.steps[i].loss);
    EXPECT_EQ(a.steps[i].grad_norm, b.steps[i].grad_norm);
    EXPECT_EQ(a.steps[i].data_position, b.steps[i].data_position);
  }
  EXPECT_EQ(a.training.step_comparisons, b.training.step_comparisons);
  EXPECT_EQ(a.training.history.commits, b.training.history.commits);
  EXPECT_EQ(a.training.history.compared, b.training.history.compared);
  EXPECT_EQ(a.training.history.wrong, b.training.history.wrong);
  EXPECT_EQ(a.agreement.replica_comparisons, b.agreement.replica_comparisons);
  EXPECT_GT(b.agreement.replica_comparisons, 0u);
  EXPECT_EQ(a.agreement.replica_differences.size(), b.agreement.replica_differences.size());
  EXPECT_EQ(a.agreement.shards.size(), b.agreement.shards.size());
  EXPECT_EQ(a.numbers.poison_looks, b.numbers.poison_looks);
  EXPECT_EQ(a.training.gradient_digests, b.training.gradient_digests);
  EXPECT_EQ(a.layout().micro_batch, b.layout().micro_batch);
  EXPECT_EQ(a.layout().zero.stage, b.layout().zero.stage);
}

TEST(Told, NotesReplayToTheSimulatorsRecord) {
  for (const char* stage : {"0", "1", "2", "3"}) {
    const Scenario scenario = scenario_of(stage);
    SimulationOptions options;
    options.digest_gradients = true;
    expect_same(Simulation(scenario, options).run(), through_notes(scenario));
  }
}

TEST(Told, ADifferenceBetweenRanksSurvivesTheWay) {
  const Scenario scenario = scenario_of("0", R"(, "bug": "drifting_replica")");
  const RunRecord record = through_notes(scenario);
  EXPECT_FALSE(record.agreement.replica_differences.empty());
}

TEST(Told, SamplesReplayToTheSimulatorsRecord) {
  Scenario scenario = scenario_of("1");
  scenario.train.definition.data.sampler = {runtime::SampleOrder::shuffled, 3, 20, false};
  const RunRecord simulated = Simulation(scenario, {}).run(), told = through_notes(scenario);
  ASSERT_EQ(told.training.samples.size(), 4u);
  for (std::size_t step = 0; step < 4; ++step)
    EXPECT_EQ(told.training.samples[step].rows, simulated.training.samples[step].rows) << "step " << step;
}

TEST(Told, NotesThatAreCutOffAreRefused) {
  Collector collector(1);
  std::vector<std::vector<Note>> notes(1);
  notes[0].push_back({0, {std::byte{0}, std::byte{1}}});
  EXPECT_THROW(replay(notes, 4, 8, collector), runtime::Malformed);
  notes[0].back().body = {std::byte{200}};
  EXPECT_THROW(replay(notes, 4, 8, collector), runtime::Malformed);
}

// What a rank says is used to find places in lists.
TEST(Told, StepsAndRanksThatTheRunDoesNotHaveAreRefused) {
  const auto refused = [](auto tell) {
    NoteTaker taker(false, -1, true);
    tell(taker);
    Collector collector(2, -1, true);
    try {
      replay({{}, taker.take()}, 4, 8, collector);
    } catch (const runtime::Malformed& bad) {
      return std::string(bad.what()).starts_with("rank 1 reported");
    }
    return false;
  };
  constexpr std::int64_t kFar = std::int64_t(1) << 60;
  const auto step = [](std::int64_t number) {
    runtime::StepRecord record;
    record.step = number;
    return record;
  };
  EXPECT_TRUE(refused([&](NoteTaker& to) { to.step_committed(0, step(kFar)); }));
  EXPECT_TRUE(refused([&](NoteTaker& to) { to.step_committed(0, step(-1)); }));
  EXPECT_TRUE(refused([](NoteTaker& to) { to.rolled_back(0, kFar); }));
  EXPECT_TRUE(refused([](NoteTaker& to) { to.stagnation(0, kFar, {}); }));
  EXPECT_TRUE(refused([](NoteTaker& to) { to.gradients(0, kFar, {{}}); }));
  EXPECT_TRUE(refused([](NoteTaker& to) { to.scores(0, {0, 1}, {1.0}); }));
  EXPECT_TRUE(refused([](NoteTaker& to) { to.scores(0, {7}, {1.0}); }));
  EXPECT_TRUE(refused([](NoteTaker& to) { to.samples(0, {kFar, 0, 0, {1}}); }));
  EXPECT_TRUE(refused([](NoteTaker& to) { to.samples(0, {0, 0, kFar, {1}}); }));
  EXPECT_TRUE(refused([](NoteTaker& to) { to.samples(0, {0, 0, -1, {1}}); }));
  EXPECT_TRUE(refused([](NoteTaker& to) { to.samples(0, {0, 0, 7, {1, 2}}); })) << "of a batch of 8";
  EXPECT_FALSE(refused([](NoteTaker& to) { to.samples(0, {0, 0, 6, {1, 2}}); }));
  EXPECT_TRUE(refused([](NoteTaker& to) {
    runtime::ShardRecord shard;
    shard.members = 2;
    shard.position = 2;
    to.shards(0, shard);
  }));
  EXPECT_TRUE(refused([](NoteTaker& to) {
    runtime::RecoveryRecord recovery;
    recovery.dead = {-5};
    to.recovering(0, recovery);
  }));
}

TEST(Told, AReportWithMoreKindsOfMemoryThanThereAreIsRefused) {
  RankReport report;
  report.pinned.peak_by_tag.resize(1000);
  EXPECT_THROW(report_from(to_bytes(report)), runtime::Malformed);
}

}  // namespace
}  // namespace seeksim::harness
