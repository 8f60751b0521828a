// Exchanges: what meets what, when it is there, and what each fate does to it.
#include "sim/activity.h"
#include "tests/sim/sim_test.h"

namespace seeksim::sim {
namespace {

// Rank 0 sends n floats of value 3.5 to rank 1, each with a watchdog of 60 s; hands both a way to look at what
// happened.
struct OneMessage {
  ErrorKind sender = ErrorKind::count_, receiver = ErrorKind::count_;
  runtime::TimeNs sent_ns = 0, received_ns = 0;
  std::uint32_t got = 0;
  std::string receiver_text;
  std::vector<std::string> story;
  WorldResult result;
};
OneMessage one_message(const PieceFate* fate, std::size_t n = 1, const std::string& network = "ib",
                       runtime::TimeNs timeout = 60 * kSecond, runtime::TimeNs start = 0) {
  OneMessage out;
  World world(spread_world(2, 1, network));
  world.on_event([&](runtime::TimeNs, int, const std::string& text) { out.story.push_back(text); });
  out.result = world.run([&](Rank& rank) {
    const Comm comm = make_comm(rank);
    rank.clock.sleep_until(start);
    BufferPtr b = floats(rank, n, rank.id == 0 ? 3.5f : 0.0f);
    const Op op = op_of(rank, rank.id == 0 ? OpKind::send : OpKind::send, 1);
    const Piece piece = rank.id == 0 ? send_to(1, b, 0, n, fate) : receive_from(0, b, 0, n);
    const Event done = exchange(rank, comm, op, {piece});
    std::string text;
    const ErrorKind failure = failure_of([&] { rank.wait(done, op, timeout, comm); }, &text);
    (rank.id == 0 ? out.sender : out.receiver) = failure;
    (rank.id == 0 ? out.sent_ns : out.received_ns) = rank.clock.now();
    if (rank.id == 1) {
      out.got = word(b, 0);
      out.receiver_text = text;
    }
    const Comm comms[] = {comm};
    rank.transport.abort(comms);
    rank.device.drain();
  });
  EXPECT_TRUE(all_returned(out.result));
  return out;
}

bool tells(const OneMessage& m, const std::string& what) {
  for (const std::string& text : m.story)
    if (text.find(what) != std::string::npos) return true;
  return false;
}

const std::uint32_t kBits = 0x40600000u;  // 3.5f

TEST(Fate, NoneTheMessageArrives) {
  const OneMessage m = one_message(nullptr);
  EXPECT_EQ(m.sender, ErrorKind::count_);
  EXPECT_EQ(m.receiver, ErrorKind::count_);
  EXPECT_EQ(m.got, kBits);
}

TEST(Fate, DelayComesOnTop) {
  PieceFate fate;
  fate.delay_ns = 7 * kSecond;
  const OneMessage plain = one_message(nullptr), late = one_message(&fate);
  EXPECT_EQ(late.received_ns, plain.received_ns + 7 * kSecond);
  EXPECT_EQ(late.got, kBits);
  EXPECT_GE(fate.touched_ns, 0);
}

TEST(Fate, SlowStretchesTheTransfer) {
  PieceFate fate;
  fate.slow_factor = 10;
  const std::size_t n = 2'500'000;  // 10 MB: 0.2 ms
  const OneMessage plain = one_message(nullptr, n), slow = one_message(&fate, n);
  EXPECT_NEAR(double(slow.received_ns - plain.received_ns), 9 * 2e5, 2e5);
}

TEST(Fate, DropCompletesTheSenderOnly) {
  PieceFate fate;
  fate.drop = true;
  const OneMessage m = one_message(&fate);
  EXPECT_EQ(m.sender, ErrorKind::count_);
  EXPECT_EQ(m.receiver, ErrorKind::timeout);
  EXPECT_NE(m.receiver_text.find("message of rank 0 never came"), std::string::npos) << m.receiver_text;
  EXPECT_TRUE(tells(m, "is lost"));
  EXPECT_GE(fate.touched_ns, 0);
}

TEST(Fate, CorruptIsNoticedByTheChecksum) {
  PieceFate fate;
  fate.corrupt = true;
  fate.corrupt_bit = 3;
  const OneMessage m = one_message(&fate);
  EXPECT_EQ(m.sender, ErrorKind::count_);
  EXPECT_EQ(m.receiver, ErrorKind::corrupt);
}

TEST(Fate, CorruptWithoutAChecksumIsSilent) {
  PieceFate fate;
  fate.corrupt = true;
  fate.checksum = false;
  fate.corrupt_bit = 32 + 3;  // modulo the payload
  const OneMessage m = one_message(&fate);
  EXPECT_EQ(m.receiver, ErrorKind::count_);
  EXPECT_EQ(m.got, kBits ^ 8u);
}

PieceFate cut(runtime::TimeNs from, runtime::TimeNs until) {
  PieceFate fate;
  fate.down_from = from;
  fate.down_until = until;
  return fate;
}

TEST(Fate, AShortCutIsHiddenByRetransmission) {
  const PieceFate fate = cut(0, 20 * kSecond);
  const OneMessage m = one_message(&fate);
  EXPECT_EQ(m.receiver, ErrorKind::count_);
  EXPECT_EQ(m.got, kBits);
  EXPECT_GE(m.received_ns, 20 * kSecond);
  EXPECT_LT(m.received_ns, 21 * kSecond);
  EXPECT_GE(fate.touched_ns, 0);
}

TEST(Fate, ALongCutIsReportedToBothEnds) {
  const PieceFate fate = cut(0, runtime::kForever);
  const OneMessage m = one_message(&fate);
  EXPECT_EQ(m.sender, ErrorKind::remote_error);
  EXPECT_EQ(m.receiver, ErrorKind::remote_error);
  EXPECT_NEAR(double(m.received_ns), 30.06e9, 1e8);
  EXPECT_TRUE(tells(m, "is down"));
}

TEST(Fate, OverTcpALongCutIsSilenceForAQuarterOfAnHour) {
  const PieceFate fate = cut(0, runtime::kForever);
  const OneMessage m = one_message(&fate, 1, "tcp");
  EXPECT_EQ(m.sender, ErrorKind::timeout);
  EXPECT_EQ(m.receiver, ErrorKind::timeout);
}

TEST(Fate, ACutThatIsOverOrYetToComeTouchesNothing) {
  const PieceFate past = cut(0, 5 * kSecond), future = cut(100 * kSecond, runtime::kForever);
  for (const PieceFate* fate : {&past, &future}) {
    const OneMessage m = one_message(fate, 1, "ib", 60 * kSecond, 10 * kSecond);
    EXPECT_EQ(m.receiver, ErrorKind::count_);
    EXPECT_EQ(fate->touched_ns, -1);
  }
}

TEST(Fate, ACutInTheMiddleOfATransferIsSeen) {
  const PieceFate fate = cut(10 * kSecond + 100 * kMicrosecond, runtime::kForever);
  const OneMessage m = one_message(&fate, 2'500'000, "ib", 60 * kSecond, 10 * kSecond);  // 0.2 ms
  EXPECT_EQ(m.receiver, ErrorKind::remote_error);
}

// ---- matching

TEST(Exchange, MovesDataRoundARing) {
  World world(small_world(8));
  std::vector<float> got(8);
  const WorldResult result = world.run([&](Rank& rank) {
    const Comm comm = make_comm(rank);
    const int n = rank.world_size, next = (rank.id + 1) % n, previous = (rank.id + n - 1) % n;
    BufferPtr b = floats(rank, 2, float(rank.id));
    const Op op = op_of(rank, OpKind::all_gather, 1);
    rank.wait(exchange(rank, comm, op, {send_to(next, b, 0, 1), receive_from(previous, b, 1, 1)}), op, kSecond, comm);
    got[std::size_t(rank.id)] = at(b, 1);
  });
  EXPECT_TRUE(all_returned(result));
  for (int i = 0; i < 8; ++i) EXPECT_EQ(got[std::size_t(i)], float((i + 7) % 8));
  EXPECT_EQ(result.comm[std::size_t(OpKind::all_gather)].calls, 8u);
  EXPECT_EQ(result.comm[std::size_t(OpKind::all_gather)].bytes_sent_per_rank_max, 4u);
}

// Everybody to everybody, several pieces a pair, pieces in any order of peers: those of one pair meet in order.
TEST(Exchange, PiecesOfAPairMeetInOrder) {
  constexpr int n = 12, each = 3;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    World world(small_world(n, seed));
    const WorldResult result = world.run([&](Rank& rank) {
      const Comm comm = make_comm(rank);
      BufferPtr out = floats(rank, n * each), in = floats(rank, n * each);
      std::vector<Piece> pieces;
      for (int i = 0; i < n; ++i) {
        const int peer = (i * 5 + int(seed) + rank.id) % n;  // itself included
        for (int k = 0; k < each; ++k) {
          at(out, std::size_t(peer * each + k)) = float(rank.id * 10000 + peer * 100 + k);
          pieces.push_back(send_to(peer, out, std::size_t(peer * each + k), 1));
          pieces.push_back(receive_from(peer, in, std::size_t(peer * each + k), 1));
        }
      }
      const Op op = op_of(rank, OpKind::all_gather, 1);
      rank.wait(exchange(rank, comm, op, pieces), op, kSecond, comm);
      for (int peer = 0; peer < n; ++peer)
        for (int k = 0; k < each; ++k)
          EXPECT_EQ(at(in, std::size_t(peer * each + k)), float(peer * 10000 + rank.id * 100 + k));
    });
    EXPECT_TRUE(all_returned(result));
  }
}

TEST(Exchange, MeetsBySequenceAndNotByOrderOfArrival) {
  World world(small_world(2));
  const WorldResult result = world.run([&](Rank& rank) {
    const Comm comm = make_comm(rank);
    BufferPtr b = floats(rank, 2);
    runtime::Queue* queues[] = {&rank.device.communication_queue(), &rank.device.copy_queue()};
    for (const std::uint64_t i : rank.id == 0 ? std::vector<std::uint64_t>{1, 2} : std::vector<std::uint64_t>{2, 1}) {
      if (rank.id == 0) at(b, i - 1) = float(i);
      const Piece piece = rank.id == 0 ? send_to(1, b, i - 1, 1) : receive_from(0, b, i - 1, 1);
      EXPECT_EQ(rank.transport.exchange(*queues[i - 1], comm, op_of(rank, OpKind::send, i), {&piece, 1}),
                CommResult::success);
      rank.clock.sleep_until(rank.clock.now() + kSecond);
    }
    rank.device.drain();
    EXPECT_EQ(at(b, 0), 1.0f);
    EXPECT_EQ(at(b, 1), 2.0f);
  });
  EXPECT_TRUE(all_returned(result));
}

TEST(Exchange, ADroppedMessageIsNotReplacedByTheNext) {
  PieceFate fate;
  fate.drop = true;
  World world(small_world(2));
  const WorldResult result = world.run([&](Rank& rank) {
    const Comm comm = make_comm(rank);
    BufferPtr b = floats(rank, 2, 1.0f);
    const Op first = op_of(rank, OpKind::send, 1), second = op_of(rank, OpKind::send, 2);
    if (rank.id == 0) {
      exchange(rank, comm, first, {send_to(1, b, 0, 1, &fate)});
      exchange(rank, comm, second, {send_to(1, b, 1, 1)});
    } else {
      const Event done = exchange(rank, comm, first, {receive_from(0, b, 0, 1)});
      EXPECT_EQ(failure_of([&] { rank.wait(done, first, kSecond, comm); }), ErrorKind::timeout);
    }
    const Comm comms[] = {comm};
    rank.transport.abort(comms);
    rank.device.drain();
  });
  EXPECT_TRUE(all_returned(result));
}

struct Differs {
  OpKind kind;
  std::size_t floats;
};
void expect_mismatch(Differs differs) {
  World world(small_world(2));
  const WorldResult result = world.run([&](Rank& rank) {
    const Comm comm = make_comm(rank);
    BufferPtr b = floats(rank, 8);
    const Op op = op_of(rank, rank.id == 0 ? OpKind::all_gather : differs.kind, 1);
    const Piece piece = rank.id == 0 ? send_to(1, b, 0, 4) : receive_from(0, b, 0, differs.floats);
    const Event done = exchange(rank, comm, op, {piece});
    EXPECT_EQ(failure_of([&] { rank.wait(done, op, 600 * kSecond, comm); }), ErrorKind::mismatch);
    EXPECT_LT(rank.clock.now(), kSecond);  // at once, not after the watchdog
  });
  EXPECT_TRUE(all_returned(result));
}
TEST(Exchange, AnotherKindOfOperationIsAMismatchOnBothSides) { expect_mismatch({OpKind::broadcast, 4}); }
TEST(Exchange, AnotherSizeIsAMismatchOnBothSides) { expect_mismatch({OpKind::all_gather, 5}); }

TEST(Exchange, PiecesOfARankShareItsAdapter) {
  runtime::TimeNs one = 0, four = 0;
  for (const int receivers : {1, 4}) {
    WorldPlan plan = spread_world(5);
    plan.noise = 0;
    World world(plan);
    world.run([&](Rank& rank) {
      const Comm comm = make_comm(rank);
      const std::size_t n = 1'250'000;  // 5 MB: 0.1 ms
      BufferPtr b = floats(rank, n);
      const Op op = op_of(rank, OpKind::broadcast, 1);
      const runtime::TimeNs start = rank.clock.now();
      if (rank.id == 0) {
        std::vector<Piece> pieces;
        for (int i = 1; i <= receivers; ++i) pieces.push_back(send_to(i, b, 0, n));
        rank.wait(exchange(rank, comm, op, pieces), op, kSecond, comm);
        (receivers == 1 ? one : four) = rank.clock.now() - start;
      } else if (rank.id <= receivers) {
        rank.wait(exchange(rank, comm, op, {receive_from(0, b, 0, n)}), op, kSecond, comm);
      }
    });
  }
  EXPECT_NEAR(double(one), 104e3, 1e3);
  EXPECT_NEAR(double(four), 404e3, 1e3);
}

TEST(Exchange, AStaleEpochIsNeverMatchedAndIsCounted) {
  World world(small_world(2));
  int stale = 0;
  world.on_event([&](runtime::TimeNs, int, const std::string& text) {
    stale += text.find("is stale") != std::string::npos ? 1 : 0;
  });
  const WorldResult result = world.run([&](Rank& rank) {
    const Comm old = make_comm(rank);
    BufferPtr b = floats(rank, 1, float(rank.id));
    const std::vector<int> all = {0, 1};
    if (rank.id == 0) {  // goes on to epoch 1, and sends there
      rank.control.enter_epoch(1, all);
      CommSpec spec;
      spec.id = 1;  // the same id, even
      spec.epoch = 1;
      spec.members = all;
      EXPECT_EQ(failure_of([&] { rank.transport.create(op_of(rank, OpKind::comm_create, 1, 1), spec, kSecond); }),
                ErrorKind::timeout);
      rank.clock.sleep_until(20 * kSecond);
    } else {  // still receives in epoch 0
      rank.clock.sleep_until(kMillisecond * 500);
      const Op op = op_of(rank, OpKind::send, 1, 0);
      const Event done = exchange(rank, old, op, {receive_from(0, b, 0, 1)});
      EXPECT_EQ(failure_of([&] { rank.wait(done, op, kSecond, old); }), ErrorKind::timeout);
      const Comm comms[] = {old};
      rank.transport.abort(comms);
    }
  });
  EXPECT_TRUE(all_returned(result));
  EXPECT_EQ(stale, 1);
}

TEST(Exchange, ARankThatNeverJoinsEndsInATimeoutThatNamesIt) {
  World world(small_world(4));
  std::string text;
  const WorldResult result = world.run([&](Rank& rank) {
    const Comm comm = make_comm(rank);
    if (rank.id == 3) rank.clock.sleep_until(runtime::kForever);
    BufferPtr b = floats(rank, 2);
    const Op op = op_of(rank, OpKind::all_gather, 1);
    const Event done =
        exchange(rank, comm, op, {send_to((rank.id + 1) % 4, b, 0, 1), receive_from((rank.id + 3) % 4, b, 1, 1)});
    if (rank.id == 0) {
      EXPECT_EQ(failure_of([&] { rank.wait(done, op, 600 * kSecond, comm); }, &text), ErrorKind::timeout);
      rank.control.revoke(0, op, ErrorKind::timeout);
    } else {  // rank 1's neighbours have both come: it is done, and learns nothing
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

// More pieces than are searched one by one, and only the first two peers are in another order.
TEST(Exchange, FindsEachPeerOfManyPieces) {
  constexpr int kPeers = 12;
  World world(spread_world(kPeers + 1));
  const WorldResult result = world.run([](Rank& rank) {
    const Comm comm = make_comm(rank);
    const BufferPtr b = floats(rank, kPeers + 1, -1.0f);
    const Op op = op_of(rank, OpKind::broadcast, 1);
    std::vector<Piece> pieces;
    if (rank.id == 0) {
      for (int peer = 1; peer <= kPeers; ++peer) at(b, std::size_t(peer)) = float(peer);
      for (int peer = 1; peer <= kPeers; ++peer) pieces.push_back(send_to(peer, b, std::size_t(peer), 1));
      std::swap(pieces[0], pieces[1]);
    } else {
      pieces.push_back(receive_from(0, b, 0, 1));
    }
    rank.wait(exchange(rank, comm, op, pieces), op, kSecond, comm);
    if (rank.id > 0) {
      EXPECT_EQ(at(b, 0), float(rank.id));
    }
  });
  EXPECT_TRUE(all_returned(result));
}

TEST(Exchange, IsRecordedWithItsFirstPieces) {
  World world(spread_world(2));
  const WorldResult result = world.run([](Rank& rank) {
    const Comm comm = make_comm(rank);
    const BufferPtr out = floats(rank, 10), more = floats(rank, 10), in = floats(rank, 10);
    const int peer = 1 - rank.id;
    Op op = op_of(rank, OpKind::all_gather, 1);
    op.bytes = 7 * sizeof(float);
    rank.wait(exchange(rank, comm, op,
                       {send_to(peer, out, 3, 2), send_to(peer, more, 1, 5), receive_from(peer, in, 2, 2),
                        receive_from(peer, in, 4, 5)}),
              op, kSecond, comm);
    const runtime::Payload payload = rank.recorder.records(1).at(0).payload;
    EXPECT_EQ(payload.from, out->id);
    EXPECT_EQ(payload.from_offset, 3 * sizeof(float));
    EXPECT_EQ(payload.to, in->id);
    EXPECT_EQ(payload.to_offset, 2 * sizeof(float));
    EXPECT_EQ(payload.count, op.bytes / runtime::size_of(payload.type));
  });
  EXPECT_TRUE(all_returned(result));
}

TEST(SharedComm, KnowsThePlaceOfEachMemberInAnyOrder) {
  for (const std::vector<int>& members : {std::vector<int>{4, 5, 6}, {6, 5, 4}, {5, 4, 6}, {1, 7, 3}}) {
    const SharedComm comm(1, 0, runtime::Axis::data, members, 2);
    for (std::size_t i = 0; i < members.size(); ++i) EXPECT_EQ(comm.position(members[i]), int(i));
    EXPECT_EQ(comm.position(2), -1);
  }
}

}  // namespace
}  // namespace seeksim::sim
