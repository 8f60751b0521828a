// Messages of runs that follow each other on the same connections: who has heard of the next run first may begin it.
#include <gtest/gtest.h>

#include <sys/socket.h>

#include <string>
#include <utility>
#include <vector>

#include "runtime/backend/tcp_world.h"

namespace seeksim::test {
namespace {

using runtime::Socket;
using runtime::TcpWire;
using runtime::Wire;

std::span<const std::byte> bytes_of(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

// What came: heads, and payloads as long as "payload".
struct Ear final : Wire::Listener {
  explicit Ear(TcpWire& on) : wire(on) { wire.listen(this); }
  ~Ear() override { wire.listen(nullptr); }
  void arrived(int, std::span<const std::byte> head, Wire::Ticket payload) override {
    heads.emplace_back(reinterpret_cast<const char*>(head.data()), head.size());
    if (payload != 0) wire.receive(payload, {reinterpret_cast<std::byte*>(room), sizeof room});
  }
  void over(Wire::Ticket) override { ++ended; }
  void failed(const std::string& why) override { ADD_FAILURE() << why; }
  TcpWire& wire;
  std::vector<std::string> heads;
  char room[7] = {};
  int ended = 0;
};

class TcpRuns : public testing::Test {
 protected:
  TcpRuns() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    std::vector<Socket> of_one(2), of_two(2);
    of_one[1] = Socket(ends[0]);
    of_two[0] = Socket(ends[1]);
    one.emplace(0, std::move(of_one));
    two.emplace(1, std::move(of_two));
  }
  // Until nothing moves any more.
  void settle() {
    while (one->poll() || two->poll()) {
    }
  }
  void say(const std::string& head, const std::string& payload = "") {
    two->send(0, bytes_of(head), bytes_of(payload));
    settle();
  }
  std::optional<TcpWire> one, two;
};

TEST_F(TcpRuns, AMessageOfARunThatOneHasNotHeardOfIsKept) {
  const std::string payload = "payload";
  two->begin_run();
  say("early", payload);
  one->begin_run();
  say("before anybody listens");
  Ear ear(*one);
  say("in time");
  EXPECT_EQ(ear.heads, (std::vector<std::string>{"early", "before anybody listens", "in time"}));
  EXPECT_EQ(std::string(ear.room, sizeof ear.room), payload);
  EXPECT_EQ(ear.ended, 1);
}

TEST_F(TcpRuns, AMessageOfARunThatIsOverIsThrownAway) {
  one->begin_run();
  two->begin_run();
  {
    Ear ear(*one);
    say("heard");
    EXPECT_EQ(ear.heads.size(), 1u);
  }
  const std::string payload = "payload";
  say("after the end", payload);
  one->begin_run();
  Ear ear(*one);
  say("of the run before");
  two->begin_run();
  say("of this run");
  EXPECT_EQ(ear.heads, std::vector<std::string>{"of this run"});
  EXPECT_EQ(ear.ended, 0);
}

// Two runs ahead, as no process can be while this one takes part: nothing of a run comes before its time.
TEST_F(TcpRuns, WhatIsFarAheadWaitsForItsRun) {
  two->begin_run();
  two->begin_run();
  say("second");
  one->begin_run();
  Ear ear(*one);
  settle();
  EXPECT_TRUE(ear.heads.empty());
  one->begin_run();
  settle();
  EXPECT_EQ(ear.heads, std::vector<std::string>{"second"});
}

}  // namespace
}  // namespace seeksim::test
