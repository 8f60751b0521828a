// The control plane: the same answer everywhere, whichever rank dies at whatever time.
#include <map>
#include <set>

#include "sim/random.h"
#include "tests/sim/sim_test.h"

namespace seeksim::sim {
namespace {

using runtime::Agreement;
using runtime::Ballot;

TEST(Agreement, GivesAllTheSameAnswerWithEveryBallot) {
  World world(small_world(8));
  const WorldResult result = world.run([](Rank& rank) {
    Ballot ballot;
    ballot.last_committed = 10 + rank.id;
    rank.clock.sleep_until(rank.id * kSecond);
    const Agreement a = rank.control.agree(op_of(rank, OpKind::agree, 1), 0, ballot, rank.clock.now() + 30 * kSecond);
    EXPECT_EQ(a.members, everybody(rank));
    EXPECT_TRUE(a.dead.empty());
    for (int i = 0; i < 8; ++i) EXPECT_EQ(a.ballots[std::size_t(i)].last_committed, 10 + i);
  });
  EXPECT_TRUE(all_returned(result));
}

TEST(Agreement, EvictsAndFencesWhoDoesNotAnswer) {
  World world(small_world(8));
  bool fenced = false;
  const WorldResult result = world.run([&](Rank& rank) {
    if (rank.id == 5) {  // comes a minute late
      rank.clock.sleep_until(60 * kSecond);
      const Op op = op_of(rank, OpKind::agree, 0);
      fenced = failure_of([&] { rank.control.agree(op, 0, {}, 90 * kSecond); }) == ErrorKind::fenced &&
               failure_of([&] { rank.control.enter_epoch(1, everybody(rank)); }) == ErrorKind::fenced &&
               failure_of([&] { make_comm(rank, everybody(rank), 2, 1, 90 * kSecond); }) == ErrorKind::fenced;
      return;
    }
    const Op op = op_of(rank, OpKind::agree, 0);
    const Agreement a = rank.control.agree(op, 0, {}, rank.clock.now() + 30 * kSecond);
    EXPECT_EQ(a.dead, std::vector<int>{5});
    EXPECT_EQ(a.members.size(), 7u);
    EXPECT_NEAR(double(rank.clock.now()), 30e9, 1e7);
    rank.control.enter_epoch(1, a.members);
    EXPECT_EQ(rank.control.epoch(), 1u);
    EXPECT_EQ(rank.control.members(), a.members);
    const Comm comm = make_comm(rank, a.members, 2, 1, rank.clock.now() + kSecond);
    EXPECT_TRUE(bool(comm));
  });
  EXPECT_TRUE(all_returned(result));
  EXPECT_TRUE(fenced);
}

TEST(Agreement, VotesOfDifferentStepsDoNotMix) {
  World world(small_world(4));
  const WorldResult result = world.run([](Rank& rank) {
    for (std::int64_t step = 0; step < 200; ++step) {
      Op op = op_of(rank, OpKind::vote, 0);
      op.step = step;
      Ballot ballot;
      ballot.words[0] = step;
      for (const Ballot& other : rank.control.agree(op, 0, ballot, rank.clock.now() + kSecond).ballots)
        ASSERT_EQ(other.words[0], step);
    }
    for (int again = 0; again < 3; ++again) {  // and the same name again is another agreement
      Ballot ballot;
      ballot.words[0] = again;
      for (const Ballot& other :
           rank.control.agree(op_of(rank, OpKind::agree, 0), 0, ballot, rank.clock.now() + kSecond).ballots)
        ASSERT_EQ(other.words[0], again);
    }
  });
  EXPECT_TRUE(all_returned(result));
}

TEST(Agreement, RanksAtDifferentStepsMeetInARecovery) {
  World world(small_world(3));
  const WorldResult result = world.run([](Rank& rank) {
    Op op = op_of(rank, OpKind::agree, 0);
    op.step = rank.id;
    EXPECT_EQ(rank.control.agree(op, 0, {}, kSecond).members.size(), 3u);
  });
  EXPECT_TRUE(all_returned(result));
}

TEST(Revoke, ReachesEveryWaiterAndOnlyItsEpoch) {
  World world(small_world(4));
  const WorldResult result = world.run([](Rank& rank) {
    const Comm comm = make_comm(rank);
    BufferPtr b = floats(rank, 1);
    const Op op = op_of(rank, OpKind::recv, 1);
    if (rank.id == 0) {
      rank.clock.sleep_until(5 * kSecond);
      rank.control.revoke(0, op, ErrorKind::io);
      EXPECT_TRUE(rank.control.revoked(0));
    } else {
      const Event done = exchange(rank, comm, op, {receive_from(0, b, 0, 1)});
      EXPECT_FALSE(rank.control.revoked(0));
      EXPECT_EQ(failure_of([&] { rank.wait(done, op, 600 * kSecond, comm); }), ErrorKind::revoked);
      EXPECT_LT(rank.clock.now(), 5 * kSecond + kMillisecond);
    }
    EXPECT_FALSE(rank.control.revoked(1));
    const Comm comms[] = {comm};
    rank.transport.abort(comms);
  });
  EXPECT_TRUE(all_returned(result));
}

// What each rank came to know of one vote: decided (with whom), cut short, fenced; or it died.
enum class Outcome { none, decided, cut_short, fenced, died };
struct Vote {
  std::vector<Outcome> outcomes;
  std::vector<std::vector<int>> members, dead;
};

// The oracle: all or none; the same answer; the dead and the members make up the world; no rank that decided is fenced.
std::string judge(const Vote& vote) {
  const int n = int(vote.outcomes.size());
  int decided = -1, cut = -1;
  for (int i = 0; i < n; ++i) {
    const Outcome o = vote.outcomes[std::size_t(i)];
    if (o == Outcome::none) return "rank " + std::to_string(i) + " got no answer";
    if (o == Outcome::cut_short) cut = i;
    if (o != Outcome::decided) continue;
    if (decided < 0) decided = i;
    if (vote.members[std::size_t(i)] != vote.members[std::size_t(decided)] ||
        vote.dead[std::size_t(i)] != vote.dead[std::size_t(decided)])
      return "ranks " + std::to_string(decided) + " and " + std::to_string(i) + " got different answers";
  }
  if (decided >= 0 && cut >= 0)
    return "rank " + std::to_string(decided) + " decided, rank " + std::to_string(cut) + " was cut short";
  if (decided < 0) return "";
  std::set<int> all(vote.members[std::size_t(decided)].begin(), vote.members[std::size_t(decided)].end());
  for (const int dead : vote.dead[std::size_t(decided)])
    if (!all.insert(dead).second) return "rank " + std::to_string(dead) + " is both dead and a member";
  if (int(all.size()) != n) return "some ranks are neither dead nor members";
  for (int i = 0; i < n; ++i) {
    const auto& dead = vote.dead[std::size_t(decided)];
    const bool declared = std::find(dead.begin(), dead.end(), i) != dead.end();
    if (declared && vote.outcomes[std::size_t(i)] == Outcome::decided)
      return "rank " + std::to_string(i) + " decided though dead";
    if (!declared && vote.outcomes[std::size_t(i)] == Outcome::fenced)
      return "rank " + std::to_string(i) + " is fenced though a member";
  }
  return "";
}

Vote hold_vote(std::uint64_t seed, OpKind kind) {
  Random draw(seed, Stream::partial);
  const int n = 2 + int(draw.below(7));
  const char* const networks[] = {"ib", "tcp", "nvlink"};
  WorldPlan plan = spread_world(n, seed, networks[draw.below(3)]);
  World world(plan);
  Vote vote;
  vote.outcomes.resize(std::size_t(n), Outcome::none);
  vote.members.resize(std::size_t(n));
  vote.dead.resize(std::size_t(n));
  // All within a few messages' time of each other.
  std::vector<runtime::TimeNs> joins, kills, revokes;
  for (int i = 0; i < n; ++i) {
    joins.push_back(runtime::TimeNs(draw.below(500'000)));
    kills.push_back(draw.below(4) == 0 ? runtime::TimeNs(draw.below(1'000'000)) : -1);
    revokes.push_back(draw.below(6) == 0 ? runtime::TimeNs(draw.below(1'000'000)) : -1);
  }
  const runtime::TimeNs patience = draw.below(3) == 0 ? 400'000 : kSecond;
  for (int i = 0; i < n; ++i)
    if (kills[std::size_t(i)] >= 0) world.kill_at(i, kills[std::size_t(i)], nullptr);
  const WorldResult result = world.run([&](Rank& rank) {
    const auto me = std::size_t(rank.id);
    const Op op = op_of(rank, kind, 3);
    if (revokes[me] >= 0 && revokes[me] < joins[me]) {
      rank.clock.sleep_until(revokes[me]);
      rank.control.revoke(0, op, ErrorKind::io);
    }
    rank.clock.sleep_until(joins[me]);
    try {
      const Agreement a = rank.control.agree(op, 0, {}, rank.clock.now() + patience);
      vote.outcomes[me] = Outcome::decided;
      vote.members[me] = a.members;
      vote.dead[me] = a.dead;
    } catch (const SeamError& e) {
      vote.outcomes[me] = e.kind() == ErrorKind::fenced    ? Outcome::fenced
                          : e.kind() == ErrorKind::revoked ? Outcome::cut_short
                                                           : Outcome::none;
    }
    if (revokes[me] >= joins[me]) {
      rank.clock.sleep_until(revokes[me]);
      rank.control.revoke(0, op, ErrorKind::io);
    }
  });
  EXPECT_EQ(result.end, WorldEnd::finished) << result.wait_for_graph;
  for (std::size_t i = 0; i < vote.outcomes.size(); ++i)
    if (vote.outcomes[i] == Outcome::none && result.ranks[i].how == RankEnd::How::died)
      vote.outcomes[i] = Outcome::died;
  return vote;
}

TEST(Atomicity, OfVotesUnderKillsAndRevokesOverAThousandSeeds) {
  std::map<Outcome, int> seen;
  for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
    const Vote vote = hold_vote(seed, OpKind::vote);
    ASSERT_EQ(judge(vote), "") << "seed " << seed;
    for (const Outcome o : vote.outcomes) ++seen[o];
  }
  for (const Outcome o : {Outcome::decided, Outcome::cut_short, Outcome::fenced, Outcome::died})
    EXPECT_GT(seen[o], 100) << int(o);
}

TEST(Atomicity, OfRecoveryAgreementsWhichNoRevokeCutsShort) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const Vote vote = hold_vote(seed, OpKind::agree);
    ASSERT_EQ(judge(vote), "") << "seed " << seed;
    for (const Outcome o : vote.outcomes) ASSERT_NE(o, Outcome::cut_short);
  }
}

TEST(Atomicity, TheJudgeSeesEachWayToGoWrong) {
  const Vote good{{Outcome::decided, Outcome::decided, Outcome::died}, {{0, 1}, {0, 1}, {}}, {{2}, {2}, {}}};
  EXPECT_EQ(judge(good), "");
  Vote bad = good;
  bad.outcomes[1] = Outcome::cut_short;
  EXPECT_NE(judge(bad), "");
  bad = good;
  bad.members[1] = {0, 1, 2};
  EXPECT_NE(judge(bad), "");
  bad = good;
  bad.outcomes[1] = Outcome::fenced;
  EXPECT_NE(judge(bad), "");
  bad = good;
  bad.outcomes[2] = Outcome::none;
  EXPECT_NE(judge(bad), "");
  bad = good;
  bad.dead = {{}, {}, {}};
  EXPECT_NE(judge(bad), "");
  bad = good;
  bad.dead = {{1, 2}, {1, 2}, {}};
  EXPECT_NE(judge(bad), "");
}

}  // namespace
}  // namespace seeksim::sim
