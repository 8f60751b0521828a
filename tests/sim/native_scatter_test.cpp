// The native reduce-scatter: each owner's sums, from parts that stay where they lie. That trained bits, traffic and
// memory are those of exchanges stands in tests/runtime/zero/zero_test.cpp; here is what one operation does.
#include "tests/sim/sim_test.h"

namespace seeksim::sim {
namespace {

using kernels::Index;

// Four leaves of 8 elements, one a rank; rank r owns elements 2r and 2r + 1. What a rank needs for that.
struct Scatter {
  BufferPtr part, out, slots;
  runtime::TreeReduceSlice slice;
  runtime::TreeTarget target;
  std::vector<Piece> pieces;
  runtime::TreeScatter all(Index leaves = 4) const { return {{&slice, 1}, leaves, 0.5f, {&target, 1}, pieces}; }
};

Scatter scatter_of(Rank& rank, std::size_t floats_sent = 2) {
  Scatter s{floats(rank, 8), floats(rank, 2), floats(rank, 8), {}, {}, {}};
  for (std::size_t i = 0; i < 8; ++i) at(s.part, i) = float(10 * rank.id) + float(i);
  s.slice = {{0, rank.id}, vec<float>(*s.part)};
  s.target = {{2, 0}, 2 * rank.id, vec<float>(*s.out)};
  for (int peer = 0; peer < 4; ++peer) {
    if (peer == rank.id) continue;
    s.pieces.push_back(send_to(peer, s.part, 2 * std::size_t(peer), floats_sent));
    s.pieces.push_back(receive_from(peer, s.slots, 2 * std::size_t(peer), 2));
  }
  return s;
}

void enqueue(Rank& rank, Comm comm, const Op& op, const runtime::TreeScatter& scatter) {
  rank.transport.tree_reduce_scatter(rank.device.communication_queue(), comm, op, scatter);
}

void abort(Rank& rank, Comm comm) {
  const Comm comms[] = {comm};
  rank.transport.abort(comms);
  rank.device.drain();
}

TEST(NativeScatter, EveryOwnerGetsTheTreesSumOfItsElements) {
  World world(small_world(4));
  const WorldResult result = world.run([&](Rank& rank) {
    const Comm comm = make_comm(rank);
    const Scatter s = scatter_of(rank);
    const Op op = op_of(rank, OpKind::reduce_scatter, 1);
    EXPECT_TRUE(rank.transport.has_native(comm, op));
    enqueue(rank, comm, op, s.all());
    rank.wait(rank.device.communication_queue().record(), op, kSecond, comm);
    for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(at(s.out, i), 0.5f * (60.0f + 4.0f * float(2 * rank.id + int(i))));
  });
  EXPECT_TRUE(all_returned(result));
  EXPECT_EQ(result.comm[std::size_t(OpKind::reduce_scatter)].calls, 4u);
  EXPECT_EQ(result.comm[std::size_t(OpKind::reduce_scatter)].bytes_sent_per_rank_max, 3 * 2 * sizeof(float));
}

// One rank sends an element less, or counts the leaves in another way, or brings a leaf twice: a rank gets an error,
// and none goes on.
TEST(NativeScatter, MembersThatDifferAreTold) {
  for (const int what : {0, 1, 2}) {
    World world(small_world(4));
    int told = 0;
    const WorldResult result = world.run([&](Rank& rank) {
      const Comm comm = make_comm(rank);
      const bool differs = rank.id == 2;
      Scatter s = scatter_of(rank, what == 0 && differs ? 1 : 2);
      if (what == 2 && differs) s.slice.node = {0, 1};
      const Op op = op_of(rank, OpKind::reduce_scatter, 1);
      enqueue(rank, comm, op, s.all(what == 1 && differs ? 5 : 4));
      const Event done = rank.device.communication_queue().record();
      const ErrorKind failure = failure_of([&] { rank.wait(done, op, kSecond, comm); });
      EXPECT_NE(failure, ErrorKind::count_) << what;
      told += failure == ErrorKind::mismatch ? 1 : 0;
      abort(rank, comm);
    });
    EXPECT_TRUE(all_returned(result));
    EXPECT_GE(told, 2) << what;
  }
}

TEST(NativeScatter, WhoIsMissingIsKnownAndAnAbortScribbles) {
  World world(small_world(4));
  const WorldResult result = world.run([&](Rank& rank) {
    const Comm comm = make_comm(rank);
    if (rank.id == 3) return rank.clock.sleep_until(10 * kSecond);
    const Scatter s = scatter_of(rank);
    const Op op = op_of(rank, OpKind::reduce_scatter, 1);
    enqueue(rank, comm, op, s.all());
    const Event done = rank.device.communication_queue().record();
    EXPECT_EQ(failure_of([&] { rank.wait(done, op, kSecond, comm); }), ErrorKind::timeout);
    EXPECT_EQ(rank.transport.unmatched(comm).peer, 3);
    rank.clock.sleep_until(3 * kSecond);  // until all have looked
    abort(rank, comm);
    std::uint32_t word = 0;
    std::memcpy(&word, s.out->data, sizeof word);
    EXPECT_EQ(word, runtime::kPoisonAborted);
    std::memcpy(&word, s.slots->data + 6 * sizeof(float), sizeof word);
    EXPECT_EQ(word, runtime::kPoisonAborted);
  });
  EXPECT_TRUE(all_returned(result));
}

}  // namespace
}  // namespace seeksim::sim
