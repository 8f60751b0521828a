// Messages of runs that follow each other on the same connections: a rank that hears of the next run first may begin
// it. (message_transport_test.cpp tests that messages of a finished run are thrown away.)
#include <gtest/gtest.h>

#include <sys/socket.h>

#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "runtime/backend/wire/tcp_world.h"
#include "tests/support/joined_sockets.h"

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
  void failed(const std::string& why) override { failures.push_back(why); }
  TcpWire& wire;
  std::vector<std::string> heads;
  std::vector<std::string> failures;
  char room[7] = {};
  int ended = 0;
};

class TcpRuns : public testing::Test {
 protected:
  TcpRuns() {
    auto [of_one, of_two] = joined_sockets();
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
    EXPECT_TRUE(ear.failures.empty());
  }
  say("between", payload);
  Ear next(*one);
  settle();
  EXPECT_EQ(next.heads, std::vector<std::string>{"between"});
  EXPECT_EQ(std::string(next.room, sizeof next.room), payload);
}

// A peer that sends what no process of this program sends. It is cut off, whatever came before; no rank waits for more.
class TcpHostile : public testing::Test {
 protected:
  TcpHostile() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    std::vector<Socket> peers(2);
    peers[1] = Socket(ends[0]);
    hostile = Socket(ends[1]);
    wire.emplace(0, std::move(peers), TcpWire::Limits{1000, 1000, 2});
  }
  void send_prefix(std::uint32_t magic, std::uint32_t head, std::uint64_t payload, std::uint64_t text) {
    std::array<std::byte, 24> prefix;
    std::memcpy(prefix.data(), &magic, 4);
    std::memcpy(prefix.data() + 4, &head, 4);
    std::memcpy(prefix.data() + 8, &payload, 8);
    std::memcpy(prefix.data() + 16, &text, 8);
    hostile.send(prefix);
    settle();
  }
  void send_bytes(std::size_t n) {
    hostile.send(std::vector<std::byte>(n));
    settle();
  }
  void settle() {
    while (wire->poll()) {
    }
  }
  void expect_cut_off(const std::string& why) {
    EXPECT_TRUE(wire->closed(1));
    EXPECT_NE(wire->why_closed(1).find(why), std::string::npos) << wire->why_closed(1);
  }
  static constexpr std::uint32_t kMagic = 0x736b7431;
  Socket hostile;
  std::optional<TcpWire> wire;
};

TEST_F(TcpHostile, IsCutOffForAnotherMagicNumber) {
  Ear ear(*wire);
  send_prefix(0x31323334, 0, 0, 0);
  expect_cut_off("no message");
  EXPECT_EQ(ear.failures.size(), 1u);
}
TEST_F(TcpHostile, IsCutOffForAHeadThatIsTooLong) {
  send_prefix(kMagic, 0xffffffff, 0, 0);
  expect_cut_off("no message");
}
TEST_F(TcpHostile, IsCutOffForATextThatIsTooLong) {
  send_prefix(kMagic, 0, std::uint64_t(1) << 62, 1);
  expect_cut_off("a text of 4611686018427387904 bytes");
}
TEST_F(TcpHostile, IsCutOffForMoreTextsThanAnybodyReads) {
  for (int i = 0; i < 3; ++i) {
    send_prefix(kMagic, 0, 0, 1);
    EXPECT_EQ(wire->closed(1), i == 2);
  }
}
TEST_F(TcpHostile, IsCutOffForHeadsThatNobodyListensTo) {
  for (int i = 0; i < 20 && !wire->closed(1); ++i) {
    send_prefix(kMagic, 100, 0, 0);
    send_bytes(100);
  }
  expect_cut_off("more than anybody awaits");
}
TEST_F(TcpHostile, IsCutOffForAPayloadThatNobodyWants) {
  send_prefix(kMagic, 0, std::uint64_t(1) << 63, 0);
  send_bytes(900);
  EXPECT_FALSE(wire->closed(1));
  send_bytes(200);
  expect_cut_off("more than anybody awaits");
}

}  // namespace
}  // namespace seeksim::test
