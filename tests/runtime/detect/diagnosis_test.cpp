// The culprit is named from ballots alone: the planted one is found, in any order of answers, and innocents never are.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "runtime/detect/diagnosis.h"
#include "runtime/seams/rank_names.h"

namespace seeksim::runtime {

namespace {

constexpr TimeNs kWatchdog = 600 * kSecond;

// n ranks in step 7, all well, before anything is planted.
Agreement healthy(int n) {
  Agreement agreement;
  for (int rank = 0; rank < n; ++rank) {
    Ballot ballot;
    ballot.last_committed = 6;
    ballot.last_joined = 16;
    agreement.members.push_back(rank);
    agreement.ballots.push_back(ballot);
  }
  return agreement;
}

// This rank waits in all_reduce #sequence, until its watchdog or a revoke ended it.
void wait_in(Ballot& ballot, std::uint64_t sequence, int missing_peer, bool missing_is_sender = true) {
  ballot.ok = false;
  ballot.error = ErrorKind::revoked;
  ballot.last_joined = std::max(ballot.last_joined, sequence);
  ballot.stuck_sequence = sequence;
  ballot.stuck_kind = OpKind::all_reduce;
  ballot.missing_peer = missing_peer;
  ballot.missing_is_sender = missing_is_sender;
  ballot.joined_ns = kSecond;
  ballot.detected_ns = kSecond + kWatchdog + 5;
}

void watchdog_fires_at(Ballot& ballot) {
  ballot.error = ErrorKind::timeout;
  ballot.detected_ns = kSecond + kWatchdog;
}

void remove(Agreement& agreement, int rank) {
  const auto at = std::find(agreement.members.begin(), agreement.members.end(), rank) - agreement.members.begin();
  agreement.members.erase(agreement.members.begin() + at);
  agreement.ballots.erase(agreement.ballots.begin() + at);
  agreement.dead.push_back(rank);
}

// Rank `culprit` never came; the others wait in #16. known: whether the transport could say for whom.
Agreement hung(int n, int culprit, bool known) {
  Agreement agreement = healthy(n);
  remove(agreement, culprit);
  for (Ballot& ballot : agreement.ballots) wait_in(ballot, 16, known ? culprit : -1);
  watchdog_fires_at(agreement.ballots.front());
  return agreement;
}

Agreement shuffled(const Agreement& given, unsigned seed) {
  std::vector<std::size_t> order(given.members.size());
  std::iota(order.begin(), order.end(), 0);
  std::mt19937 random(seed);
  std::shuffle(order.begin(), order.end(), random);
  Agreement other = given;
  for (std::size_t i = 0; i < order.size(); ++i) {
    other.members[i] = given.members[order[i]];
    other.ballots[i] = given.ballots[order[i]];
  }
  std::shuffle(other.dead.begin(), other.dead.end(), random);
  return other;
}

rc::Gen<Ballot> any_ballot() {
  return rc::gen::exec([] {
    Ballot b;
    b.ok = *rc::gen::arbitrary<bool>();
    b.error = ErrorKind(*rc::gen::inRange(0, int(ErrorKind::count_) + 1));
    b.last_committed = *rc::gen::inRange(-1, 4);
    b.last_joined = std::uint64_t(*rc::gen::inRange(0, 5));
    b.stuck_sequence = std::uint64_t(*rc::gen::inRange(0, 5));
    b.stuck_kind = OpKind(*rc::gen::inRange(0, int(OpKind::count_) + 1));
    b.missing_peer = *rc::gen::inRange(-1, 8);
    b.missing_is_sender = *rc::gen::arbitrary<bool>();
    b.joined_ns = *rc::gen::inRange(-1, 10);
    b.detected_ns = *rc::gen::inRange(0, 10);
    return b;
  });
}

Agreement any_agreement() {
  const int n = *rc::gen::inRange(1, 8);
  Agreement agreement;
  for (int rank = 0; rank < n; ++rank) {
    if (rank + 1 < n && *rc::gen::inRange(0, 5) == 0) {
      agreement.dead.push_back(rank);
      continue;
    }
    agreement.members.push_back(rank);
    agreement.ballots.push_back(*any_ballot());
  }
  return agreement;
}

}  // namespace

TEST(Diagnosis, NamesTheRankThatNeverJoined) {
  const Diagnosis d = diagnose(hung(8, 5, false));
  EXPECT_EQ(d.verdict, Verdict::never_joined);
  EXPECT_EQ(d.culprits, (std::vector<int>{5}));
  EXPECT_EQ(d.sequence, 16u);
  EXPECT_EQ(d.op, OpKind::all_reduce);
  EXPECT_EQ(d.first_detected_ns, kSecond + kWatchdog);
  EXPECT_EQ(d.text, "rank 5 never joined all_reduce #16 of step 7 (7 ranks waited 600 s)");
}

TEST(Diagnosis, CallsItDiedWhereTheTransportSaidSo) {
  Agreement agreement = hung(8, 3, true);
  agreement.ballots[2].error = ErrorKind::remote_error;
  agreement.ballots[2].detected_ns = 31 * kSecond;
  const Diagnosis d = diagnose(agreement);
  EXPECT_EQ(d.verdict, Verdict::died);
  EXPECT_EQ(d.culprits, (std::vector<int>{3}));
}

// It is ahead of the others, and its oldest unfinished operation is one that most have not come to yet.
TEST(Diagnosis, AClosedConnectionTellsOfADeathWhateverWhoSawItHadUnderWay) {
  Agreement agreement = healthy(16);
  remove(agreement, 9);
  wait_in(agreement.ballots[4], 17, 0);
  agreement.ballots[4].error = ErrorKind::remote_error;
  agreement.ballots[4].detected_ns = 2 * kSecond;
  for (Ballot& ballot : agreement.ballots) {
    if (ballot.error == ErrorKind::remote_error) continue;
    ballot.error = ErrorKind::revoked;
    ballot.detected_ns = 3 * kSecond;
  }
  const Diagnosis d = diagnose(agreement);
  EXPECT_EQ(d.verdict, Verdict::died) << d.text;
  EXPECT_EQ(d.culprits, (std::vector<int>{9}));
}

// 0 waits for 1, and 1, in the same operation, cannot say for whom it waits: for 2, which is gone.
TEST(Diagnosis, WhoCannotSayForWhomItWaitsMayWaitForTheDead) {
  Agreement agreement = healthy(4);
  remove(agreement, 2);
  wait_in(agreement.ballots[0], 16, 1);
  wait_in(agreement.ballots[1], 16, -1);
  watchdog_fires_at(agreement.ballots[0]);
  const Diagnosis d = diagnose(agreement);
  EXPECT_EQ(d.verdict, Verdict::never_joined) << d.text;
  EXPECT_EQ(d.culprits, (std::vector<int>{2}));
}

TEST(Diagnosis, OnlyOneToZeroWasCutYetEverybodyBlamesZero) {
  Agreement agreement = healthy(4);
  wait_in(agreement.ballots[0], 16, 1);
  for (const std::size_t rank : {1, 2, 3}) wait_in(agreement.ballots[rank], 17, 0);
  watchdog_fires_at(agreement.ballots[0]);
  const Diagnosis d = diagnose(agreement);
  EXPECT_EQ(d.verdict, Verdict::link);
  EXPECT_EQ(d.links, (std::vector<std::pair<int, int>>{{1, 0}}));
  EXPECT_EQ(d.culprits, (std::vector<int>{1, 0})) << "the sender's end first";
  EXPECT_EQ(d.sequence, 16u);
  EXPECT_EQ(d.text,
            "no message got from rank 1 to 0 in all_reduce #16 of step 7 (1 rank waited 600 s), though both joined it");
}

TEST(Diagnosis, ASenderWhoseMessageWasNotTakenNamesTheSameLink) {
  Agreement agreement = healthy(4);
  wait_in(agreement.ballots[0], 16, 1, true);
  wait_in(agreement.ballots[1], 16, 0, false);
  watchdog_fires_at(agreement.ballots[1]);
  const Diagnosis d = diagnose(agreement);
  EXPECT_EQ(d.links, (std::vector<std::pair<int, int>>{{1, 0}}));
}

TEST(Diagnosis, ALinkCutBothWaysNamesBothEnds) {
  Agreement agreement = healthy(4);
  wait_in(agreement.ballots[1], 16, 2);
  wait_in(agreement.ballots[2], 16, 1);
  agreement.ballots[2].detected_ns -= 1;
  const Diagnosis d = diagnose(agreement);
  EXPECT_EQ(d.links, (std::vector<std::pair<int, int>>{{1, 2}, {2, 1}}));
  EXPECT_EQ(d.culprits, (std::vector<int>{1, 2})) << "the sender of the earliest complaint first";
}

TEST(Diagnosis, SeveralLinksNameTheRankThatTheyShare) {
  Agreement agreement = healthy(5);
  wait_in(agreement.ballots[0], 16, 3);
  wait_in(agreement.ballots[1], 16, 3);
  wait_in(agreement.ballots[3], 16, 4);
  const Diagnosis d = diagnose(agreement);
  EXPECT_EQ(d.verdict, Verdict::link);
  EXPECT_EQ(d.culprits, (std::vector<int>{3}));
}

TEST(Diagnosis, LinksWithoutACommonRankNameTheSenderOfTheEarliest) {
  Agreement agreement = healthy(4);
  wait_in(agreement.ballots[0], 16, 2);
  wait_in(agreement.ballots[1], 16, 3);
  agreement.ballots[1].detected_ns -= 1;
  EXPECT_EQ(diagnose(agreement).culprits, (std::vector<int>{3}));
}

TEST(Diagnosis, ALivingRankThatIsBehindCameLate) {
  Agreement agreement = healthy(4);
  for (const std::size_t rank : {0, 1, 3}) wait_in(agreement.ballots[rank], 16, -1);
  agreement.ballots[2].last_joined = 15;
  agreement.ballots[2].error = ErrorKind::revoked;
  const Diagnosis d = diagnose(agreement);
  EXPECT_EQ(d.verdict, Verdict::joined_late);
  EXPECT_EQ(d.culprits, (std::vector<int>{2}));
}

TEST(Diagnosis, ARankThatCameAfterTheWatchdogCameLateThoughItIsStuckLikeTheOthers) {
  Agreement agreement = healthy(4);
  for (Ballot& ballot : agreement.ballots) wait_in(ballot, 16, -1);
  watchdog_fires_at(agreement.ballots[0]);
  agreement.ballots[2].joined_ns = kWatchdog + 10 * kSecond;
  agreement.ballots[2].detected_ns = kWatchdog + 10 * kSecond;
  const Diagnosis d = diagnose(agreement);
  EXPECT_EQ(d.verdict, Verdict::joined_late);
  EXPECT_EQ(d.culprits, (std::vector<int>{2}));
  EXPECT_EQ(d.text, "rank 2 is alive but came too late to all_reduce #16 of step 7 (3 ranks waited 600 s)");
}

// Its first half of a sum is done, it is late for the second, and all that it says is which sum it did not finish.
TEST(Diagnosis, WhoKnowsNobodyToWaitForIsNotTheEarliestVictim) {
  Agreement agreement = healthy(4);
  for (const std::size_t rank : {0, 2, 3}) wait_in(agreement.ballots[rank], 17, 1);
  watchdog_fires_at(agreement.ballots[3]);
  wait_in(agreement.ballots[1], 16, -1);
  agreement.ballots[1].detected_ns = kWatchdog + 20 * kSecond;
  const Diagnosis d = diagnose(agreement);
  EXPECT_EQ(d.verdict, Verdict::joined_late);
  EXPECT_EQ(d.culprits, (std::vector<int>{1}));
  EXPECT_EQ(d.sequence, 17u);
}

TEST(Diagnosis, WhoTookLongToNoticeTheRevokeWasNotThereWhenTheOthersBuiltACommunicator) {
  Agreement agreement = healthy(4);
  for (Ballot& ballot : agreement.ballots) {
    ballot = {};
    ballot.error = ErrorKind::revoked;
    ballot.stuck_kind = OpKind::comm_create;
    ballot.detected_ns = kWatchdog + 5;
  }
  watchdog_fires_at(agreement.ballots[2]);
  agreement.ballots[2].detected_ns = kWatchdog;
  agreement.ballots[0].detected_ns = kWatchdog + 25 * kSecond;
  const Diagnosis d = diagnose(agreement);
  EXPECT_EQ(d.verdict, Verdict::joined_late);
  EXPECT_EQ(d.culprits, (std::vector<int>{0}));
  EXPECT_EQ(d.text, "rank 0 is alive but came too late to comm_create of step 0 (3 ranks waited)");
}

TEST(Diagnosis, ACorruptMessageNamesItsSender) {
  Agreement agreement = healthy(4);
  for (Ballot& ballot : agreement.ballots) wait_in(ballot, 16, -1);
  agreement.ballots[2].error = ErrorKind::corrupt;
  agreement.ballots[2].missing_peer = 1;
  const Diagnosis d = diagnose(agreement);
  EXPECT_EQ(d.verdict, Verdict::corrupt_message);
  EXPECT_EQ(d.culprits, (std::vector<int>{1}));
  EXPECT_EQ(d.links, (std::vector<std::pair<int, int>>{{1, 2}}));
  EXPECT_EQ(d.text, "the message of rank 1 to rank 2 in all_reduce #16 of step 7 arrived corrupt");
}

TEST(Diagnosis, TheOneWhoBroughtAnotherOperationIsNamedNotTheOneWhoNoticed) {
  Agreement agreement = healthy(4);
  for (Ballot& ballot : agreement.ballots) wait_in(ballot, 16, -1);
  agreement.ballots[3].stuck_kind = OpKind::all_gather;
  agreement.ballots[3].error = ErrorKind::mismatch;
  agreement.ballots[3].missing_peer = 0;
  const Diagnosis d = diagnose(agreement);
  EXPECT_EQ(d.verdict, Verdict::mismatch);
  EXPECT_EQ(d.culprits, (std::vector<int>{3}));
  EXPECT_EQ(d.op, OpKind::all_reduce);
}

// All brought operations of one name; the rank that agrees with no other is the odd one.
TEST(Diagnosis, TheOneInMostPairsThatDoNotAgreeIsOdd) {
  Agreement agreement = healthy(5);
  for (const auto& [rank, other] : {std::pair{2, 0}, std::pair{0, 2}, std::pair{4, 2}}) {
    wait_in(agreement.ballots[std::size_t(rank)], 16, other);
    agreement.ballots[std::size_t(rank)].error = ErrorKind::mismatch;
  }
  agreement.ballots[2].detected_ns = kSecond;  // it is the first to complain
  const Diagnosis d = diagnose(agreement);
  EXPECT_EQ(d.verdict, Verdict::mismatch);
  EXPECT_EQ(d.culprits, (std::vector<int>{2})) << d.text;
}

// Stage 0 lost rank 2, for whom 0 waits; 1 and 3 of another communicator only suffer.
TEST(Diagnosis, ADeadRankIsNamedThoughTheEarliestWaitIsElsewhere) {
  Agreement agreement = healthy(4);
  remove(agreement, 2);
  wait_in(agreement.ballots[0], 13, 2);
  agreement.ballots[0].stuck_in = 7;
  agreement.ballots[0].joined_ns = 2 * kSecond;
  wait_in(agreement.ballots[2], 14, 1);
  agreement.ballots[2].stuck_in = 8;
  const Diagnosis d = diagnose(agreement);
  EXPECT_EQ(d.culprits, (std::vector<int>{2})) << d.text;
  EXPECT_TRUE(d.links.empty());
}

TEST(Diagnosis, ARankThatFailsByItselfIsTheCauseOfAllWaiting) {
  Agreement agreement = healthy(4);
  for (Ballot& ballot : agreement.ballots) wait_in(ballot, 16, 0);
  agreement.ballots[0] = {};
  agreement.ballots[0].error = ErrorKind::out_of_memory;
  agreement.ballots[0].last_joined = 15;
  agreement.ballots[0].last_committed = 6;
  const Diagnosis d = diagnose(agreement);
  EXPECT_EQ(d.verdict, Verdict::local_failure);
  EXPECT_EQ(d.culprits, (std::vector<int>{0}));
  EXPECT_EQ(d.text, "rank 0 failed: out_of_memory, in step 7");
}

TEST(Diagnosis, WhoComputedOtherBitsTheSecondTimeNamesItselfAndTheOthersThemAll) {
  Agreement agreement = healthy(4);
  for (Ballot& ballot : agreement.ballots) {
    ballot.error = ErrorKind::corrupt_compute;
    ballot.missing_peer = 1;
  }
  EXPECT_EQ(diagnose(agreement).culprits, (std::vector<int>{1}));
  agreement.ballots[3].missing_peer = 3;
  const Diagnosis d = diagnose(agreement);
  EXPECT_EQ(d.verdict, Verdict::corrupt_compute);
  EXPECT_EQ(d.culprits, (std::vector<int>{1, 3}));
  EXPECT_EQ(d.text, "ranks 1 and 3 computed a micro-batch twice and got different bits, in step 7");
}

TEST(Diagnosis, WhoDidNotAnswerAVoteIsNamedThoughNobodyIsStuckInACollective) {
  Agreement agreement = healthy(4);
  remove(agreement, 2);
  const Diagnosis d = diagnose(agreement);
  EXPECT_EQ(d.verdict, Verdict::never_joined);
  EXPECT_EQ(d.culprits, (std::vector<int>{2}));
}

TEST(Diagnosis, ADeadRankThatNobodyWaitedForIsNotBlamedForALink) {
  Agreement agreement = healthy(5);
  wait_in(agreement.ballots[0], 16, 1);
  for (const std::size_t rank : {1, 2, 4}) wait_in(agreement.ballots[rank], 17, 0);
  remove(agreement, 3);
  EXPECT_EQ(diagnose(agreement).culprits, (std::vector<int>{1, 0}));
}

TEST(Diagnosis, ManyRanksAreNamedByTheRun) {
  EXPECT_EQ(rank_names({3}), "rank 3");
  EXPECT_EQ(rank_names({0, 1, 2, 7}), "ranks 0, 1, 2 and 7");
  EXPECT_EQ(rank_names({0, 1, 2, 3, 4, 6, 8, 9, 10}), "ranks 0-4, 6 and 8-10");
}

TEST(Diagnosis, SaysSoWhenNothingFailedOrNothingIsKnown) {
  EXPECT_EQ(diagnose(healthy(4)).verdict, Verdict::none);
  EXPECT_EQ(diagnose(healthy(4)).text, "nothing failed");
  Agreement agreement = healthy(4);
  for (Ballot& ballot : agreement.ballots) wait_in(ballot, 16, -1);
  EXPECT_EQ(diagnose(agreement).verdict, Verdict::none);
  EXPECT_EQ(
      diagnose(agreement).text,
      "all ranks joined all_reduce #16 of step 7 (4 ranks waited 600 s) and no rank knows whose message is missing");
}

RC_GTEST_PROP(DiagnosisProperty, TheOrderOfBallotsDoesNotMatter, (unsigned seed)) {
  const Agreement agreement = any_agreement();
  const Diagnosis one = diagnose(agreement);
  const Diagnosis other = diagnose(shuffled(agreement, seed));
  RC_ASSERT(one.verdict == other.verdict);
  RC_ASSERT(one.culprits == other.culprits);
  RC_ASSERT(one.links == other.links);
  RC_ASSERT(one.sequence == other.sequence);
  RC_ASSERT(one.op == other.op);
  RC_ASSERT(one.text == other.text);
}

RC_GTEST_PROP(DiagnosisProperty, EveryAnswerIsWellFormed, ()) {
  const Agreement agreement = any_agreement();
  const Diagnosis d = diagnose(agreement);
  RC_ASSERT(!d.text.empty());
  RC_ASSERT((d.verdict == Verdict::none) == (d.culprits.empty()) || d.verdict == Verdict::corrupt_message ||
            d.verdict == Verdict::mismatch || d.verdict == Verdict::diverged);
  RC_ASSERT(d.links.empty() || d.verdict == Verdict::link || d.verdict == Verdict::corrupt_message);
  std::vector<int> unique = d.culprits;
  std::sort(unique.begin(), unique.end());
  RC_ASSERT(std::adjacent_find(unique.begin(), unique.end()) == unique.end());
  if (d.verdict == Verdict::never_joined || d.verdict == Verdict::died) RC_ASSERT(d.culprits == agreement.dead);
}

RC_GTEST_PROP(DiagnosisProperty, APlantedHangIsFound, (bool known)) {
  const int n = *rc::gen::inRange(2, 33);
  const int culprit = *rc::gen::inRange(0, n);
  const Diagnosis d = diagnose(hung(n, culprit, known));
  RC_ASSERT(d.verdict == Verdict::never_joined);
  RC_ASSERT(d.culprits == (std::vector<int>{culprit}));
}

// One direction of one link is cut in #16. Its receiver stays there; all others go on and wait for it in #17, and any
// of them may be the first whose watchdog fires.
RC_GTEST_PROP(DiagnosisProperty, APlantedCutIsFoundWhoeverTimesOutFirst, ()) {
  const int n = *rc::gen::inRange(2, 33);
  const int from = *rc::gen::inRange(0, n);
  const int to = (from + *rc::gen::inRange(1, n)) % n;
  Agreement agreement = healthy(n);
  for (int rank = 0; rank < n; ++rank) {
    Ballot& ballot = agreement.ballots[std::size_t(rank)];
    wait_in(ballot, rank == to ? 16 : 17, rank == to ? from : to);
  }
  watchdog_fires_at(agreement.ballots[std::size_t(*rc::gen::inRange(0, n))]);
  const Diagnosis d = diagnose(agreement);
  RC_ASSERT(d.verdict == Verdict::link);
  RC_ASSERT(d.links == (std::vector<std::pair<int, int>>{{from, to}}));
  RC_ASSERT(d.culprits == (std::vector<int>{from, to}));
}

RC_GTEST_PROP(DiagnosisProperty, APlantedLateRankIsFound, (bool stuck_like_the_others)) {
  const int n = *rc::gen::inRange(2, 33);
  const auto late = std::size_t(*rc::gen::inRange(0, n));
  Agreement agreement = healthy(n);
  for (Ballot& ballot : agreement.ballots) wait_in(ballot, 16, -1);
  watchdog_fires_at(agreement.ballots[late == 0 ? 1 : 0]);
  if (stuck_like_the_others) {
    agreement.ballots[late].joined_ns = agreement.ballots[late].detected_ns = kWatchdog + 9 * kSecond;
  } else {
    agreement.ballots[late].last_joined = 15;
    agreement.ballots[late].stuck_sequence = 0;
  }
  const Diagnosis d = diagnose(agreement);
  RC_ASSERT(d.verdict == Verdict::joined_late);
  RC_ASSERT(d.culprits == (std::vector<int>{int(late)}));
}

}  // namespace seeksim::runtime
