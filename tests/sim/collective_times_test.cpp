// Where somebody measured whole collectives, they take that long from when the last member comes; values are the same.
#include "sim/links.h"

#include "tests/sim/sim_test.h"

namespace seeksim::sim {
namespace {

constexpr int kRanks = 4, kShare = 25;

// Times that name the collective, its size and its group.
class Named final : public CollectiveTimes {
 public:
  runtime::TimeNs time(What what, std::size_t bytes, int ranks, int nodes, int per_node) const override {
    return runtime::TimeNs(what) * 1'000'000 + runtime::TimeNs(bytes) * 1000 + ranks * 100 + nodes * 10 + per_node;
  }
};

struct Seen {
  std::vector<runtime::TimeNs> took = std::vector<runtime::TimeNs>(kRanks);
  std::vector<std::uint32_t> last = std::vector<std::uint32_t>(kRanks);
};

// Rank 3 comes last, at 5 ms; each rank's time is from then.
Seen collective(OpKind kind, const std::shared_ptr<const CollectiveTimes>& times) {
  WorldPlan plan = small_world(kRanks);
  plan.nodes = 2;
  plan.ranks_per_node = 2;
  plan.noise = 0;
  plan.collective_times = times;
  World world(plan);
  Seen seen;
  const WorldResult result = world.run([&](Rank& rank) {
    const Comm comm = make_comm(rank);
    const runtime::TimeNs begin = 5'000'000;
    BufferPtr b = floats(rank, kRanks * kShare, float(rank.id + 1));
    const Op op = op_of(rank, kind, 1);
    rank.clock.sleep_until(rank.id == kRanks - 1 ? begin : begin - 1'000'000);
    if (kind == OpKind::all_reduce) {
      const std::vector<runtime::TreeReduceSlice> slices = {
          {kernels::TreeNode{0, rank.id}, vec<float>(*b, 0, kRanks * kShare)}};
      BufferPtr out = floats(rank, kRanks * kShare);
      rank.transport.tree_all_reduce(rank.device.communication_queue(), comm, op,
                                     {slices, kRanks, 1.0f, vec<float>(*out)});
      rank.wait(rank.device.communication_queue().record(), op, kSecond, comm);
      seen.last[std::size_t(rank.id)] = word(out, kRanks * kShare - 1);
    } else {
      std::vector<Piece> pieces;
      for (int peer = 0; peer < kRanks; ++peer) {
        if (peer == rank.id) continue;
        pieces.push_back(send_to(peer, b, std::size_t(rank.id) * kShare, kShare));
        pieces.push_back(receive_from(peer, b, std::size_t(peer) * kShare, kShare));
      }
      rank.wait(exchange(rank, comm, op, pieces), op, kSecond, comm);
      seen.last[std::size_t(rank.id)] = word(b, kRanks * kShare - 1);
    }
    seen.took[std::size_t(rank.id)] = rank.clock.now() - begin;
  });
  EXPECT_TRUE(all_returned(result));
  return seen;
}

TEST(CollectiveTimes, AreThoseOfTheWholeGroup) {
  const auto times = std::make_shared<const Named>();
  for (const OpKind kind : {OpKind::all_reduce, OpKind::all_gather, OpKind::publish, OpKind::param_gather}) {
    const Seen with = collective(kind, times), without = collective(kind, nullptr);
    // 4 ranks with 25 floats each are 400 bytes, on 2 nodes with 2 ranks each.
    const runtime::TimeNs expected = (kind == OpKind::all_reduce ? 0 : 1'000'000) + 400'000 + 422;
    for (const runtime::TimeNs took : with.took) EXPECT_EQ(took, expected) << name(kind);
    EXPECT_NE(with.took, without.took) << name(kind);
    EXPECT_EQ(with.last, without.last) << name(kind);
  }
}

// What is no whole collective is the links' business.
TEST(CollectiveTimes, LeaveMessagesAlone) {
  EXPECT_EQ(collective(OpKind::send, std::make_shared<const Named>()).took, collective(OpKind::send, nullptr).took);
}

}  // namespace
}  // namespace seeksim::sim
