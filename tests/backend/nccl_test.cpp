// The parts that only NCCL has, with one rank on one GPU, and the streams under it. The claims for all transports are
// in tests/conformance. Without a GPU these tests are skipped, with the reason.
#include <gtest/gtest.h>

#include "runtime/backend/gpu/nccl_transport.h"

#ifdef SEEKSIM_NCCL
#include <cstring>
#include <numeric>
#include <optional>

#include "kernels/pointwise.h"
#include "runtime/backend/machine/wall_clock.h"
#include "runtime/host/host_writes.h"
#include "runtime/launch/poison.h"
#endif

namespace seeksim::test {
namespace {

#ifdef SEEKSIM_NCCL

using namespace runtime;

// What is used of NCCL is in the library that the header promises. Needs no GPU, but a library.
TEST(Nccl, TheLibraryHasWhatIsUsed) {
  if (const std::string problem = nccl_library_problem(); problem.starts_with("NCCL cannot be loaded"))
    GTEST_SKIP() << problem;
  ASSERT_EQ(nccl_library_problem(), "");
  int version = 0;
  ASSERT_EQ(NcclApi::get()->get_version(&version), ncclSuccess);
  EXPECT_GE(version, NCCL_VERSION(2, 28, 0));
  // The unique id of a communicator is fresh each time, or a rank of another epoch could join.
  ncclUniqueId first{}, second{};
  ASSERT_EQ(NcclApi::get()->get_unique_id(&first), ncclSuccess);
  ASSERT_EQ(NcclApi::get()->get_unique_id(&second), ncclSuccess);
  EXPECT_NE(std::memcmp(&first, &second, sizeof first), 0);
}

// A world of one rank sends nothing.
class NoWire final : public Wire {
 public:
  Ticket send(int to, std::span<const std::byte>, std::span<const std::byte>) override {
    ADD_FAILURE() << "a message to rank " << to;
    return 0;
  }
  std::uint64_t announced_bytes(Ticket) const override { return 0; }
  void receive(Ticket, std::span<std::byte>) override { ADD_FAILURE(); }
  void discard(Ticket) override {}
  bool poll() override { return false; }
};

struct OneRankWorld {
  Signals signals;
  WallClock wall;
  ProgressLoop loop{wall};
  NoWire wire;
  Recorder recorder, of_the_side;
  CudaDevice device{loop, signals, 0, {std::size_t(1) << 30, std::size_t(1) << 30, std::size_t(1) << 30}, 0};
  MessageTransport side{loop, wire, signals, of_the_side, 0, 1};
  NcclTransport transport{loop, device, side, signals, recorder, 0};
  std::uint64_t sequence = 0;

  TimeNs soon() const { return later(wall.now(), 30 * kSecond); }
  Comm create(std::uint64_t id = 1) {
    Op op;
    op.kind = OpKind::comm_create;
    op.rank = 0;
    return transport.create(op, {"data", Axis::data, 0, id, {0}}, soon());
  }
  CommResult exchange(Comm comm, std::span<const Piece> pieces) {
    Op op;
    op.kind = OpKind::all_gather;
    op.rank = 0;
    op.sequence = ++sequence;
    return transport.exchange(device.communication_queue(), comm, op, pieces, DiesAt::never);
  }
  WaitResult wait() { return device.wait(device.communication_queue().record(), soon(), ~std::uint32_t(0)); }
};

class NcclGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string problem = nccl_problem(); !problem.empty()) GTEST_SKIP() << problem;
    world.emplace();
  }
  std::optional<OneRankWorld> world;
};

constexpr Index kN = 1000;

struct Pair {
  BufferPtr from, to;
  std::vector<Piece> pieces;
};
Pair pair_of(OneRankWorld& world) {
  Pair pair;
  const std::size_t bytes = std::size_t(kN) * sizeof(float);
  pair.from = world.device.allocate(bytes, MemoryTag::scratch, "from");
  pair.to = world.device.allocate(bytes, MemoryTag::scratch, "to");
  std::vector<float> values(static_cast<std::size_t>(kN));
  std::iota(values.begin(), values.end(), 1.0f);
  kernels::write_values(pair.from->lane, values.data(), vec<float>(*pair.from).get());
  settle(*pair.from);
  pair.pieces = {{0, true, pair.from.get(), 0, bytes, nullptr, ElementType::f32},
                 {0, false, pair.to.get(), 0, bytes, nullptr, ElementType::f32}};
  return pair;
}

TEST_F(NcclGpu, AnExchangeWithOneselfMovesEveryByte) {
  const Comm comm = world->create();
  Pair pair = pair_of(*world);
  ASSERT_EQ(world->exchange(comm, pair.pieces), CommResult::success);
  ASSERT_EQ(world->wait(), WaitResult::done);
  const auto arrived = on_host(vec<const float>(*pair.to));
  for (Index i = 0; i < kN; ++i) ASSERT_EQ(arrived[i], float(i + 1));
  EXPECT_EQ(world->transport.async_error(comm), CommResult::success);
  EXPECT_EQ(world->transport.destroy(comm), CommResult::success);
  EXPECT_EQ(world->transport.destroy(comm), CommResult::invalid_argument) << "the handle is dead";
}

TEST_F(NcclGpu, ABadPiecePoisonsTheCommunicatorWhichIsThenNotDestroyed) {
  const Comm comm = world->create();
  Pair pair = pair_of(*world);
  std::vector<Piece> bad = pair.pieces;
  bad[1].hi += 4;
  EXPECT_EQ(world->exchange(comm, bad), CommResult::invalid_argument);
  EXPECT_EQ(world->exchange(comm, pair.pieces), CommResult::invalid_argument);
  EXPECT_EQ(world->transport.destroy(comm), CommResult::invalid_argument);
  const Comm all[] = {comm};
  EXPECT_EQ(world->transport.abort(all), CommResult::success);
}

// Several communicators at once, with work under way: the streams end, and their leftovers are not taken for values.
TEST_F(NcclGpu, AbortEndsEverythingInOneGroup) {
  const Comm first = world->create(1), second = world->create(2);
  Pair pair = pair_of(*world);
  ASSERT_EQ(world->exchange(first, pair.pieces), CommResult::success);
  ASSERT_EQ(world->exchange(second, pair.pieces), CommResult::success);
  const Comm all[] = {first, second};
  EXPECT_EQ(world->transport.abort(all), CommResult::success);
  EXPECT_TRUE(world->device.drain_by(world->soon(), true));
  EXPECT_EQ(world->transport.async_error(first), CommResult::invalid_argument);
  EXPECT_TRUE(find_poison(AnyVec(vec<float>(*pair.to))).has_value());
}

TEST_F(NcclGpu, NothingIsSentAndThatIsAnOperationToo) {
  const Comm comm = world->create();
  Pair pair = pair_of(*world);
  for (Piece& piece : pair.pieces) piece.hi = piece.lo;
  EXPECT_EQ(world->exchange(comm, pair.pieces), CommResult::success);
  EXPECT_EQ(world->wait(), WaitResult::done);
}

// A sum of one addend, to everybody, by one share and by two; and what an abort leaves of one.
TEST_F(NcclGpu, ItsOwnSumOfOneRankIsItsAddend) {
  const Comm comm = world->create();
  const Pair pair = pair_of(*world);
  const VecView<const float> values = vec<const float>(*pair.from);
  const VecView<float> sum = vec<float>(*pair.to);
  const std::vector<std::vector<SumShare>> all_shares = {
      {}, {{0, 0, kN, sum}}, {{0, 0, 10, sum.part(0, 10)}, {0, 10, kN - 10, sum.part(10, kN - 10)}}};
  Queue& queue = world->device.communication_queue();
  for (const std::vector<SumShare>& shares : all_shares) {
    kernels::clear(pair.to->lane, sum.get());
    settle(*pair.to);
    Op op;
    op.kind = shares.empty() ? OpKind::all_reduce : OpKind::reduce_scatter;
    op.rank = 0;
    op.sequence = ++world->sequence;
    ASSERT_EQ(shares.empty() ? world->transport.library_all_reduce(queue, comm, op, values, sum)
                             : world->transport.library_reduce(queue, comm, op, values, shares),
              CommResult::success);
    ASSERT_EQ(world->wait(), WaitResult::done);
    const auto summed = on_host(vec<const float>(*pair.to));
    for (Index i = 0; i < kN; ++i) ASSERT_EQ(summed[i], float(i + 1));
  }
  ASSERT_EQ(world->transport.library_all_reduce(queue, comm, Op{}, values, sum), CommResult::success);
  const Comm all[] = {comm};
  EXPECT_EQ(world->transport.abort(all), CommResult::success);
  EXPECT_TRUE(world->device.drain_by(world->soon(), true));
  EXPECT_TRUE(find_poison(AnyVec(sum)).has_value());
  EXPECT_EQ(world->transport.library_all_reduce(queue, comm, Op{}, values, sum), CommResult::invalid_argument);
}

// ---- the device under it ----

TEST_F(NcclGpu, FreshMemoryIsPoisonAndTheBudgetIsKept) {
  const BufferPtr fresh = world->device.allocate(64, MemoryTag::scratch, "fresh");
  const auto words = on_host(vec<const std::int32_t>(*fresh));
  EXPECT_EQ(std::uint32_t(words[0]), kPoisonFresh);
  EXPECT_THROW(world->device.allocate(std::size_t(2) << 30, MemoryTag::scratch, "too much"), SeamError);
}

TEST_F(NcclGpu, QueuesOrderWhatEventsSay) {
  CudaDevice& device = world->device;
  const BufferPtr buffer = device.allocate(1 << 20, MemoryTag::scratch, "order");
  const BufferPtr home = device.allocate_in(Space::pinned, 1 << 20, MemoryTag::scratch, "home");
  Op op;
  for (int round = 1; round <= 50; ++round) {
    device.compute_queue().launch(
        op, {}, [](kernels::Lane lane, kernels::Vec<float> x) { kernels::fill_bits(lane, x, 0x3f800000u); },
        vec<float>(*buffer));
    device.compute_queue().launch(
        op, {}, [round](kernels::Lane lane, kernels::Vec<float> x) { kernels::scale(lane, x, float(round)); },
        vec<float>(*buffer));
    device.copy_queue().wait(device.compute_queue().record());
    device.copy_queue().launch(
        op, {},
        [](kernels::Lane lane, kernels::Vec<const float> x, kernels::Vec<float> y) { kernels::copy(lane, x, y); },
        vec<const float>(*buffer), vec<float>(*home));
    device.host_queue().wait(device.copy_queue().record());
    device.host_queue().launch(
        op, {}, [](kernels::Lane lane, kernels::Vec<float> y) { kernels::scale(lane, y, 2.0f); }, vec<float>(*home));
    device.compute_queue().wait(device.host_queue().record());
    ASSERT_EQ(device.wait(device.host_queue().record(), world->soon(), ~std::uint32_t(0)), WaitResult::done);
    ASSERT_EQ(vec<float>(*home).get()[12345], 2.0f * float(round));
  }
}

#else

TEST(NcclGpu, IsNotBuiltHere) { GTEST_SKIP() << runtime::nccl_problem(); }

#endif

}  // namespace
}  // namespace seeksim::test
