// What a long run is worth: the arithmetic, by hand.
#include "harness/oracles/goodput.h"

#include <gtest/gtest.h>

#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;
using runtime::kSecond;

TEST(Goodput, SpreadOfNothingAndOfSome) {
  EXPECT_EQ(spread({}).n, 0u);
  const Spread s = spread({3, 1, 8});
  EXPECT_EQ(s.n, 3u);
  EXPECT_DOUBLE_EQ(s.mean, 4);
  EXPECT_DOUBLE_EQ(s.p50, 3);
  EXPECT_DOUBLE_EQ(s.max, 8);
}

// Llama 3's 419 failures in 54 days, 3.09 hours between two, and checkpoints of 1 s to 5 minutes.
TEST(Goodput, YoungsIntervalAndWhatItLoses) {
  const double mtbf = 54.0 * 24 * 3600 / 419;
  const double table[][3] = {{1, 149, 0.013}, {30, 817, 0.073}, {60, 1156, 0.104}, {300, 2585, 0.23}};
  for (const auto& [cost, interval, waste] : table) {
    EXPECT_NEAR(best_interval(cost, mtbf), interval, 1);
    EXPECT_NEAR(expected_waste(cost, best_interval(cost, mtbf), mtbf, 0), waste, 0.003);
    for (const double other : {0.5, 2.0}) {
      EXPECT_GT(expected_waste(cost, other * interval, mtbf, 0), waste);
    }
  }
}

TEST(Goodput, AnInterruptionIsOverWithTheNextCommit) {
  Ledger ledger;
  ledger.committed(1 * kSecond);
  ledger.noticed(3 * kSecond);
  ledger.noticed(4 * kSecond);
  ledger.committed(9 * kSecond);
  ledger.committed(10 * kSecond);
  ledger.noticed(12 * kSecond);
  const std::vector<Interruption>& all = ledger.interruptions();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].resumed_ns, 9 * kSecond);
  EXPECT_EQ(all[1].resumed_ns, 9 * kSecond);
  EXPECT_EQ(all[2].resumed_ns, -1);
}

// 100 s, steps of 2 s: 30 that lasted, 5 done again, 4 checkpoints of 1 s, one failure that was noticed after 3 s.
TEST(Goodput, OfARunAddsUp) {
  RunRecord run = good_run();
  run.virtual_ns = 100 * kSecond;
  faults::RuleStatus crash;
  crash.kind = faults::FaultKind::rank_crash;
  crash.fired = 1;
  crash.fired_ns = {50 * kSecond};
  run.faults = {crash};
  run.steps.resize(30);
  run.training.undone_steps = 5;
  run.detection.ledger.committed(52 * kSecond);
  run.detection.ledger.noticed(53 * kSecond);
  run.detection.ledger.committed(70 * kSecond);
  run.training.checkpoints.resize(5);
  for (Checkpoint& one : run.training.checkpoints) {
    one.complete = true;
    one.blocked_ns = kSecond;
  }
  run.training.checkpoints.back() = {};  // given up
  const Goodput g = goodput_of(run, 2, 5);
  EXPECT_EQ(g.steps, 30);
  EXPECT_DOUBLE_EQ(g.ettr, 0.6);
  EXPECT_DOUBLE_EQ(g.redone_s, 10);
  EXPECT_DOUBLE_EQ(g.checkpoints_s, 4);
  EXPECT_EQ(g.checkpoints, 4);
  EXPECT_EQ(g.checkpoints_given_up, 1);
  EXPECT_DOUBLE_EQ(g.rest_s, 26);
  EXPECT_DOUBLE_EQ(g.detection_s.mean, 3);
  EXPECT_DOUBLE_EQ(g.recovery_s.mean, 15);  // 17 s to the next commit, a step of it
  ASSERT_TRUE(g.formula.has_value());
  EXPECT_DOUBLE_EQ(g.formula->cost_s, 1);
  EXPECT_DOUBLE_EQ(g.formula->interval_s, 11);
  EXPECT_DOUBLE_EQ(g.formula->mtbf_s, 100);
  EXPECT_DOUBLE_EQ(g.formula->restart_s, 18);
  EXPECT_DOUBLE_EQ(g.formula->waste, 1.0 / 11 + 0.055 + 0.18);
  EXPECT_EQ(g.faults, (std::vector<std::pair<std::string, std::uint64_t>>{{"rank_crash", 1}}));
  EXPECT_FALSE(goodput_of(run, 2, 0).formula.has_value());
}

// Rounding can leave less than nothing for the rest.
TEST(Goodput, NoShareIsNegativeOnTheScreen) {
  Goodput g;
  g.virtual_s = 3600, g.step_s = 1, g.steps = 3600, g.rest_s = -0.4;
  const std::string text = goodput_text(g);
  EXPECT_EQ(text.find('-'), std::string::npos) << text;
}

}  // namespace
}  // namespace seeksim::harness
