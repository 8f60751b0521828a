// CommitVote alone, with a control plane that answers as the test says.
#include "runtime/trainer/commit_vote.h"

#include <gtest/gtest.h>

#include "runtime/launch/poison.h"
#include "tests/support/trainer_parts.h"

namespace seeksim::test {
namespace {

// The words of a ballot are the vote's own; another rank's are made by a vote of that rank.
Ballot ballot_of(const std::function<void(CommitVote&)>& prepare, bool good = true) {
  TrainerParts other;
  prepare(other.vote);
  try {
    other.vote.on(Vote::step, good);
  } catch (const SeamError&) {
  } catch (const UnwrittenMemory&) {
  }
  return other.control.ballots.back();
}

TEST(CommitVote, AStepIsGoodOnlyWhereNobodyVotesAgainstIt) {
  TrainerParts parts;
  EXPECT_TRUE(parts.vote.on(Vote::step, true));
  EXPECT_FALSE(parts.vote.on(Vote::step, false));
  const Ballot against = ballot_of([](CommitVote&) {}, false);
  parts.control.answer = [&](Agreement& a) { add_ballot(a, 1, against); };
  EXPECT_FALSE(parts.vote.on(Vote::step, true));
}

TEST(CommitVote, SaysWhatItIsAboutAndWhereTheRankStands) {
  TrainerParts parts;
  parts.bench.progress.advance();
  parts.vote.on(Vote::members);
  EXPECT_STREQ(parts.control.asked.back().tensor, "members");
  EXPECT_EQ(parts.control.asked.back().kind, OpKind::vote);
  EXPECT_EQ(parts.control.asked.back().step, 1);
  EXPECT_EQ(parts.control.ballots.back().last_committed, 0);
}

TEST(CommitVote, AMemberThatDidNotVoteEndsIt) {
  TrainerParts parts;
  parts.control.answer = [](Agreement& a) { a.dead = {3}; };
  try {
    parts.vote.on(Vote::step);
    FAIL() << "the vote went through";
  } catch (const SeamError& error) {
    EXPECT_EQ(error.kind(), ErrorKind::remote_error);
    EXPECT_NE(error.detail().find("rank 3"), std::string::npos) << error.detail();
  }
}

TEST(CommitVote, OtherBitsTheSecondTimeNameTheRankThatComputedThem) {
  TrainerParts parts;
  const Ballot corrupt = ballot_of([](CommitVote& vote) { vote.tell(RerunFound{2, 0}); });
  parts.control.answer = [&](Agreement& a) { add_ballot(a, 5, corrupt); };
  try {
    parts.vote.on(Vote::step);
    FAIL() << "the step was taken";
  } catch (const SeamError& error) {
    EXPECT_EQ(error.kind(), ErrorKind::corrupt_compute);
    EXPECT_EQ(error.op().peer, 5);
    EXPECT_EQ(error.op().micro_batch, 2);
    EXPECT_STREQ(error.op().tensor, gradient_name(parts.tensors.parameters(), 0));
  }
}

TEST(CommitVote, AfterAFailureTheStepIsVotedForAnew) {
  TrainerParts parts;
  parts.vote.tell(RerunFound{0, 0});
  EXPECT_THROW(parts.vote.on(Vote::step), SeamError);
  parts.vote.forget();
  EXPECT_TRUE(parts.vote.on(Vote::step));
}

TEST(CommitVote, PoisonAtItsSourceIsNamedBeforePoisonThatSpread) {
  TrainerParts parts;
  parts.vote.tell(PoisonFound{"seen here", false});
  const Ballot source = ballot_of([](CommitVote& vote) { vote.tell(PoisonFound{"there", true}); });
  parts.control.answer = [&](Agreement& a) { add_ballot(a, 4, source); };
  try {
    parts.vote.on(Vote::step);
    FAIL() << "training goes on";
  } catch (const UnwrittenMemory& found) {
    EXPECT_NE(std::string(found.what()).find("rank 4; and here, seen here"), std::string::npos) << found.what();
  }
}

struct Rider final : VoteRider {
  explicit Rider(std::string* text, char of) : said(text), name(of) {}
  void tell(Vote about, Ballot& own) override {
    *said += name;
    own.busy_ns += about == Vote::step ? 5 : 1;
  }
  void hear(Vote, const Agreement& agreement, bool all_good) override {
    *said += char(name - 'a' + 'A');
    *said += all_good ? '+' : '-';
    heard_ns = agreement.ballots.front().busy_ns;
  }
  std::string* said;
  char name;
  TimeNs heard_ns = 0;
};

TEST(CommitVote, RidersTellBeforeTheVoteAndHearAfterItInTheirOrder) {
  TrainerParts parts;
  std::string said;
  Rider first(&said, 'a'), second(&said, 'b');
  parts.vote.carries(first);
  parts.vote.carries(second);
  parts.vote.on(Vote::step, true);
  EXPECT_EQ(said, "abA+B+");
  EXPECT_EQ(second.heard_ns, 10);
  parts.vote.on(Vote::checkpoint, false);
  EXPECT_EQ(said, "abA+B+abA-B-");
}

TEST(CommitVote, ABallotOfTheCallersOwnCarriesNoRider) {
  TrainerParts parts;
  std::string said;
  Rider rider(&said, 'a');
  parts.vote.carries(rider);
  Ballot own;
  own.checkpoint.step = 7;
  EXPECT_EQ(parts.vote.ask("checkpoint to load", own).ballots.front().checkpoint.step, 7);
  EXPECT_EQ(said, "");
}

TEST(CommitVote, HearsOfMembersThatLeaveAndOfRanksThatWaitWhereTheyAreTakenIn) {
  for (const bool grows : {false, true}) {
    TrainPlan plan = tiny_plan();
    plan.recovery.grow = grows;
    TrainerParts parts(plan);
    Ballot leaves;
    leaves.leaves_at_ns = 100;
    parts.control.answer = [&](Agreement& a) {
      add_ballot(a, 2, leaves);
      a.joiners = {6};
    };
    parts.vote.on(Vote::step);
    EXPECT_EQ(parts.vote.leaving(), std::vector<int>{2});
    EXPECT_EQ(parts.vote.waiting(), grows ? std::vector<int>{6} : std::vector<int>{});
  }
}

}  // namespace
}  // namespace seeksim::test
