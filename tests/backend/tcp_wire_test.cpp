// Messages of runs that follow each other on the same connections: a rank that hears of the next run first may begin
// it. (message_transport_test.cpp tests that messages of a finished run are thrown away.)
#include <gtest/gtest.h>

#include <sys/socket.h>

#include <string>
#include <utility>
#include <vector>

#include "runtime/backend/wire/tcp_world.h"

namespace seeksim::test {
namespace {

using runtime::Socket;
using runtime::TcpWire;
using runtime::Wire;

std::span<const std::byte> bytes_of(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

// The messages that came: heads, and payloads as long as "payload".
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

TEST_F(TcpRuns, WhatComesWhileNobodyListensIsKeptForWhoWill) {
  const std::string payload = "payload";
  say("early", payload);
  say("also early");
  {
    Ear ear(*one);
    say("in time");
    EXPECT_EQ(ear.heads, (std::vector<std::string>{"early", "also early", "in time"}));
    EXPECT_EQ(std::string(ear.room, sizeof ear.room), payload);
    EXPECT_EQ(ear.ended, 1);
  }
  say("between", payload);
  Ear next(*one);
  settle();
  EXPECT_EQ(next.heads, std::vector<std::string>{"between"});
  EXPECT_EQ(std::string(next.room, sizeof next.room), payload);
}

}  // namespace
}  // namespace seeksim::test
