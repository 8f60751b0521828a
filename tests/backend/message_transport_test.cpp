// Messages of a run that is over: the next run on the same processes uses the same names, and must not take them.
#include "runtime/backend/messages/message_transport.h"

#include <gtest/gtest.h>

#include <vector>

#include "runtime/backend/machine/wall_clock.h"

namespace seeksim::runtime {
namespace {

// Keeps what is sent until its receiver takes it.
class Post final : public Wire {
 public:
  Ticket send(int, std::span<const std::byte> head, std::span<const std::byte>) override {
    sent.emplace_back(head.begin(), head.end());
    return 0;
  }
  void receive(Ticket, std::span<std::byte>) override {}
  void discard(Ticket) override {}
  bool poll() override { return false; }
  void deliver(int from, std::span<const std::byte> head) { listener_->arrived(from, head, 0); }

  std::vector<std::vector<std::byte>> sent;
};

struct Side {
  Side(int rank, std::uint64_t run) : transport(loop, post, signals, recorder, rank, run) {
    op.kind = OpKind::comm_create;
    op.rank = rank;
    spec.name = "world";
    spec.id = 1;
    spec.members = {0, 1};
  }
  Comm create(TimeNs patience) { return transport.create(op, spec, loop.now() + patience); }

  WallClock wall;
  ProgressLoop loop{wall};
  Signals signals;
  Recorder recorder;
  Post post;
  MessageTransport transport;
  Op op;
  CommSpec spec;
};

// What rank 1 sends to rank 0 when it comes to the meeting.
std::vector<std::byte> arrival(std::uint64_t run) {
  Side other(1, run);
  EXPECT_THROW(other.create(0), SeamError);  // nobody answers
  return other.post.sent.at(0);
}

TEST(MessagesOfARun, AreTakenInThatRun) {
  Side first(0, 7);
  first.post.deliver(1, arrival(7));
  EXPECT_NE(first.create(kSecond).handle, 0u);
  EXPECT_EQ(first.transport.thrown_away(), 0u);
}

TEST(MessagesOfARun, AreThrownAwayInAnother) {
  Side first(0, 8);
  first.post.deliver(1, arrival(7));
  EXPECT_EQ(first.transport.thrown_away(), 1u);
  EXPECT_THROW(first.create(kSecond / 100), SeamError);
}

}  // namespace
}  // namespace seeksim::runtime
