// Exchanges: what meets what, when it is there, and what each fate does to it.
#include "tests/sim/sim_test.h"

namespace seeksim::sim {
namespace {

TEST(Exchange, MovesDataRoundARing) {
  World world(small_world(8));
  std::vector<float> got(8);
  const WorldResult result = world.run([&](Rank& rank) {
    const Comm comm = make_comm(rank);
    const int n = rank.world_size, next = (rank.id + 1) % n, previous = (rank.id + n - 1) % n;
    BufferPtr b = floats(rank, 2, float(rank.id));
    const Op op = op_of(rank, OpKind::all_gather, 1);
    const Event done = exchange(rank, comm, op, {send_to(next, b, 0, 1), receive_from(previous, b, 1, 1)});
    rank.wait(done, op, kSecond, comm);
    got[std::size_t(rank.id)] = at(b, 1);
  });
  EXPECT_TRUE(all_returned(result));
  for (int i = 0; i < 8; ++i) EXPECT_EQ(got[std::size_t(i)], float((i + 7) % 8));
  EXPECT_GT(result.virtual_ns, 0);
}

TEST(Exchange, NativeSumReachesEverybody) {
  World world(small_world(8));
  std::vector<float> got(8);
  const WorldResult result = world.run([&](Rank& rank) {
    const Comm comm = make_comm(rank);
    BufferPtr in = floats(rank, 4, float(rank.id + 1)), out = floats(rank, 4);
    for (std::uint64_t i = 1; i <= 10; ++i) {
      const Op op = op_of(rank, OpKind::all_reduce, i);
      const runtime::TreeReduceSlice part{{0, rank.id}, vec<float>(*in)};
      ASSERT_EQ(rank.transport.tree_all_reduce(rank.device.communication_queue(), comm, op, {{&part, 1}, 8, 1.0f, vec<float>(*out)}),
                CommResult::success);
      rank.wait(rank.device.communication_queue().record(), op, kSecond, comm);
    }
    got[std::size_t(rank.id)] = at(out, 3);
  });
  EXPECT_TRUE(all_returned(result));
  for (const float sum : got) EXPECT_EQ(sum, 36.0f);
}

TEST(Exchange, ARankThatNeverJoinsEndsInATimeoutThatNamesIt) {
  World world(small_world(4));
  std::string text;
  const WorldResult result = world.run([&](Rank& rank) {
    const Comm comm = make_comm(rank);
    if (rank.id == 3) rank.clock.sleep_until(runtime::kForever);
    BufferPtr b = floats(rank, 2);
    const Op op = op_of(rank, OpKind::all_gather, 1);
    const int n = 4, next = (rank.id + 1) % n, previous = (rank.id + n - 1) % n;
    const Event done = exchange(rank, comm, op, {send_to(next, b, 0, 1), receive_from(previous, b, 1, 1)});
    if (rank.id == 0) {
      EXPECT_EQ(failure_of([&] { rank.wait(done, op, 600 * kSecond, comm); }, &text), ErrorKind::timeout);
      rank.control.revoke(0, op, ErrorKind::timeout);
    } else {   // rank 1's neighbours have both come: it is done, and learns nothing
      const ErrorKind expected = rank.id == 1 ? ErrorKind::count_ : ErrorKind::revoked;
      EXPECT_EQ(failure_of([&] { rank.wait(done, op, 601 * kSecond, comm); }), expected);
    }
    const Comm comms[] = {comm};
    rank.transport.abort(comms);
    rank.device.drain();
    if (rank.id == 0) {
      EXPECT_EQ(word(b, 1), runtime::kPoisonAborted);
    }
  });
  EXPECT_EQ(result.end, WorldEnd::finished);
  EXPECT_EQ(result.ranks[3].how, RankEnd::How::died);
  EXPECT_NE(text.find("rank 3"), std::string::npos) << text;
  EXPECT_GE(result.virtual_ns, 600 * kSecond);
  EXPECT_NE(result.wait_for_graph.find("rank 3"), std::string::npos) << result.wait_for_graph;
}

TEST(Exchange, AgreementEvictsWhoDoesNotAnswer) {
  World world(small_world(8));
  const WorldResult result = world.run([&](Rank& rank) {
    if (rank.id == 5) rank.clock.sleep_until(runtime::kForever);
    const Op op = op_of(rank, OpKind::agree, 0);
    rank.control.revoke(0, op, ErrorKind::timeout);
    const runtime::Agreement a = rank.control.agree(op, 0, {}, rank.clock.now() + 30 * kSecond);
    EXPECT_EQ(a.dead, std::vector<int>{5});
    EXPECT_EQ(a.members.size(), 7u);
    rank.control.enter_epoch(1, a.members);
    const Comm comm = make_comm(rank, a.members, 2, 1, rank.clock.now() + kSecond);
    BufferPtr b = floats(rank, 2);
    EXPECT_TRUE(bool(comm));
  });
  EXPECT_EQ(result.end, WorldEnd::finished) << result.wait_for_graph;
  for (int i = 0; i < 8; ++i) EXPECT_EQ(result.ranks[std::size_t(i)].how, i == 5 ? RankEnd::How::died : RankEnd::How::returned) << result.ranks[std::size_t(i)].what;
}

}  // namespace
}  // namespace seeksim::sim
