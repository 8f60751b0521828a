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
  void damaged(int, Wire::Ticket payload) override { ++(payload != 0 ? damaged_payloads : damaged_heads); }
  void failed(const std::string& why) override { failures.push_back(why); }
  TcpWire& wire;
  std::vector<std::string> heads;
  std::vector<std::string> failures;
  char room[7] = {};
  int ended = 0;
  int damaged_heads = 0, damaged_payloads = 0;
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

// Bytes that were changed on their way, with a TCP checksum that fits. A message without payload, one with a payload,
// one behind them; each bit of the first two is changed once.
class TcpDamage : public testing::Test {
 protected:
  static constexpr std::size_t kPrefix = sizeof(TcpWire::Prefix), kHead = 4, kPayload = 7;
  static constexpr std::size_t kSecond = kPrefix + kHead, kThird = kSecond + kPrefix + kHead + kPayload;

  // What rank 1 sends, as bytes.
  static std::vector<std::byte> stream() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    std::vector<Socket> peers(1);
    peers[0] = Socket(ends[0]);
    peers.emplace_back();
    TcpWire sender(1, std::move(peers));
    Socket reader(ends[1]);
    const std::string payload = "payload";
    sender.send(0, bytes_of("head"), {});
    sender.send(0, bytes_of("with"), bytes_of(payload));
    sender.send(0, bytes_of("last"), bytes_of(payload));
    while (sender.poll()) {
    }
    std::vector<std::byte> bytes(1000);
    bytes.resize(std::size_t(reader.receive(bytes)));
    return bytes;
  }
  struct Heard {
    std::vector<std::string> heads;
    int ended = 0, damaged_heads = 0, damaged_payloads = 0;
    bool closed = false;
  };
  // begun: a whole message has come before, as it has on every connection that is in use.
  static Heard hear(const std::vector<std::byte>& bytes, std::size_t at_once, bool begun = true) {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    std::vector<Socket> peers(2);
    peers[1] = Socket(ends[0]);
    Socket writer(ends[1]);
    TcpWire wire(0, std::move(peers));
    Ear ear(wire);
    const auto say = [&](std::span<const std::byte> part) {
      writer.send(part);
      while (wire.poll()) {
      }
    };
    const std::vector<std::byte> whole = stream();
    if (begun) say(std::span(whole).first(kSecond));
    for (std::size_t at = 0; at < bytes.size(); at += at_once)
      say(std::span(bytes).subspan(at, std::min(at_once, bytes.size() - at)));
    if (begun && !ear.heads.empty()) ear.heads.erase(ear.heads.begin());
    return {ear.heads, ear.ended, ear.damaged_heads, ear.damaged_payloads, wire.closed(1)};
  }
};

TEST_F(TcpDamage, AWholeStreamIsTakenAsItIs) {
  const Heard heard = hear(stream(), 13);
  EXPECT_EQ(heard.heads, (std::vector<std::string>{"head", "with", "last"}));
  EXPECT_EQ(heard.ended, 2);
  EXPECT_EQ(heard.damaged_heads + heard.damaged_payloads, 0);
}

TEST_F(TcpDamage, NoBitChangesUnseenAndTheNextMessageComes) {
  const std::vector<std::byte> whole = stream();
  for (std::size_t bit = 0; bit < 8 * kThird; ++bit) {
    std::vector<std::byte> bytes = whole;
    const std::size_t place = bit / 8;
    bytes[place] ^= std::byte(1u << bit % 8);
    const Heard heard = hear(bytes, bytes.size());
    const bool first = place < kSecond, in_payload = place >= kThird - kPayload;
    std::vector<std::string> expected = {"head", "with", "last"};
    if (!in_payload) expected.erase(expected.begin() + (first ? 0 : 1));
    ASSERT_EQ(heard.heads, expected) << "bit " << bit;
    ASSERT_EQ(heard.ended, first ? 2 : 1) << "bit " << bit;  // payloads that are what was sent
    ASSERT_EQ(heard.damaged_heads, in_payload ? 0 : 1) << "bit " << bit;
    ASSERT_EQ(heard.damaged_payloads, in_payload ? 1 : 0) << "bit " << bit;
    ASSERT_FALSE(heard.closed) << "bit " << bit;
  }
}

TEST_F(TcpDamage, TheNextMessageIsFoundHoweverTheBytesCome) {
  std::vector<std::byte> bytes = stream();
  bytes[9] ^= std::byte{1};  // in the first prefix
  for (std::size_t at_once = 1; at_once < 80; ++at_once) {
    const Heard heard = hear(bytes, at_once);
    ASSERT_EQ(heard.heads, (std::vector<std::string>{"with", "last"})) << at_once;
    ASSERT_EQ(heard.damaged_heads, 1) << at_once;
  }
}

// Something else than seeksim is on the other side, or something has gone wrong from the beginning.
TEST_F(TcpDamage, AConnectionThatBeginsWithADamagedPrefixIsClosed) {
  std::vector<std::byte> bytes = stream();
  bytes[9] ^= std::byte{1};
  const Heard heard = hear(bytes, bytes.size(), false);
  EXPECT_TRUE(heard.closed);
  EXPECT_TRUE(heard.heads.empty());
}

TEST_F(TcpRuns, ADamagedTextEndsTheConnection) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  std::vector<Socket> of_sender(2), of_reader(2);
  of_sender[0] = Socket(ends[0]);
  TcpWire sender(1, std::move(of_sender));
  Socket between(ends[1]);
  sender.send_text(0, bytes_of("a report"));
  std::vector<std::byte> bytes(1000);
  bytes.resize(std::size_t(between.receive(bytes)));
  bytes.back() ^= std::byte{4};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  of_reader[1] = Socket(ends[0]);
  TcpWire reader(0, std::move(of_reader));
  Socket(ends[1]).send(bytes);
  while (reader.poll()) {
  }
  EXPECT_FALSE(reader.text_from(1).has_value());
  EXPECT_EQ(reader.why_closed(1), "rank 1 sent a text that was damaged on its way");
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
    TcpWire::Prefix prefix{magic, head, payload, text, {}};
    const std::vector<std::byte> zeros(head <= Wire::kHeadBytesMax ? head : 0);
    runtime::seal(prefix, zeros, {});
    hostile.send(std::as_bytes(std::span(&prefix, 1)));
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
  static constexpr std::uint32_t kMagic = TcpWire::kMagic;
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
