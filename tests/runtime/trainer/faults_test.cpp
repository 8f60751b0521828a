// Every kind of fault, at random places of a small run: ranks that finish have the golden's bits, and one fault costs
// at most one rank. Scenarios say the same at length; this says it a thousand times.
#include <gtest/gtest.h>

#include "faults/plan.h"
#include "kernels/random.h"
#include "tests/support/simulated_training.h"

namespace seeksim::test {
namespace {

using faults::FaultKind;
using faults::Mode;
using faults::Rule;

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : seed_(seed) {}
  int below(int n) { return int(kernels::philox({at_++, 0, 0, 0}, seed_)[0] % std::uint32_t(n)); }
  bool coin() { return below(2) == 0; }

 private:
  std::uint64_t seed_;
  std::uint32_t at_ = 0;
};

constexpr int kSteps = 4;

void aim_at_link(Rule& rule, Dice& dice, int ranks) {
  rule.from = dice.below(ranks);
  rule.to = (*rule.from + 1 + dice.below(ranks - 1)) % ranks;
  rule.both_directions = dice.coin();
}

// sum: how the runs at hand bring gradients together.
Rule random_rule(Dice& dice, int ranks, runtime::OpKind sum) {
  Rule rule;
  rule.kind = FaultKind(dice.below(int(FaultKind::nan_inject)));  // not those that change numbers silently
  rule.when.step = dice.below(kSteps);
  switch (rule.kind) {
    case FaultKind::collective_timeout:
      rule.when.rank = dice.below(ranks);
      rule.mode = dice.coin() ? Mode::never : Mode::late;
      if (rule.mode == Mode::late) rule.delay_ns = TimeNs(1 + dice.below(14)) * kSecond;  // the watchdog: 10 s
      break;
    case FaultKind::link_drop:
      aim_at_link(rule, dice, ranks);
      rule.mode = dice.coin() ? Mode::transient : Mode::permanent;
      if (rule.mode == Mode::transient)
        rule.down_ns = TimeNs(1 + dice.below(40)) * kSecond, rule.up_ns = kSecond, rule.cycles = 1 + dice.below(3);
      break;
    case FaultKind::slow_link:
      aim_at_link(rule, dice, ranks);
      rule.factor = 0.01;
      break;
    case FaultKind::straggler:
      rule.when.rank = dice.below(ranks);
      rule.factor = 3;
      break;
    case FaultKind::rank_crash: {
      rule.when.rank = dice.below(ranks);
      const Mode modes[] = {Mode::before, Mode::during, Mode::after};
      rule.mode = modes[dice.below(3)];
      rule.when.op = sum;
      break;
    }
    default:  // messages
      rule.when.rank = dice.below(ranks);
      rule.bit = std::uint64_t(dice.below(100000));
      rule.count = 1 + dice.below(3);
  }
  return rule;
}

struct Count {
  int fired = 0;
  int recovered = 0;
};

void expect_survived(const TrainPlan& plan, const Trained& golden, std::uint64_t seed, Count& count) {
  Dice dice(seed);
  sim::WorldPlan world = world_of(2 + dice.below(4), true, seed);
  const char* networks[] = {"ib", "tcp", "nvlink", "pcie"};
  world.network = networks[dice.below(4)];
  if (world.ranks_per_node == 4 && dice.coin()) world.nodes = 2, world.ranks_per_node = 2;
  const bool sharded = plan.layout.zero.stage > 0;
  const Rule rule =
      random_rule(dice, world.ranks(), sharded ? runtime::OpKind::reduce_scatter : runtime::OpKind::all_reduce);
  std::vector<int> nodes;
  for (int r = 0; r < world.ranks(); ++r) nodes.push_back(r / world.ranks_per_node);
  faults::FaultPlan faults({rule}, seed, nodes);
  const Simulated run = run_simulated(plan, world, [&](sim::World& w) {
    w.decorate([&](int rank, Seams inner) { return faults.decorate(rank, inner); });
  });
  const std::string where = "seed " + std::to_string(seed) + ", stage " + std::to_string(plan.layout.zero.stage) +
                            ", " + std::to_string(world.ranks()) + " ranks, " + world.network + ": " +
                            faults::text(rule);
  ASSERT_EQ(run.world.end, sim::WorldEnd::finished) << where << "\n" << run.world.wait_for_graph;
  ASSERT_GE(int(run.finished().size()), world.ranks() - 1) << where;
  for (const int r : run.finished())
    ASSERT_EQ(run.outcomes[std::size_t(r)]->state, golden.outcome.state) << where << ", rank " << r;
  count.fired += faults.status()[0].fired > 0;
  count.recovered += !run.observer.recovered_records.empty();
}

void expect_any_fault_survived(std::uint64_t seeds) {
  TrainPlan plan = tiny_plan();
  plan.definition.model.layers = 0;
  plan.definition.steps = kSteps;
  plan.recovery.watchdog_ns = 10 * kSecond;
  plan.recovery.agree_ns = 5 * kSecond;
  const Trained golden = run_alone(plan);
  Count count;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    expect_survived(plan, golden, seed, count);
    if (testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GT(count.fired, int(seeds * 9 / 10));
  EXPECT_GT(count.recovered, int(seeds * 3 / 10));
}

TEST(Faults, OneOfAnyKindCostsAtMostOneRankAndNoBitAtEveryZeroStage) {
  TrainPlan plan = tiny_plan();
  plan.definition.steps = kSteps;
  plan.recovery.watchdog_ns = 10 * kSecond;
  plan.recovery.agree_ns = 5 * kSecond;
  const Trained golden = run_alone(plan);
  Count count;
  for (std::uint64_t seed = 1; seed <= 600; ++seed) {
    plan.layout.zero = runtime::zero_plan(1 + int(seed % 3));
    plan.layout.zero.reduce_bucket_elements = 1500;
    plan.layout.zero.persistence_threshold_elements = 64;
    plan.layout.zero.max_reuse_distance = 0;
    plan.layout.micro_batch = 1 + int(seed % 2);
    expect_survived(plan, golden, seed, count);
    if (testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GT(count.fired, 540);
  EXPECT_GT(count.recovered, 180);
}

TEST(Faults, ALinkThatFailsAgainCostsOneLivingRankWhichIsTold) {
  TrainPlan plan = tiny_plan();
  const Trained golden = run_alone(plan);
  Rule rule;
  rule.kind = FaultKind::link_drop;
  rule.mode = Mode::permanent;
  rule.from = 2;
  rule.to = 0;
  rule.both_directions = false;
  rule.when.step = 1;
  faults::FaultPlan faults({rule}, 1, {0, 0, 0});
  const Simulated run = run_simulated(plan, world_of(3), [&](sim::World& w) {
    w.decorate([&](int rank, Seams inner) { return faults.decorate(rank, inner); });
  });
  EXPECT_EQ(run.finished(), (std::vector<int>{0, 1}));
  for (const int r : run.finished()) EXPECT_EQ(run.outcomes[std::size_t(r)]->state, golden.outcome.state);
  ASSERT_TRUE(run.outcomes[2]);
  EXPECT_EQ(run.outcomes[2]->ending, Ending::evicted);
  EXPECT_NE(run.outcomes[2]->why.find("rank 2 is evicted, since its link failed again"), std::string::npos)
      << run.outcomes[2]->why;
  ASSERT_EQ(run.observer.recovered_records.size(), 4U) << "two recoveries, as two survivors lived them";
  for (const RecoveryRecord& r : run.observer.recovered_records) {
    EXPECT_EQ(r.diagnosis.links, (std::vector<std::pair<int, int>>{{2, 0}})) << r.diagnosis.text;
    EXPECT_EQ(r.step, 1);
  }
}

TEST(Faults, OneOfAnyKindCostsAtMostOneRankAndNoBit) { expect_any_fault_survived(1000); }
TEST(FaultsNightly, OneOfAnyKindCostsAtMostOneRankAndNoBit) { expect_any_fault_survived(50000); }

}  // namespace
}  // namespace seeksim::test
