// What a transport takes of the messages that come: not those of a run that is over, since the next one on the same
// processes uses the same names; and of a peer's nothing that was not agreed on.
#include "runtime/backend/messages/message_transport.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tests/support/transport_side.h"

namespace seeksim::runtime {
namespace {

// Keeps what is sent until its receiver takes it.
class Post final : public Wire {
 public:
  Ticket send(int, std::span<const std::byte> head, std::span<const std::byte>) override {
    sent.emplace_back(head.begin(), head.end());
    return 0;
  }
  std::uint64_t announced_bytes(Ticket) const override { return announced; }
  void receive(Ticket, std::span<std::byte>) override {}
  void discard(Ticket) override { ++discarded; }
  bool poll() override { return false; }
  void deliver(int from, std::span<const std::byte> head, Ticket payload = 0) {
    listener_->arrived(from, head, payload);
  }
  void damage(int from, Ticket payload) { listener_->damaged(from, payload); }

  std::uint64_t announced = 0;
  int discarded = 0;
  std::vector<std::vector<std::byte>> sent;
};

using PostSide = test::TransportSide<Post>;

// What rank 1 sends to rank 0 when it comes to the meeting.
std::vector<std::byte> arrival(std::uint64_t run) {
  PostSide other(1, run);
  EXPECT_THROW(other.create(0), SeamError);  // no peer answers
  return other.post.sent.at(0);
}

TEST(MessagesOfARun, AreTakenInThatRun) {
  PostSide first(0, 7);
  first.post.deliver(1, arrival(7));
  EXPECT_NE(first.create(kSecond).handle, 0u);
  EXPECT_EQ(first.transport.thrown_away(), 0u);
}

TEST(MessagesOfARun, AreThrownAwayInAnother) {
  PostSide first(0, 8);
  first.post.deliver(1, arrival(7));
  EXPECT_EQ(first.transport.thrown_away(), 1u);
  EXPECT_THROW(first.create(kSecond / 100), SeamError);
}

// Rank 0 awaits eight bytes from rank 1, in the middle of a buffer that holds other values. What comes is the message
// that rank 1 sends, but for what each test changes in it.
class MessageOfAPeer : public testing::Test {
 protected:
  static constexpr std::size_t kLo = 64, kHi = 72;

  MessageOfAPeer() {
    PostSide sender(1, 7);
    sender.post.deliver(0, all_have_come());
    const Comm of_sender = sender.create(kSecond);
    sender.post.sent.clear();
    const BufferPtr sent = filled(sender, 7);
    const Piece piece{0, true, sent.get(), kLo, kHi};
    exchange(sender, of_sender, 1, {&piece, 1});
    message = sender.post.sent.at(0);

    receiver.post.deliver(1, arrival(7));
    comm = receiver.create(kSecond);
    exchange(receiver, comm, 1, {&awaited, 1});
  }
  // What the first member sends to the other one.
  static std::vector<std::byte> all_have_come() {
    PostSide first(0, 7);
    first.post.deliver(1, arrival(7));
    first.create(kSecond);
    return first.post.sent.at(0);
  }
  static BufferPtr filled(PostSide& side, int value) {
    BufferPtr made = side.device.allocate(256, MemoryTag::communication, "a buffer of this test");
    std::memset(made->data, value, 256);
    return made;
  }
  static void exchange(PostSide& side, Comm over, std::uint64_t sequence, std::span<const Piece> pieces) {
    Op op;
    op.kind = OpKind::send;
    op.sequence = sequence;
    EXPECT_EQ(side.transport.exchange(side.device.communication_queue(), over, op, pieces, DiesAt::never),
              CommResult::success);
    turn(side);
  }
  static void turn(PostSide& side) {
    for (int i = 0; i < 10; ++i) side.loop.turn();
  }
  // A field of the message's head, by its place in MessageTransport::Head.
  template <class T>
  void change(std::size_t at, T value) {
    std::memcpy(message.data() + at, &value, sizeof value);
  }
  void deliver(Wire::Ticket payload = 0) {
    receiver.post.deliver(1, message, payload);
    turn(receiver);
  }
  // The communicator fails, and nothing outside of the piece is touched.
  void expect_refused(const std::string& what) {
    EXPECT_EQ(receiver.transport.async_error(comm), CommResult::remote_error);
    ASSERT_FALSE(receiver.transport.complaints().empty());
    EXPECT_NE(receiver.transport.complaints()[0].text.find("rank 1 sent " + what), std::string::npos)
        << receiver.transport.complaints()[0].text;
    for (std::size_t i = 0; i < 256; ++i) {
      const bool outside = i < kLo || i >= kHi;
      EXPECT_TRUE(!outside || buffer->data[i] == std::byte{1}) << i;
    }
  }

  PostSide receiver{0, 7};
  BufferPtr buffer = filled(receiver, 1);
  const Piece awaited{1, false, buffer.get(), kLo, kHi};
  Comm comm;
  std::vector<std::byte> message;
};

TEST_F(MessageOfAPeer, LandsInItsPiece) {
  deliver();
  EXPECT_EQ(receiver.transport.async_error(comm), CommResult::success);
  for (std::size_t i = 0; i < 256; ++i)
    EXPECT_EQ(buffer->data[i], i < kLo || i >= kHi ? std::byte{1} : std::byte{7}) << i;
}
TEST_F(MessageOfAPeer, IsRefusedWithMoreBytesThanItsHeadSays) {
  message.resize(message.size() + 100, std::byte{9});
  deliver();
  expect_refused("108 bytes under a head that says 8");
}
TEST_F(MessageOfAPeer, IsRefusedWithFewerBytesThanItsHeadSays) {
  message.resize(message.size() - 4);
  deliver();
  expect_refused("4 bytes under a head that says 8");
}
TEST_F(MessageOfAPeer, IsRefusedWithAPayloadOfAnotherLength) {
  message.resize(message.size() - 8);
  receiver.post.announced = std::uint64_t(1) << 63;
  deliver(5);
  expect_refused("9223372036854775808 bytes under a head that says 8");
  EXPECT_EQ(receiver.post.discarded, 1);
}
TEST_F(MessageOfAPeer, IsRefusedWithAnotherMagicNumber) {
  change(0, std::uint32_t(0x58585858));
  deliver();
  expect_refused("what is no message of this program");
}
TEST_F(MessageOfAPeer, IsRefusedWithAKindThatDoesNotExist) {
  change(4, std::uint8_t(200));
  deliver();
  expect_refused("what is no message of this program");
}
TEST_F(MessageOfAPeer, IsRefusedWithoutAHead) {
  message.resize(10);
  deliver();
  expect_refused("a message of 10 bytes");
}
TEST_F(MessageOfAPeer, IsRefusedWhenItsOperationIsOver) {
  deliver();
  deliver();
  expect_refused("a piece of operation #1, which is over");
}
// The operation waits for a second piece, so it is not over.
TEST_F(MessageOfAPeer, IsRefusedWhenItCameBefore) {
  deliver();
  const Piece pieces[] = {awaited, awaited};
  exchange(receiver, comm, 2, pieces);
  change(24, std::uint64_t(2));
  deliver();
  EXPECT_EQ(receiver.transport.async_error(comm), CommResult::success);
  deliver();
  expect_refused("piece 0 of");
}
TEST_F(MessageOfAPeer, IsRefusedWhenTooMuchCameThatNobodyAwaits) {
  message.resize(80 + 4016);
  change(56, std::uint64_t(4016));
  std::uint64_t sent = 0;
  for (std::uint64_t sequence = 2; sequence < 30'000 && receiver.transport.complaints().empty(); ++sequence) {
    change(24, sequence);
    receiver.post.deliver(1, message);
    sent += message.size();
  }
  expect_refused("more than 64 MiB that no operation awaits");
  EXPECT_LT(sent, std::uint64_t(70) << 20);
}

// Damage is no lie: the communicator fails as it does when a fault rule damages a message, and is built again.
TEST_F(MessageOfAPeer, FailsItsCommunicatorWhenItsHeadWasDamaged) {
  receiver.post.damage(1, 0);
  EXPECT_EQ(receiver.transport.async_error(comm), CommResult::system);
  EXPECT_EQ(receiver.transport.complaints().at(0).text, "a message of rank 1 was damaged on its way");
  EXPECT_EQ(receiver.transport.unmatched(comm).peer, 1);
}
TEST_F(MessageOfAPeer, FailsItsCommunicatorWhenItsPayloadWasDamaged) {
  message.resize(message.size() - 8);
  receiver.post.announced = 8;
  deliver(5);
  EXPECT_EQ(receiver.transport.async_error(comm), CommResult::success);
  receiver.post.damage(1, 5);
  turn(receiver);
  EXPECT_EQ(receiver.transport.async_error(comm), CommResult::system);
  EXPECT_NE(receiver.transport.complaints().at(0).text.find("a message of rank 1 was damaged on its way: send #1"),
            std::string::npos)
      << receiver.transport.complaints()[0].text;
  EXPECT_EQ(receiver.transport.unmatched(comm).peer, 1);
  EXPECT_TRUE(receiver.transport.unmatched(comm).waits_for_send);
}
TEST_F(MessageOfAPeer, LeavesOthersAloneWhenItWasDamaged) {
  receiver.post.damage(5, 0);
  EXPECT_EQ(receiver.transport.async_error(comm), CommResult::success);
}

// The first member says who is in, and names those who were asked to come.
TEST_F(MessageOfAPeer, DoesNotDecideWhoIsInACommunicator) {
  std::vector<std::byte> joined = all_have_come();
  PostSide hears_another(1, 7);
  hears_another.post.deliver(2, joined);
  EXPECT_THROW(hears_another.create(kSecond / 100), SeamError);

  const std::int32_t stranger = 77;
  std::memcpy(joined.data() + 84, &stranger, sizeof stranger);  // behind the head and the list's length
  PostSide hears_of_a_stranger(1, 7);
  hears_of_a_stranger.post.deliver(0, joined);
  EXPECT_THROW(hears_of_a_stranger.create(kSecond), SeamError);
}

}  // namespace
}  // namespace seeksim::runtime
