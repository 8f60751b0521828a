// Faults inside each kind of operation that only sharded state has: the gather of parameters in forward and in
// backward, the reduction of gradients, the copy to a peer, the gather of norms, the publication of what was updated.
#include <gtest/gtest.h>

#include "faults/plan.h"
#include "tests/support/simulated_training.h"

namespace seeksim::test {
namespace {

using faults::FaultKind;
using faults::Mode;
using faults::Rule;

struct Target {
  int first_stage, last_stage;
  OpKind op;
  Phase phase;
};

const Target kTargets[] = {
    {3, 3, OpKind::param_gather, Phase::forward},       {3, 3, OpKind::param_gather, Phase::backward},
    {1, 3, OpKind::reduce_scatter, Phase::grad_reduce}, {1, 3, OpKind::peer_copy, Phase::grad_reduce},
    {1, 3, OpKind::all_gather, Phase::grad_reduce},     {1, 3, OpKind::publish, Phase::publish}};

std::vector<Rule> rules_for(const Target& target, int rank) {
  std::vector<Rule> rules;
  auto rule = [&](FaultKind kind, Mode mode) -> Rule& {
    Rule r;
    r.kind = kind;
    r.mode = mode;
    r.when.rank = rank;
    r.when.step = 1;
    r.when.op = target.op;
    r.when.phase = target.phase;
    rules.push_back(r);
    return rules.back();
  };
  for (const Mode mode : {Mode::before, Mode::during, Mode::after}) rule(FaultKind::rank_crash, mode);
  rule(FaultKind::collective_timeout, Mode::never);
  rule(FaultKind::collective_timeout, Mode::late).delay_ns = 3 * kSecond;
  rule(FaultKind::message_drop, Mode::unset);
  rule(FaultKind::message_corrupt, Mode::unset).bit = 77;
  return rules;
}

TrainPlan fault_plan(int stage) {
  TrainPlan plan = tiny_plan();
  plan.definition.steps = 4;
  plan.layout.micro_batch = 1;
  plan.recovery.watchdog_ns = 10 * kSecond;
  plan.recovery.agree_ns = 5 * kSecond;
  plan.layout.zero = zero_plan(stage);
  plan.layout.zero.reduce_bucket_elements = 1500;
  plan.layout.zero.persistence_threshold_elements = 64;
  plan.layout.zero.max_reuse_distance = 0;
  return plan;
}

void expect_survived(const TrainPlan& plan, const Trained& golden, const Rule& rule, int& recovered) {
  const sim::WorldPlan world = world_of(4);
  faults::FaultPlan faults({rule}, 1, {0, 0, 0, 0});
  const Simulated run = run_simulated(plan, world, [&](sim::World& w) {
    w.decorate([&](int rank, Seams inner) { return faults.decorate(rank, inner); });
  });
  const std::string where = "stage " + std::to_string(plan.layout.zero.stage) + ": " + faults::text(rule);
  ASSERT_EQ(run.world.end, sim::WorldEnd::finished) << where << "\n" << run.world.wait_for_graph;
  ASSERT_GT(faults.status()[0].fired, 0U) << where;
  ASSERT_GE(run.finished().size(), 3U) << where;
  for (const int r : run.finished()) {
    ASSERT_EQ(run.outcomes[std::size_t(r)]->state, golden.outcome.state) << where << ", rank " << r;
    ASSERT_EQ(run.observer.steps.at(r).size(), 4U) << where << ", rank " << r;
  }
  recovered += !run.observer.recovered_records.empty();
}

TEST(ZeroFaults, InEveryKindOfOperationCostAtMostOneRankAndNoBit) {
  int cases = 0, recovered = 0;
  for (const int stage : {1, 2, 3}) {
    const TrainPlan plan = fault_plan(stage);
    const Trained golden = run_alone(plan);
    for (const Target& target : kTargets) {
      if (stage < target.first_stage || stage > target.last_stage) continue;
      for (int rank = 0; rank < 4; ++rank) {
        for (const Rule& rule : rules_for(target, rank)) {
          expect_survived(plan, golden, rule, recovered);
          ++cases;
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
  EXPECT_EQ(cases, (4 + 4 + 6) * 4 * 7);
  EXPECT_GT(recovered, cases / 2);
}

}  // namespace
}  // namespace seeksim::test
