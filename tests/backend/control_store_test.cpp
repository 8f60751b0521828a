// The decisions of the control plane's store, claim by claim as for the simulator's centre
// (tests/sim/control_test.cpp).
#include <gtest/gtest.h>

#include "runtime/backend/control/control_store.h"

namespace seeksim::runtime {
namespace {

class Store : public testing::Test, public ControlStore::Outbox {
 protected:
  void answer(int rank, const Answer& given) override { answers[rank].push_back(given); }
  void revoked(int rank, std::uint32_t epoch) override { revokes.push_back({rank, epoch}); }
  void story(int rank, const std::string& text) override { stories.push_back({rank, text}); }

  static PollKey vote(std::int64_t step, std::uint32_t epoch = 0) { return {epoch, OpKind::vote, step, 0, 0}; }
  static PollKey agree(std::uint32_t epoch = 0) { return {epoch, OpKind::agree, 0, 0, 0}; }
  void say(int rank, const PollKey& key, TimeNs now = 0, TimeNs timeout = kSecond) {
    store.ballot(rank, key, Ballot{}, now, timeout);
  }
  Answer::Kind last(int rank) { return answers[rank].empty() ? Answer::Kind::count_ : answers[rank].back().kind; }
  const Agreement& agreed(int rank) { return answers[rank].back().agreement; }

  std::map<int, std::vector<Answer>> answers;
  std::vector<std::pair<int, std::uint32_t>> revokes;
  std::vector<std::pair<int, std::string>> stories;
  ControlStore store{3, 5 * kSecond, *this};
};

using Kind = Answer::Kind;

TEST_F(Store, DecidesWhenAllHaveSpokenAndTellsAllTheSame) {
  say(0, vote(4));
  say(2, vote(4));
  EXPECT_TRUE(answers.empty());
  say(1, vote(4));
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(last(rank), Kind::decided);
    EXPECT_EQ(agreed(rank).members, (std::vector<int>{0, 1, 2}));
    EXPECT_TRUE(agreed(rank).dead.empty());
  }
}

TEST_F(Store, AtTheDeadlineWhoDidNotAnswerIsDeadAndFenced) {
  say(0, vote(4));
  say(1, vote(4), kSecond / 2);
  store.tick(kSecond - 1);
  EXPECT_TRUE(answers.empty());
  store.tick(kSecond);
  EXPECT_EQ(agreed(0).dead, (std::vector<int>{2}));
  EXPECT_TRUE(store.fenced(2));
  say(2, vote(4), kSecond);
  EXPECT_EQ(last(2), Kind::fenced);
  say(2, vote(5), kSecond);
  EXPECT_EQ(last(2), Kind::fenced);
}

TEST_F(Store, ADeadProcessIsNotWaitedFor) {
  say(0, vote(1));
  say(1, vote(1));
  store.died(2);
  EXPECT_EQ(agreed(1).dead, (std::vector<int>{2}));
  EXPECT_TRUE(agreed(1).silent.empty());
}

TEST_F(Store, WhoLeftInOrderIsNotDead) {
  store.done(2);
  store.died(2);
  EXPECT_TRUE(stories.empty());
}

TEST_F(Store, ARevokeCutsAVoteShortForAllAndAnAgreementForNobody) {
  say(0, vote(1));
  say(1, agree());
  store.revoke(2, 0);
  EXPECT_EQ(last(0), Kind::cut_short);
  EXPECT_EQ(last(1), Kind::count_);
  EXPECT_EQ(revokes, (std::vector<std::pair<int, std::uint32_t>>{{0, 0}, {1, 0}}));
  say(1, vote(1));
  EXPECT_EQ(last(1), Kind::cut_short);  // a later vote gets the same answer
  say(0, agree());
  say(2, agree());
  EXPECT_EQ(last(0), Kind::decided);
}

TEST_F(Store, ARevokeAfterTheDecisionComesTooLateForAll) {
  for (int rank = 0; rank < 3; ++rank) say(rank, vote(1));
  store.revoke(2, 0);
  EXPECT_EQ(answers[0].size(), 1u);
  EXPECT_EQ(last(0), Kind::decided);
}

TEST_F(Store, AnEpochIsEnteredWithOneListOfMembers) {
  EXPECT_EQ(store.enter(0, 1, {1, 0}), "");
  EXPECT_EQ(store.enter(1, 1, {0, 1}), "");
  EXPECT_NE(store.enter(2, 1, {0, 1, 2}), "");
  say(0, vote(1, 1));
  say(1, vote(1, 1));
  EXPECT_EQ(last(0), Kind::decided);
  EXPECT_THROW(store.enter(0, 2, {7}), Malformed);
  EXPECT_THROW(say(0, vote(1, 9)), Malformed);
}

TEST_F(Store, WhoSendsNoHeartbeatsIsNamedFencedAndItsVoteDoesNotCount) {
  for (int rank = 0; rank < 3; ++rank) store.beat(rank, 0);
  say(2, agree(), 0, kForever);
  for (const int rank : {0, 1}) store.beat(rank, 4 * kSecond);
  store.tick(5 * kSecond);
  EXPECT_TRUE(store.silent().empty());
  store.tick(5 * kSecond + 1);
  EXPECT_EQ(store.silent(), (std::vector<int>{2}));
  EXPECT_EQ(revokes.size(), 3u);  // itself too
  say(0, agree());
  say(1, agree());
  EXPECT_EQ(agreed(0).dead, (std::vector<int>{2}));
  EXPECT_EQ(agreed(0).silent, (std::vector<int>{2}));
  say(2, agree());
  EXPECT_EQ(last(2), Kind::fenced);
}

TEST_F(Store, WhoNeverSentAHeartbeatOrLeftIsNotMissed) {
  store.beat(0, 0);
  store.beat(1, 0);
  store.done(1);
  store.beat(0, 60 * kSecond);
  store.tick(60 * kSecond);
  EXPECT_TRUE(store.silent().empty());
}

}  // namespace
}  // namespace seeksim::runtime
