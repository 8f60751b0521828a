// Every collective of ours, with inputs whose results are known to the bit, and the decisions of the control plane.
#include <algorithm>

#include "kernels/random.h"
#include "runtime/comm/communicator.h"
#include "tests/conformance/claims.h"

namespace seeksim::conformance {
namespace {

using kernels::Index;
using runtime::Communicator;

// The group keeps the communicators of different claims apart.
constexpr runtime::Axis kAxis = runtime::Axis::data;
Communicator communicator(Rank& rank, const Site& site) {
  return {rank, kAxis, 0, rank.control.members(), kPatience, int(site.first_id)};
}

constexpr Index kLeaves = 13;
std::vector<float> leaves_of_element(Index e) {
  std::vector<float> leaves(kLeaves);
  kernels::fill_normal({}, {leaves.data(), kLeaves}, std::uint32_t(e), 0, 1.0f, 11);
  return leaves;
}

// Element by element, the fold of the tree over all leaves, whichever rank contributed them: from one value to more
// than fits into a message that travels with its head.
void sums_are_those_of_the_tree(Rank& rank, const Site& site) {
  Communicator comm = communicator(rank, site);
  const runtime::TreeOwnership ownership{kLeaves, rank.world_size};
  const runtime::SampleRange mine = runtime::samples_of(kLeaves, rank.world_size, comm.position());
  for (const Index n : {Index(1), Index(1023), Index(2500), Index(20'000)}) {
    std::vector<BufferPtr> buffers;
    std::vector<runtime::VecView<const float>> parts;
    for (const kernels::TreeNode node : ownership.nodes(comm.position())) {
      buffers.push_back(floats(rank, std::size_t(n)));
      const Index first = kernels::first_leaf(node);
      const Index end = std::min<Index>(kernels::first_leaf({node.level, node.index + 1}), mine.end);
      std::vector<float> sums;
      for (Index e = 0; e < n; ++e)
        sums.push_back(kernels::tree_fold({leaves_of_element(e).data() + first, end - first}));
      set_all(buffers.back(), sums);
      parts.push_back(vec<const float>(*buffers.back(), 0, n));
    }
    const BufferPtr out = floats(rank, std::size_t(n));
    runtime::Queue& queue = rank.device.communication_queue();
    const Op op = comm.all_reduce(queue, Op{}, ownership, parts, 0.5f, vec<float>(*out, 0, n));
    comm.wait(queue.record(), op);
    Index different = 0;
    const std::vector<float> sums = all_of(out);
    for (Index e = 0; e < n; ++e)
      different += sums[std::size_t(e)] != 0.5f * kernels::tree_fold({leaves_of_element(e).data(), kLeaves}) ? 1 : 0;
    EXPECT_EQ(different, 0) << "of " << n << " elements";
    rank.device.drain();
  }
}

// Sums of whole numbers, which every order of additions gets right: on all ranks, with equal shares and unequal ones,
// and in place.
void a_librarys_sums_are_exact(Rank& rank, const Site& site) {
  Communicator comm = communicator(rank, site);
  const int ranks = rank.world_size, me = comm.position();
  const auto addend = [](int member, Index i) { return float(member + 1) * float(i % 89 - 44); };
  const auto sum = [&](Index i) { return float(ranks * (ranks + 1) / 2) * float(i % 89 - 44); };
  runtime::Queue& queue = rank.device.communication_queue();
  for (const Index each : {Index(1), Index(700), Index(30'000)}) {
    const Index n = each * ranks;
    std::vector<float> brought;
    for (Index i = 0; i < n; ++i) brought.push_back(addend(me, i));
    const BufferPtr values = floats(rank, std::size_t(n)), even = floats(rank, std::size_t(each)),
                    first = floats(rank, 1), rest = floats(rank, std::size_t(n));
    set_all(values, brought);
    const auto share = [&](int member, Index at, Index size, const BufferPtr& to) {
      return runtime::SumShare{member, at, size, member == me ? vec<float>(*to, 0, size) : runtime::VecView<float>{}};
    };
    std::vector<runtime::SumShare> alike, apart;
    for (int member = 0; member < ranks; ++member) alike.push_back(share(member, member * each, each, even));
    apart.push_back(share(ranks - 1, n - 1, 1, first));
    if (n > 1) apart.push_back(share(0, 0, n - 1, rest));
    Op op;
    op.kind = OpKind::reduce_scatter;
    comm.library_reduce(queue, op, vec<const float>(*values), alike);
    op = comm.library_reduce(queue, op, vec<const float>(*values), apart);
    comm.wait(queue.record(), op);
    const std::vector<float> own = all_of(even);
    for (Index i = 0; i < each; ++i) ASSERT_EQ(own[std::size_t(i)], sum(me * each + i)) << "of " << n;
    if (me == ranks - 1) {
      EXPECT_EQ(at(first, 0), sum(n - 1));
    }
    const std::vector<float> almost_all = all_of(rest);
    for (Index i = 0; i + 1 < n && me == 0; ++i) ASSERT_EQ(almost_all[std::size_t(i)], sum(i)) << "of " << n;
    op.kind = OpKind::all_reduce;
    op.sequence = comm.last_sequence() + 1;
    EXPECT_EQ(
        rank.transport.library_all_reduce(queue, comm.handle(), op, vec<const float>(*values), vec<float>(*values)),
        CommResult::success);
    comm.wait(queue.record(), op);
    const std::vector<float> everything = all_of(values);
    for (Index i = 0; i < n; ++i) ASSERT_EQ(everything[std::size_t(i)], sum(i)) << "of " << n;
  }
}

void gathers_every_shard(Rank& rank, const Site& site) {
  Communicator comm = communicator(rank, site);
  for (const Index n : {Index(3), Index(5000)}) {  // with three elements, some rank has none
    const BufferPtr values = floats(rank, std::size_t(n), -1);
    const std::vector<runtime::ShardInfo> shards = runtime::shard_evenly(n, rank.world_size);
    const runtime::ShardInfo mine = shards[std::size_t(comm.position())];
    std::vector<float> own(std::size_t(n), -1);
    for (Index i = mine.offset; i < mine.offset + mine.size; ++i) own[std::size_t(i)] = float(i);
    set_all(values, own);
    runtime::Queue& queue = rank.device.communication_queue();
    const Op op = comm.all_gather(queue, Op{}, vec<float>(*values), shards);
    comm.wait(queue.record(), op);
    const std::vector<float> all = all_of(values);
    for (Index i = 0; i < n; ++i) ASSERT_EQ(all[std::size_t(i)], float(i)) << "of " << n;
  }
}

// Every rank sends to every rank, itself included, in one group: small pieces, large ones and several a pair.
void everybody_to_everybody(Rank& rank, const Site& site) {
  Communicator comm = communicator(rank, site);
  const auto ranks = std::size_t(rank.world_size), me = std::size_t(rank.id);
  for (const std::size_t n : {std::size_t(2), std::size_t(2000), std::size_t(30'000)}) {
    BufferPtr out = floats(rank, ranks * n), in = floats(rank, ranks * n, -1);
    const auto value = [&](std::size_t from, std::size_t to, std::size_t i) {
      return float(from * 1'000'000 + to * 100'000 + i);
    };
    std::vector<Piece> pieces;
    std::vector<float> sent;
    for (std::size_t peer = 0; peer < ranks; ++peer) {
      for (std::size_t i = 0; i < n; ++i) sent.push_back(value(me, peer, i));
      if (peer == me) continue;  // as all our collectives
      const std::size_t half = n / 2;
      pieces.push_back(send_to(int(peer), out, peer * n, half));
      pieces.push_back(send_to(int(peer), out, peer * n + half, n - half));
      pieces.push_back(receive_from(int(peer), in, peer * n, half));
      pieces.push_back(receive_from(int(peer), in, peer * n + half, n - half));
    }
    set_all(out, sent);
    Op op;
    op.kind = n == 2000 ? OpKind::all_to_all : OpKind::reduce_scatter;
    op = comm.exchange(rank.device.communication_queue(), op, pieces);
    comm.wait(rank.device.communication_queue().record(), op);
    const std::vector<float> received = all_of(in);
    for (std::size_t peer = 0; peer < ranks; ++peer) {
      for (std::size_t i = 0; i < n && peer != me; ++i) ASSERT_EQ(received[peer * n + i], value(peer, me, i));
    }
  }
}

// Messages of 1 to 67 bytes and of odd numbers of 16-bit values, one behind the other with a byte (a value) between
// them, so that hardly any begins where a word does. What lies between them stays as it was.
void sizes_and_places_of_every_kind(Rank& rank, const Site& site, runtime::ElementType type) {
  Communicator comm = communicator(rank, site);
  const std::size_t each = size_of(type);
  const int ranks = rank.world_size, next = (rank.id + 1) % ranks, previous = (rank.id + ranks - 1) % ranks;
  constexpr std::size_t kSizes = 67;
  struct Place {
    std::size_t lo, hi;
  };
  std::vector<Place> places;
  std::size_t end = each;
  for (std::size_t n = 1; n <= kSizes; n += each) {
    places.push_back({end, end + n * each});
    end += (n + 1) * each;
  }
  const auto byte_of = [](int from, std::size_t i) { return std::byte((std::size_t(from) * 89 + i * 7 + 1) & 255); };
  constexpr std::byte kUntouched{0xEE};
  const BufferPtr out = rank.device.allocate(end, MemoryTag::scratch, "out");
  const BufferPtr in = rank.device.allocate(end, MemoryTag::scratch, "in");
  std::vector<std::byte> sent(end), received(end, kUntouched);
  for (std::size_t i = 0; i < end; ++i) sent[i] = byte_of(rank.id, i);
  for (const auto& [values, buffer] : {std::pair(&sent, &out), std::pair(&received, &in)}) {
    kernels::copy_bytes((*buffer)->lane, values->data(), (*buffer)->data, end);
    runtime::settle(**buffer);
  }
  std::vector<Piece> pieces;
  for (const Place& place : places) {
    pieces.push_back({next, true, out.get(), place.lo, place.hi, nullptr, type});
    pieces.push_back({previous, false, in.get(), place.lo, place.hi, nullptr, type});
  }
  Op op;
  op.kind = OpKind::send;
  op = comm.exchange(rank.device.communication_queue(), op, pieces);
  comm.wait(rank.device.communication_queue().record(), op);
  kernels::copy_bytes(in->lane, in->data, received.data(), end);
  std::vector<std::byte> want(end, kUntouched);
  for (const Place& place : places) {
    for (std::size_t i = place.lo; i < place.hi; ++i) want[i] = byte_of(previous, i);
  }
  for (std::size_t i = 0; i < end; ++i) ASSERT_EQ(int(received[i]), int(want[i])) << "byte " << i;
}
void bytes_of_every_number(Rank& rank, const Site& site) {
  sizes_and_places_of_every_kind(rank, site, runtime::ElementType::bytes);
}
void odd_numbers_of_16_bit_values(Rank& rank, const Site& site) {
  sizes_and_places_of_every_kind(rank, site, runtime::ElementType::bf16);
}

// A ring, a hundred times round: each operation meets its counterpart, whatever comes early.
void ring_keeps_its_order(Rank& rank, const Site& site) {
  Communicator comm = communicator(rank, site);
  const int ranks = rank.world_size, next = (rank.id + 1) % ranks, previous = (rank.id + ranks - 1) % ranks;
  BufferPtr token = floats(rank, 2);
  set(token, 0, float(rank.id));
  for (int turn = 1; turn <= 100; ++turn) {
    Op op;
    op.kind = OpKind::send;
    const Piece pieces[] = {send_to(next, token, 0, 1), receive_from(previous, token, 1, 1)};
    op = comm.exchange(rank.device.communication_queue(), op, pieces);
    comm.wait(rank.device.communication_queue().record(), op);
    set(token, 0, at(token, 1));
  }
  EXPECT_EQ(at(token, 0), float((rank.id + 100 * (ranks - 1)) % ranks));
}

Op agreement_of(const Rank& rank, OpKind kind) {
  Op op = op_of(rank, kind, 1);
  op.step = 7;
  return op;
}

void all_hear_the_same_votes(Rank& rank, const Site&) {
  runtime::Ballot ballot;
  ballot.words[0] = 10 * rank.id;
  ballot.hand_over = std::vector<std::int64_t>(std::size_t(rank.id), 5);
  const runtime::Agreement told = rank.control.agree(agreement_of(rank, OpKind::vote), 0, ballot, at_last(rank));
  EXPECT_EQ(told.members, everybody(rank));
  EXPECT_TRUE(told.dead.empty());
  for (std::size_t i = 0; i < told.ballots.size(); ++i) {
    EXPECT_EQ(told.ballots[i].words[0], std::int64_t(10 * i));
    EXPECT_EQ(told.ballots[i].hand_over.size(), i);
  }
  rank.control.enter_epoch(1, told.members);
  EXPECT_EQ(rank.control.epoch(), 1u);
  EXPECT_EQ(rank.control.members(), told.members);
}

void a_revoke_cuts_a_vote_short_and_no_agreement(Rank& rank, const Site&) {
  const Op vote = agreement_of(rank, OpKind::vote);
  if (rank.id == 0) {
    rank.clock.sleep_until(soon(rank));
    rank.control.revoke(0, vote, ErrorKind::timeout);
  } else {
    EXPECT_EQ(failure_of([&] { rank.control.agree(vote, 0, {}, at_last(rank)); }), ErrorKind::revoked);
  }
  for (const runtime::TimeNs end = at_last(rank); !rank.control.revoked(0) && rank.clock.now() < end;)
    rank.clock.sleep_until(rank.clock.now() + kMillisecond);  // it reaches everybody, in a while
  EXPECT_TRUE(rank.control.revoked(0));
  const runtime::Agreement told = rank.control.agree(agreement_of(rank, OpKind::agree), 0, {}, at_last(rank));
  EXPECT_EQ(told.members, everybody(rank));
}

void who_does_not_answer_is_fenced(Rank& rank, const Site&) {
  const Op op = agreement_of(rank, OpKind::agree);
  if (rank.id == 1) {
    rank.clock.sleep_until(rank.clock.now() + 4 * kImpatience);  // too late
    EXPECT_EQ(failure_of([&] { rank.control.agree(op, 0, {}, at_last(rank)); }), ErrorKind::fenced);
    return;
  }
  const runtime::Agreement told = rank.control.agree(op, 0, {}, soon(rank));
  EXPECT_EQ(told.dead, std::vector{1});
  EXPECT_EQ(told.members, (std::vector{0, 2}));
}

}  // namespace

std::vector<Claim> claims_of_collectives() {
  return {
      {"SumsAreThoseOfTheTreeOnOne", 1, sums_are_those_of_the_tree},
      {"SumsAreThoseOfTheTreeOnTwo", 2, sums_are_those_of_the_tree},
      {"SumsAreThoseOfTheTreeOnFive", 5, sums_are_those_of_the_tree},
      {.name = "ALibrarysSumsAreExactOnTwo",
       .ranks = 2,
       .body = a_librarys_sums_are_exact,
       .only_over_nccl = "this transport has no library that adds up"},
      {.name = "ALibrarysSumsAreExactOnFive",
       .ranks = 5,
       .body = a_librarys_sums_are_exact,
       .only_over_nccl = "this transport has no library that adds up"},
      {"GathersEveryShardOnTwo", 2, gathers_every_shard},
      {"GathersEveryShardOnFive", 5, gathers_every_shard},
      {"EverybodyToEverybody", 4, everybody_to_everybody},
      {"BytesOfEveryNumberOnTwo", 2, bytes_of_every_number},
      {"BytesOfEveryNumberOnFive", 5, bytes_of_every_number},
      {"OddNumbersOf16BitValues", 3, odd_numbers_of_16_bit_values},
      {"ARingKeepsItsOrder", 5, ring_keeps_its_order},
      {"AllHearTheSameVotes", 4, all_hear_the_same_votes},
      {"ARevokeCutsAVoteShortAndNoAgreement", 3, a_revoke_cuts_a_vote_short_and_no_agreement},
      {"WhoDoesNotAnswerIsFenced", 3, who_does_not_answer_is_fenced},
  };
}

std::vector<Claim> all_claims() {
  std::vector<Claim> all = claims_of_communicators();
  for (const Claim& claim : claims_of_collectives()) all.push_back(claim);
  return all;
}

}  // namespace seeksim::conformance
