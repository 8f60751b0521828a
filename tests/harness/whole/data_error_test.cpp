// A sample that cannot be read: any rank that loads it fails, in any layout, and all redo the step or stop together.
#include <gtest/gtest.h>

#include <algorithm>

#include <fmt/format.h>

#include "harness/loading/load.h"
#include "harness/simulate/simulate.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

// Batches of 8 samples; sample 21 is the sixth of step 2.
constexpr std::int64_t kStep = 2;
const char* const kOnce = R"({ "kind": "data_error", "sample": 21 })";
const char* const kForEver = R"({ "kind": "data_error", "sample": 21, "count": 0 })";

struct Cut {
  int ranks;
  int micro_batch;
  int stage;
  const char* more;        // of the world
  std::vector<int> bring;  // ranks that may load the sample
  const char* text;
};

std::string text_of(const Cut& cut, const std::string& faults) {
  return fmt::format(
      R"({{ "name": "sample", "why": "A test.", "training_seed": 1,
  "model": {{ "family": "gpt2", "layers": 2, "width": 16, "heads": 8, "context": 16, "vocab": 256 }},
  "data": {{ "synthetic": true }},
  "world": {{ "nodes": 1, "ranks_per_node": {}{} }},
  "deepspeed": {{ "train_batch_size": 8, "train_micro_batch_size_per_gpu": {}, "zero_optimization": {{ "stage": {} }} }},
  "steps": 5, "faults": [ {} ],
  "recovery": {{ "policy": "rebuild_and_redo", "watchdog_s": 60 }} }})",
      cut.ranks, cut.more, cut.micro_batch, cut.stage, faults);
}

RunRecord run_of(const Cut& cut, const std::string& faults) {
  return Simulation(load_scenario_text(text_of(cut, faults), "sample.json"), {}).run();
}

// It is number 5 of step 2, which begins with sample 16: with each rank's share in one piece, or, where gradients are
// sharded, each turn's in one.
const std::vector<Cut>& cuts() {
  static const std::vector<Cut> all = {
      {1, 8, 0, "", {0}, "one rank, one micro-batch"},
      {1, 2, 0, "", {0}, "one rank that accumulates four"},
      {2, 4, 1, "", {1}, "two ranks"},
      {2, 1, 2, "", {1}, "two ranks that accumulate four"},
      {4, 1, 1, "", {2}, "four ranks that accumulate two"},
      {4, 1, 3, "", {1}, "four ranks whose micro-batches of one turn lie together"},
      {8, 1, 1, "", {5}, "eight ranks"},
      {4, 1, 1, R"(, "pipeline": 2)", {1, 3}, "two pipelines"},
      {4, 2, 0, R"(, "tensor": 2)", {2, 3}, "two replicas of two"},
  };
  return all;
}

bool is_one_of(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

TEST(DataError, StrikesWhoeverBringsTheSampleAndAllRedoTheStep) {
  const RunRecord golden = run_of(cuts().front(), "");
  for (const Cut& cut : cuts()) {
    SCOPED_TRACE(cut.text);
    const RunRecord run = run_of(cut, kOnce);
    ASSERT_EQ(run.faults.size(), 1u);
    EXPECT_EQ(run.faults[0].fired, 1u);
    ASSERT_EQ(run.faults[0].ranks.size(), 1u);
    const int struck = run.faults[0].ranks[0];
    EXPECT_TRUE(is_one_of(cut.bring, struck)) << struck;
    ASSERT_TRUE(run.faults[0].first_op);
    const runtime::Op& op = *run.faults[0].first_op;
    EXPECT_EQ(op.kind, runtime::OpKind::data_load);
    EXPECT_EQ(op.step, kStep);
    EXPECT_LE(op.sample, 21);
    EXPECT_GT(op.sample + op.samples, 21);
    EXPECT_EQ(op.samples, std::min(cut.micro_batch, 8));
    ASSERT_EQ(run.detection.recoveries.size(), 1u);
    EXPECT_EQ(run.detection.recoveries[0].step, kStep);
    EXPECT_EQ(run.detection.recoveries[0].error, runtime::ErrorKind::data_error);
    EXPECT_EQ(run.detection.recoveries[0].diagnosis.culprits, std::vector<int>{struck});
    EXPECT_EQ(run.detection.recoveries[0].diagnosis.text,
              fmt::format("rank {} failed: data_error at sample 21, in step 2", struck));
    EXPECT_TRUE(run.detection.recoveries[0].evicted.empty());
    for (const RankRecord& rank : run.ranks) {
      EXPECT_EQ(rank.how, RankRecord::How::finished) << rank.why;
      EXPECT_EQ(rank.state.data_position, golden.ranks[0].state.data_position);
    }
    ASSERT_EQ(run.steps.size(), golden.steps.size());
    for (std::size_t step = 0; step < run.steps.size(); ++step)
      EXPECT_EQ(run.steps[step].loss, golden.steps[step].loss);
    const bool holds_all = cut.more[0] == '\0';
    EXPECT_TRUE(!holds_all || run.ranks[0].state.params == golden.ranks[0].state.params);
  }
}

TEST(DataError, ForEverEndsInAnAgreedStopThatNamesTheRankAndTheSample) {
  for (const Cut& cut : cuts()) {
    SCOPED_TRACE(cut.text);
    const RunRecord run = run_of(cut, kForEver);
    ASSERT_FALSE(run.detection.recoveries.empty());
    EXPECT_GT(run.faults[0].fired, 1u);
    const std::vector<int> named = run.detection.recoveries.back().diagnosis.culprits;
    ASSERT_FALSE(named.empty());
    const std::string who = (named.size() == 1 ? "rank " : "ranks ") + std::to_string(named[0]);
    for (const int rank : named) EXPECT_TRUE(is_one_of(cut.bring, rank)) << rank;
    for (const RankRecord& rank : run.ranks) {
      EXPECT_EQ(rank.how, RankRecord::How::stopped);
      EXPECT_EQ(rank.steps_committed, kStep);
      EXPECT_EQ(rank.why, run.ranks[0].why);
      EXPECT_NE(rank.why.find(who), std::string::npos) << rank.why;
      EXPECT_NE(rank.why.find("failed: data_error at sample 21, in step 2"), std::string::npos) << rank.why;
    }
  }
}

// A crash in step 1 leaves three ranks, which cut the batch otherwise: the sample is another one's now.
TEST(DataError, AfterARecoveryTheSampleIsSomebodyElses) {
  const Cut four{4, 1, 1, "", {}, ""};
  const std::string crash = R"({ "kind": "rank_crash", "rank": 0, "step": 1, "op": "vote" }, )";
  const RunRecord golden = run_of(four, ""), alone = run_of(four, kOnce), run = run_of(four, crash + kOnce);
  ASSERT_EQ(alone.faults[0].ranks, std::vector<int>{2});
  ASSERT_EQ(run.faults[1].fired, 1u);
  EXPECT_NE(run.faults[1].ranks, alone.faults[0].ranks);
  ASSERT_EQ(run.detection.recoveries.size(), 2u);
  EXPECT_NE(run.detection.recoveries[1].diagnosis.text.find("data_error at sample 21, in step 2"), std::string::npos)
      << run.detection.recoveries[1].diagnosis.text;
  EXPECT_TRUE(run.detection.recoveries[1].evicted.empty());
  EXPECT_EQ(run.ranks[1].how, RankRecord::How::finished) << run.ranks[1].why;
  EXPECT_EQ(run.ranks[1].state.params, golden.ranks[1].state.params);
}

// A step that is redone after another fault brings the sample again: the rule has struck by then.
TEST(DataError, AStepThatIsRedoneIsNotStruckAgain) {
  const Cut four{4, 1, 1, "", {}, ""};
  const std::string lost = R"({ "kind": "message_drop", "rank": 1, "step": 2, "phase": "grad_reduce" }, )";
  const RunRecord run = run_of(four, lost + kOnce);
  EXPECT_EQ(run.faults[0].fired, 1u);
  EXPECT_EQ(run.faults[1].fired, 1u);
  EXPECT_EQ(run.detection.recoveries.size(), 2u);
  EXPECT_EQ(run.ranks[3].how, RankRecord::How::finished);
}

TEST(DataStall, AtOneSampleOnlyTakesTime) {
  const Cut four{4, 1, 1, "", {}, ""};
  const RunRecord plain = run_of(four, "");
  const RunRecord run = run_of(four, R"({ "kind": "data_stall", "sample": 21, "delay_s": 30 })");
  EXPECT_EQ(run.faults[0].ranks, std::vector<int>{2});
  EXPECT_TRUE(run.detection.recoveries.empty());
  EXPECT_GT(run.virtual_ns, 29 * runtime::kSecond);
  EXPECT_EQ(run.ranks[0].state.params, plain.ranks[0].state.params);
}

// A sample that the run never comes to is a rule that never fires, and samples are counted over the whole run.
TEST(DataError, SamplesAreCountedOverTheRun) {
  const Cut four{4, 1, 1, "", {}, ""};
  EXPECT_EQ(run_of(four, R"({ "kind": "data_error", "sample": 40 })").faults[0].fired, 0u);
  const RunRecord last = run_of(four, R"({ "kind": "data_error", "sample": 39 })");
  EXPECT_EQ(last.faults[0].fired, 1u);
  EXPECT_EQ(last.detection.recoveries.at(0).step, 4);
}

}  // namespace
}  // namespace seeksim::harness
