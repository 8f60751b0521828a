// Recovery policies that somebody adds: heeded where those they name can go on, else the run stops and says why.
#include "runtime/decide/decision.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>

namespace seeksim::runtime {
namespace {

using Ranks = std::vector<int>;
using Decide = std::function<Decision(const Failure&, const Decision& standard)>;

class Deciding final : public RecoveryRule {
 public:
  Deciding(Decide decide, RecoveryPolicy mechanism) : decide_(std::move(decide)), mechanism_(mechanism) {}
  RecoveryPolicy mechanism() const override { return mechanism_; }
  Decision decide(const Failure& failure, const Decision& standard) const override {
    return decide_(failure, standard);
  }

 private:
  Decide decide_;
  RecoveryPolicy mechanism_;
};

RecoveryPlan plan_of(Decide decide, RecoveryPolicy mechanism = RecoveryPolicy::rebuild_and_redo) {
  RecoveryPlan plan;
  plan.own_policy = "mine";
  plan.policy = mechanism;
  plan.rule = std::make_shared<Deciding>(std::move(decide), mechanism);
  return plan;
}

// Ranks 0, 1 and 3 answered, and rank 2 is dead; all have committed step 6.
Agreement one_is_dead(std::int64_t last_committed = 6) {
  Agreement agreement;
  agreement.members = {0, 1, 3};
  agreement.dead = {2};
  agreement.ballots.resize(3);
  for (Ballot& ballot : agreement.ballots) ballot.last_committed = last_committed;
  return agreement;
}

Decision decided(const RecoveryPlan& plan, const Agreement& agreement = one_is_dead()) {
  return decide(plan, agreement, {}, 7, {});
}

Decide going_on_with(Ranks ranks) {
  return [ranks](const Failure&, const Decision& standard) {
    Decision decision = standard;
    decision.survivors = ranks;
    return decision;
  };
}

TEST(RecoveryRule, DecidesWhoGoesOnAndTheOthersAreEvicted) {
  const Decision d = decided(plan_of(going_on_with({1, 0})));
  EXPECT_FALSE(d.stop) << d.why;
  EXPECT_EQ(d.survivors, (Ranks{0, 1}));
  EXPECT_EQ(d.evicted, (Ranks{2, 3}));
}

TEST(RecoveryRule, IsToldWhatTheBuiltInOneDecides) {
  decided(plan_of([](const Failure& failure, const Decision& standard) {
    EXPECT_EQ(failure.step, 7);
    EXPECT_EQ(failure.agreement.dead, (Ranks{2}));
    EXPECT_EQ(standard.survivors, (Ranks{0, 1, 3}));
    EXPECT_EQ(standard.evicted, (Ranks{2}));
    return standard;
  }));
}

TEST(RecoveryRule, MayStopTheRun) {
  const Decision d = decided(plan_of([](const Failure&, Decision decision) {
    decision.stop = true;
    decision.why = "it is Friday";
    return decision;
  }));
  EXPECT_TRUE(d.stop);
  EXPECT_EQ(d.why, "it is Friday");
}

TEST(RecoveryRule, SurvivorsThatCannotGoOnStopTheRun) {
  const auto why = [](Ranks survivors) {
    const Decision d = decided(plan_of(going_on_with(std::move(survivors))));
    return d.stop ? d.why : "goes on";
  };
  EXPECT_EQ(why({0, 2}), "the recovery policy mine goes on with rank 2, which is gone: ");
  EXPECT_EQ(why({0, 9}), "the recovery policy mine goes on with rank 9, which is gone: ");
  EXPECT_EQ(why({0, 0}), "the recovery policy mine names rank 0 twice: ");
  EXPECT_EQ(why({}), "the recovery policy mine leaves no rank: ");

  Agreement all = one_is_dead();
  all.dead.clear();
  const Decision fewer = decided(plan_of(going_on_with({0, 1}), RecoveryPolicy::retry_step), all);
  EXPECT_TRUE(fewer.stop);
  EXPECT_EQ(fewer.why, "the recovery policy mine retries the step, which needs every member: ");
}

TEST(RecoveryRule, IsNotAskedWhereMembersCommittedDifferentSteps) {
  bool asked = false;
  const RecoveryPlan plan = plan_of([&](const Failure&, const Decision& standard) {
    asked = true;
    return standard;
  });
  EXPECT_TRUE(decided(plan, one_is_dead(5)).stop);
  EXPECT_FALSE(asked);
}

}  // namespace
}  // namespace seeksim::runtime
