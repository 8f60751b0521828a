// Recovery: the decision as a function of agreements, and whole worlds in which ranks are killed at random instants.
#include "runtime/recovery/recovery.h"

#include <gtest/gtest.h>

#include "kernels/random.h"
#include "tests/support/simulated_training.h"

namespace seeksim::test {
namespace {

// ---- the decision -------------------------------------------------------------------------------------------------

Agreement agreement_of(std::vector<int> members, std::vector<int> dead, std::int64_t last_committed = 6) {
  Agreement a;
  a.members = std::move(members);
  a.dead = std::move(dead);
  a.ballots.resize(a.members.size());
  for (Ballot& b : a.ballots) b.last_committed = last_committed;
  return a;
}

Diagnosis link_diagnosis(std::vector<std::pair<int, int>> links, Verdict verdict = Verdict::link) {
  Diagnosis d;
  d.verdict = verdict;
  d.links = std::move(links);
  d.text = "the link";
  return d;
}

using Ranks = std::vector<int>;

TEST(RecoveryDecision, TheDeadAreEvictedAndTheOthersGoOn) {
  const Decision d = decide({}, agreement_of({0, 1, 3}, {2}), {}, 7, {});
  EXPECT_FALSE(d.stop);
  EXPECT_EQ(d.survivors, (Ranks{0, 1, 3}));
  EXPECT_EQ(d.evicted, (Ranks{2}));
}

TEST(RecoveryDecision, LateOnesAndMismatchesStayIn) {
  for (const Verdict v : {Verdict::joined_late, Verdict::mismatch, Verdict::local_failure, Verdict::none}) {
    Diagnosis diagnosis;
    diagnosis.verdict = v;
    diagnosis.culprits = {1};
    const Decision d = decide({}, agreement_of({0, 1}, {}), diagnosis, 7, {{7, diagnosis}});
    EXPECT_FALSE(d.stop);
    EXPECT_EQ(d.survivors, (Ranks{0, 1})) << name(v);
  }
}

TEST(RecoveryDecision, ALinkGetsASecondChanceThenItsSenderGoes) {
  const Diagnosis link = link_diagnosis({{1, 2}});
  EXPECT_TRUE(decide({}, agreement_of({0, 1, 2}, {}), link, 7, {}).evicted.empty());
  const Decision again = decide({}, agreement_of({0, 1, 2}, {}), link, 7, {{7, link}});
  EXPECT_EQ(again.evicted, (Ranks{1}));
  EXPECT_EQ(again.survivors, (Ranks{0, 2}));
  EXPECT_TRUE(decide({}, agreement_of({0, 1, 2}, {}), link, 7, {{6, link}}).evicted.empty()) << "another step";
  EXPECT_TRUE(decide({}, agreement_of({0, 1, 2}, {}), link, 7, {{7, link_diagnosis({{0, 2}})}}).evicted.empty())
      << "another link";
}

TEST(RecoveryDecision, TheEndThatAllAccusedLinksShareGoes) {
  const Diagnosis first = link_diagnosis({{0, 2}, {1, 2}});
  EXPECT_EQ(decide({}, agreement_of({0, 1, 2}, {}), first, 7, {{7, first}}).evicted, (Ranks{2}));
  EXPECT_EQ(rank_to_evict({{0, 1}, {2, 3}}), 0) << "no common end: the first sender";
}

TEST(RecoveryDecision, ASourceOfCorruptMessagesGoesTheSecondTime) {
  const Diagnosis a = link_diagnosis({{3, 1}}, Verdict::corrupt_message),
                  b = link_diagnosis({{3, 2}}, Verdict::corrupt_message);
  EXPECT_EQ(decide({}, agreement_of({0, 1, 2, 3}, {}), b, 7, {{7, a}}).evicted, (Ranks{3}));
}

TEST(RecoveryDecision, OnlyAVerdictAboutLinksAccusesThemAgain) {
  const auto evicted = [](const Diagnosis& now, const Diagnosis& before) {
    return decide({}, agreement_of({0, 1, 2, 3}, {}), now, 7, {{7, before}}).evicted;
  };
  const Diagnosis link = link_diagnosis({{3, 1}}), late = link_diagnosis({{3, 1}}, Verdict::joined_late);
  EXPECT_TRUE(evicted(late, link).empty());
  EXPECT_TRUE(evicted(link, late).empty());
  EXPECT_TRUE(evicted(link_diagnosis({}), link).empty()) << "no link is named";
  const Diagnosis corrupt = link_diagnosis({{3, 2}}, Verdict::corrupt_message);
  EXPECT_TRUE(evicted(corrupt, link).empty()) << "another link of one sender, and one was silent, the other corrupt";
  EXPECT_TRUE(evicted(link, corrupt).empty());
}

TEST(RecoveryDecision, WhoComputesOtherBitsGoesTheSecondTimeInAStep) {
  const auto erred = [](Ranks ranks) {
    Diagnosis d;
    d.verdict = Verdict::corrupt_compute;
    d.culprits = std::move(ranks);
    return d;
  };
  const Agreement all = agreement_of({0, 1, 2}, {});
  EXPECT_TRUE(decide({}, all, erred({1}), 7, {}).evicted.empty());
  EXPECT_TRUE(decide({}, all, erred({1}), 7, {{7, erred({2})}}).evicted.empty()) << "another rank";
  EXPECT_TRUE(decide({}, all, erred({1}), 7, {{6, erred({1})}}).evicted.empty()) << "another step";
  const Decision again = decide({}, all, erred({1, 2}), 7, {{7, erred({1})}, {7, {}}});
  EXPECT_EQ(again.evicted, (Ranks{1}));
  EXPECT_EQ(again.survivors, (Ranks{0, 2}));
  RecoveryPlan retry;
  retry.policy = RecoveryPolicy::retry_step;
  EXPECT_TRUE(decide(retry, all, erred({1}), 7, {{7, erred({1})}}).evicted.empty());
}

TEST(RecoveryDecision, PoliciesStopWhereTheySay) {
  RecoveryPlan stop;
  stop.policy = RecoveryPolicy::stop;
  EXPECT_TRUE(decide(stop, agreement_of({0, 1}, {}), {}, 7, {}).stop);
  RecoveryPlan retry;
  retry.policy = RecoveryPolicy::retry_step;
  EXPECT_FALSE(decide(retry, agreement_of({0, 1}, {}), {}, 7, {}).stop);
  const Decision gone = decide(retry, agreement_of({0}, {1}), {}, 7, {});
  EXPECT_TRUE(gone.stop);
  EXPECT_NE(gone.why.find("rank 1 is gone"), std::string::npos) << gone.why;
  const Diagnosis link = link_diagnosis({{0, 1}});
  EXPECT_TRUE(decide(retry, agreement_of({0, 1}, {}), link, 7, {{7, link}}).evicted.empty())
      << "retry_step evicts nobody";
}

TEST(RecoveryDecision, AttemptsAreCountedByStep) {
  RecoveryPlan plan;
  plan.attempts_max = 2;
  EXPECT_FALSE(decide(plan, agreement_of({0, 1}, {}), {}, 7, {{7, {}}}).stop);
  EXPECT_FALSE(decide(plan, agreement_of({0, 1}, {}), {}, 7, {{6, {}}, {6, {}}}).stop);
  const Decision d = decide(plan, agreement_of({0, 1}, {}), {}, 7, {{7, {}}, {7, {}}});
  EXPECT_TRUE(d.stop);
  EXPECT_NE(d.why.find("step 7 failed 3 times"), std::string::npos) << d.why;
}

TEST(RecoveryDecision, RanksThatCommittedDifferentStepsStop) {
  Agreement a = agreement_of({0, 1}, {});
  a.ballots[1].last_committed = 7;
  EXPECT_TRUE(decide({}, a, {}, 7, {}).stop);
}

TEST(RecoveryDecision, TheLastRankIsNeverEvicted) {
  const Diagnosis link = link_diagnosis({{0, 1}});
  EXPECT_EQ(decide({}, agreement_of({0}, {1}), link, 7, {{7, link}}).survivors, (Ranks{0}));
}

// ---- whole worlds ---------------------------------------------------------------------------------------------------

std::uint32_t draw(std::uint64_t seed, std::uint32_t what) { return kernels::philox({what, 0, 0, 0}, seed)[0]; }

TrainPlan quick_plan() {
  TrainPlan plan = tiny_plan();
  plan.definition.model.layers = 0;
  plan.definition.steps = 4;
  plan.layout.micro_batch = 1;
  plan.recovery.watchdog_ns = 10 * kSecond;
  plan.recovery.agree_ns = kSecond;
  return plan;
}

// Each rank that finishes has the golden's state; everyone who was not killed finishes.
void expect_golden_after_kills(const TrainPlan& plan, const Trained& golden, sim::WorldPlan world, TimeNs span,
                               int kills, int& recoveries) {
  std::vector<bool> killed(std::size_t(world.ranks()), false);
  const Simulated run = run_simulated(plan, world, [&](sim::World& w) {
    for (int k = 0; k < kills; ++k) {
      const int rank = int(draw(world.seed, std::uint32_t(2 * k)) % std::uint32_t(world.ranks()));
      const TimeNs when = TimeNs(draw(world.seed, std::uint32_t(2 * k + 1))) % span;
      w.kill_at(rank, when, [&killed, rank] { killed[std::size_t(rank)] = true; });
    }
  });
  const std::string where = "seed " + std::to_string(world.seed) + ", network " + world.network;
  ASSERT_EQ(run.world.end, sim::WorldEnd::finished) << where << "\n" << run.world.wait_for_graph;
  for (int r = 0; r < world.ranks(); ++r) {
    if (killed[std::size_t(r)]) continue;
    ASSERT_TRUE(run.outcomes[std::size_t(r)]) << where << " rank " << r << ": " << run.world.ranks[std::size_t(r)].what;
    const TrainOutcome& outcome = *run.outcomes[std::size_t(r)];
    ASSERT_EQ(outcome.ending, Ending::finished) << where << " rank " << r << ": " << outcome.why;
    ASSERT_EQ(outcome.state, golden.outcome.state) << where << " rank " << r;
    ASSERT_EQ(run.observer.steps.at(r).size(), golden.observer.steps.at(0).size())
        << where << ": a step is committed once";
  }
  recoveries += !run.observer.recovered_records.empty();
  for (const RecoveryRecord& rec : run.observer.recovered_records) {
    ASSERT_LE(rec.detected_ns, rec.agreed_ns) << where;
    ASSERT_LE(rec.agreed_ns, rec.rebuilt_ns) << where;
    ASSERT_LT(rec.rebuilt_ns, rec.resumed_ns) << where;
    ASSERT_EQ(rec.steps_lost, 0);
  }
}

void expect_kills_survived(std::uint64_t seeds) {
  const TrainPlan plan = quick_plan();
  const Trained golden = run_alone(plan);
  const TimeNs span = run_simulated(plan, world_of(4)).world.virtual_ns;
  int recoveries = 0;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    sim::WorldPlan world = world_of(2 + int(seed % 4), seed % 3 != 0, seed);
    world.network = seed % 2 ? "ib" : "tcp";
    expect_golden_after_kills(plan, golden, world, span, 1 + int(seed % 3), recoveries);
    if (testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GT(recoveries, int(seeds / 2)) << "most kills must have been noticed, else nothing was tested";
}

TEST(Recovery, KillsAtRandomInstantsLeaveTheGoldensBits) { expect_kills_survived(1000); }
TEST(RecoveryNightly, KillsAtRandomInstantsLeaveTheGoldensBits) { expect_kills_survived(100000); }

TEST(Recovery, KillsDuringARecoveryAreSurvivedToo) {
  const TrainPlan plan = quick_plan();
  const Trained golden = run_alone(plan);
  // The first kill comes early; the second somewhere in the watchdog's wait, the agreement, the rebuilding.
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    std::vector<bool> killed(4, false);
    const Simulated run = run_simulated(plan, world_of(4, seed % 2 == 0, seed), [&](sim::World& w) {
      const int first = int(draw(seed, 0) % 4), second = int((std::uint32_t(first) + 1 + draw(seed, 1) % 3) % 4);
      w.kill_at(first, 100 * kMicrosecond, [&killed, first] { killed[std::size_t(first)] = true; });
      const TimeNs when = 9 * kSecond + TimeNs(draw(seed, 2)) % (3 * kSecond);
      w.kill_at(second, when, [&killed, second] { killed[std::size_t(second)] = true; });
    });
    ASSERT_EQ(run.world.end, sim::WorldEnd::finished) << "seed " << seed << "\n" << run.world.wait_for_graph;
    for (std::size_t r = 0; r < 4; ++r) {
      if (killed[r]) continue;
      ASSERT_TRUE(run.outcomes[r] && run.outcomes[r]->ending == Ending::finished) << "seed " << seed << " rank " << r;
      ASSERT_EQ(run.outcomes[r]->state, golden.outcome.state) << "seed " << seed << " rank " << r;
    }
  }
}

TEST(Recovery, ThePolicyStopEndsAllLivingRanksWithTheReason) {
  TrainPlan plan = quick_plan();
  plan.recovery.policy = RecoveryPolicy::stop;
  const Simulated run = run_simulated(plan, world_of(3), [](sim::World& w) { w.kill_at(1, 50 * kMicrosecond, [] {}); });
  for (const std::size_t r : {0U, 2U}) {
    ASSERT_TRUE(run.outcomes[r]);
    EXPECT_EQ(run.outcomes[r]->ending, Ending::stopped);
    EXPECT_NE(run.outcomes[r]->why.find("policy is to stop"), std::string::npos);
    EXPECT_NE(run.outcomes[r]->why.find("rank 1"), std::string::npos) << run.outcomes[r]->why;
  }
}

}  // namespace
}  // namespace seeksim::test
