// A peer that is stopped, cut off or killed in the middle of a message over TCP: whoever gave the message up has its
// buffer back at once, and can go on with the others.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/backend/machine/host_device.h"
#include "runtime/backend/machine/wall_clock.h"
#include "runtime/backend/messages/message_transport.h"
#include "runtime/backend/wire/tcp_world.h"
#include "tests/support/joined_sockets.h"

namespace seeksim::runtime {
namespace {

constexpr std::size_t kBytes = std::size_t(4) << 20;  // more than two sockets hold

// A rank of two whose peer runs only when the test turns it.
struct Side {
  Side(int own, std::vector<Socket> peers)
      : rank(own),
        wire(rank, std::move(peers)),
        device(loop, signals, rank, {2 * kBytes, 1 << 20, 1 << 20}),
        transport(loop, wire, signals, recorder, rank, 7),
        buffer(device.allocate(kBytes, MemoryTag::communication, "a buffer of this test")) {
    loop.add(wire);
  }
  ~Side() { loop.remove(wire); }
  void turn() {
    for (int i = 0; i < 1000; ++i) loop.turn();
  }
  void begin_to_send(Comm over) {
    Op op;
    op.kind = OpKind::send;
    op.sequence = 1;
    const Piece piece{1 - rank, true, buffer.get(), 0, kBytes};
    ASSERT_EQ(transport.exchange(device.communication_queue(), over, op, {&piece, 1}, DiesAt::never),
              CommResult::success);
    turn();
  }

  const int rank;
  WallClock wall;
  ProgressLoop loop{wall};
  Signals signals;
  Recorder recorder;
  TcpWire wire;
  HostDevice device;
  MessageTransport transport;
  BufferPtr buffer;
};

class TakenBack : public testing::Test {
 protected:
  TakenBack() {
    auto [of_one, of_two] = test::joined_sockets();
    one.emplace(0, std::move(of_one));
    two.emplace(1, std::move(of_two));
    // The one that comes first waits for nothing: its arrival is already with the other one.
    EXPECT_THROW(create(*two, 0), SeamError);
    comm = create(*one, kSecond);
  }
  static Comm create(Side& side, TimeNs patience) {
    Op op;
    op.kind = OpKind::comm_create;
    op.rank = side.rank;
    CommSpec spec;
    spec.name = "world";
    spec.id = 1;
    spec.members = {0, 1};
    return side.transport.create(op, spec, side.loop.now() + patience);
  }
  std::optional<Side> one, two;
  Comm comm;
};

TEST_F(TakenBack, WhatAStoppedPeerDoesNotTake) {
  std::memset(one->buffer->data, 1, kBytes);
  one->begin_to_send(comm);
  ASSERT_TRUE(one->wire.unsent(1)) << "the sockets held all of it: nothing was in the middle";
  const Comm all[] = {comm};
  EXPECT_EQ(one->transport.abort(all), CommResult::success);
  // The buffer is the caller's again; what had begun goes out as it was.
  std::memset(one->buffer->data, 2, kBytes);
  EXPECT_TRUE(one->wire.unsent(1));
}

TEST_F(TakenBack, WhatAKilledPeerDoesNotTake) {
  one->begin_to_send(comm);
  ASSERT_TRUE(one->wire.unsent(1));
  two.reset();
  one->turn();
  EXPECT_TRUE(one->wire.closed(1));
  const Comm all[] = {comm};
  EXPECT_EQ(one->transport.abort(all), CommResult::success);
}

}  // namespace

// The wire alone: bytes go out as they were when they were taken back, and none come into a buffer that was.
TEST(TcpTakesBack, ItsPeerGetsWhatWasSent) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  std::vector<Socket> of_one(2), of_two(2);
  of_one[1] = Socket(ends[0]);
  of_two[0] = Socket(ends[1]);
  TcpWire one(0, std::move(of_one)), two(1, std::move(of_two));
  struct Ear final : Wire::Listener {
    void arrived(int, std::span<const std::byte>, Wire::Ticket payload) override {
      ticket = payload;
      wire->receive(payload, into);
    }
    void over(Wire::Ticket) override { ++ended; }
    void damaged(int, Wire::Ticket) override { ADD_FAILURE() << "nothing damages it"; }
    void failed(const std::string&) override {}
    TcpWire* wire = nullptr;
    std::vector<std::byte> into = std::vector<std::byte>(kBytes);
    Wire::Ticket ticket = 0;
    int ended = 0;
  } sender, receiver;
  sender.wire = &one;
  receiver.wire = &two;
  one.listen(&sender);
  two.listen(&receiver);
  const auto settle = [&] {
    while (one.poll() || two.poll()) {
    }
  };
  std::vector<std::byte> payload(kBytes, std::byte{1});
  const std::vector<std::byte> head(8);
  const Wire::Ticket sent = one.send(1, head, payload);
  ASSERT_TRUE(one.unsent(1));
  EXPECT_TRUE(one.take_back(sent));
  std::fill(payload.begin(), payload.end(), std::byte{2});
  settle();
  EXPECT_EQ(sender.ended, 0);
  EXPECT_EQ(receiver.ended, 1);
  EXPECT_EQ(receiver.into, std::vector<std::byte>(kBytes, std::byte{1}));

  one.send(1, head, payload);
  for (int i = 0; i < 4; ++i) two.poll();
  ASSERT_EQ(receiver.ended, 1);
  EXPECT_TRUE(two.take_back(receiver.ticket));
  std::fill(receiver.into.begin(), receiver.into.end(), std::byte{3});
  settle();
  EXPECT_EQ(receiver.ended, 1);
  EXPECT_EQ(receiver.into, std::vector<std::byte>(kBytes, std::byte{3}));
  // The stream is where it should be: the next message comes whole.
  one.send(1, head, payload);
  settle();
  EXPECT_EQ(receiver.ended, 2);
  EXPECT_EQ(receiver.into, payload);
}

}  // namespace seeksim::runtime
