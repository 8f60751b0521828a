// Gradients that a library adds up. In place of the canonical sums, training uses its bits; next to them, the canonical
// run is not touched, and each of the library's sums is compared with the contract's.
#include <gtest/gtest.h>

#include <list>

#include "kernels/fast.h"
#include "runtime/launch/numeric_audit.h"
#include "tests/runtime/comm/library_transport.h"
#include "tests/support/simulated_training.h"

namespace seeksim::test {
namespace {

using kernels::FastSlip;

struct SumWay {
  int ranks = 2;
  int stage = 0;
  bool accumulates = false;
  bool offloads = false;
};

TrainPlan plan_of(const SumWay& way) {
  TrainPlan plan = tiny_plan(true);
  plan.layout.zero.stage = way.stage;
  plan.layout.zero.reduce_bucket_elements = 1000;
  plan.layout.micro_batch = way.accumulates ? 1 : 8;
  if (way.offloads) plan.layout.offload.optimizer.home = Home::host;
  return plan;
}

struct Summed {
  Simulated seen;
  AuditReport audit;
  std::uint64_t params() const { return seen.outcomes[0]->state.params; }
  float loss(std::size_t step) const { return seen.observer.steps.at(0).at(step).loss; }
};

Summed run_with(const SumWay& way, LibrarySums sums, FastSlip slip = FastSlip::none, bool forgets = false) {
  kernels::FastArithmetic fast({.tf32 = false, .slip = slip});
  NumericAudit audit(fast, false);
  sim::WorldPlan world = world_of(way.ranks);
  if (sums == LibrarySums::instead) world.arithmetic = &fast;
  if (sums == LibrarySums::beside) {
    world.arithmetic = &audit;
    world.listener = &audit;
  }
  const TrainPlan plan = plan_of(way);
  Summed run;
  run.seen.outcomes.resize(std::size_t(way.ranks));
  sim::World made(world);
  std::list<LibraryTransport> transports;  // gone before the devices whose memory they hold
  made.decorate([&](int rank, Seams inner) {
    LibraryTransport& transport = transports.emplace_back(inner, rank, sums, forgets);
    return Seams{inner.clock, inner.device, transport, inner.storage, inner.control};
  });
  run.seen.world =
      made.run([&](Rank& rank) { run.seen.outcomes[std::size_t(rank.id)] = train(rank, plan, run.seen.observer); });
  for (const sim::Race& race : run.seen.world.races) ADD_FAILURE() << "rank " << race.rank << ": " << race.text;
  run.audit = audit.report();
  EXPECT_EQ(run.seen.finished().size(), std::size_t(way.ranks));
  return run;
}

std::vector<SumWay> ways() {
  std::vector<SumWay> all;
  for (int stage = 0; stage <= 3; ++stage) {
    for (const int ranks : {2, 3, 4}) all.push_back({ranks, stage, stage % 2 == 0, false});
  }
  for (const int stage : {1, 3}) all.push_back({3, stage, true, true});
  all.push_back({3, 1, false, false});
  return all;
}

std::string text(const SumWay& way) {
  return "stage " + std::to_string(way.stage) + ", " + std::to_string(way.ranks) + " ranks" +
         (way.accumulates ? ", accumulating" : "") + (way.offloads ? ", offloaded" : "");
}

TEST(LibrarySums, InsteadOfTheCanonicalOnesTrainAllTheSame) {
  for (const SumWay& way : ways()) {
    SCOPED_TRACE(text(way));
    const Summed exact = run_with(way, LibrarySums::none), fast = run_with(way, LibrarySums::instead);
    ASSERT_TRUE(fast.seen.outcomes[0]);
    EXPECT_NE(fast.params(), exact.params());
    for (std::size_t step = 0; step < 3; ++step) EXPECT_NEAR(fast.loss(step), exact.loss(step), 1e-4);
    for (const std::optional<TrainOutcome>& outcome : fast.seen.outcomes)
      EXPECT_EQ(outcome->state.params, fast.params());
  }
}

TEST(LibrarySums, BesideTheCanonicalOnesLeaveNoTraceAndAreJudged) {
  for (const SumWay& way : ways()) {
    SCOPED_TRACE(text(way));
    const Summed exact = run_with(way, LibrarySums::none), beside = run_with(way, LibrarySums::beside);
    EXPECT_EQ(beside.params(), exact.params());
    EXPECT_GT(beside.audit.sums.ops, 0u);
    EXPECT_EQ(beside.audit.sums.over, 0u);
    // Two addends have only one order, and so do three samples at a time, which the tree takes as two and one.
    if (way.ranks == 4 || (way.ranks == 3 && !way.accumulates)) {
      EXPECT_GT(beside.audit.sums.worst, 0);
    }
  }
}

// The sums that are looked at are the library's: its mistakes are seen, and leave no trace either.
TEST(LibrarySums, AMistakeOfTheLibraryIsNamed) {
  for (const SumWay& way : ways()) {
    SCOPED_TRACE(text(way));
    const Summed exact = run_with(way, LibrarySums::none);
    const Summed forgets = run_with(way, LibrarySums::beside, FastSlip::none, true);
    ASSERT_TRUE(forgets.audit.first);
    EXPECT_STREQ(forgets.audit.first->what, "sum");
    EXPECT_EQ(forgets.params(), exact.params());
    const Summed rounds = run_with(way, LibrarySums::beside, FastSlip::ring_in_bf16);
    ASSERT_TRUE(rounds.audit.first) << "addends were rounded to bf16";
    EXPECT_STREQ(rounds.audit.first->what, "sum");
  }
}

}  // namespace
}  // namespace seeksim::test
