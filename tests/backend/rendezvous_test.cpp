// How processes meet over TCP while strangers knock: whatever they send, say or withhold, those who belong together
// meet.
#include "runtime/backend/wire/rendezvous.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <chrono>
#include <cstring>
#include <future>
#include <thread>

namespace seeksim::runtime {
namespace {

// Below what connections are given.
std::uint16_t a_port() {
  static int used = 0;
  return std::uint16_t(10'000 + (::getpid() * 16 + used++) % 20'000);
}

constexpr int kStrangersWait_s = 30;

Rendezvous at(int rank, int size, std::uint16_t port) {
  Rendezvous at;
  at.rank = rank;
  at.size = size;
  at.master = "127.0.0.1";
  at.port = port;
  at.secret = "a secret of this test";
  at.seconds = 60;
  at.stranger_seconds = kStrangersWait_s;
  return at;
}

// How a process's meeting ended: empty where it met all.
using Ending = std::future<std::string>;
Ending begin(const Rendezvous& how) {
  return std::async(std::launch::async, [how]() -> std::string {
    try {
      const Met met = meet(how);
      for (int rank = 0; rank < how.size; ++rank) {
        if (met.peers[std::size_t(rank)].open() != (rank != how.rank)) return "a connection is missing";
      }
      // Others may still be on their way to it.
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      return "";
    } catch (const std::exception& error) {
      return error.what();
    }
  });
}

class Strangers : public testing::Test {
 protected:
  Socket knock(const std::string& says = "") {
    Socket socket = connect_to("127.0.0.1:" + std::to_string(port), 10);
    socket.send({reinterpret_cast<const std::byte*>(says.data()), says.size()});
    return socket;
  }
  // Rank 0 waits; the stranger is done; the others come.
  void expect_that_all_meet() {
    Ending one = begin(at(1, 3, port)), two = begin(at(2, 3, port));
    EXPECT_EQ(zero.get(), "");
    EXPECT_EQ(one.get(), "");
    EXPECT_EQ(two.get(), "");
  }
  const std::uint16_t port = a_port();
  Ending zero = begin(at(0, 3, port));
};

TEST_F(Strangers, WhoSendsGarbageIsDropped) {
  const Socket stranger = knock(std::string(200, 'x'));
  expect_that_all_meet();
}

TEST_F(Strangers, WhoClosesAtOnceIsForgotten) {
  for (int i = 0; i < 10; ++i) knock().close();
  expect_that_all_meet();
}

TEST_F(Strangers, WhoSaysNothingKeepsNobodyWaiting) {
  const Socket silent = knock(), slow = knock("s");
  const auto start = std::chrono::steady_clock::now();
  expect_that_all_meet();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(kStrangersWait_s));
}

TEST_F(Strangers, HundredsThatSayNothingShutNobodyOut) {
  std::vector<Socket> strangers;
  for (int i = 0; i < 300; ++i) strangers.push_back(knock("s"));
  expect_that_all_meet();
}

TEST_F(Strangers, WhoHasAnotherSecretIsToldSoAndTakesNoPlace) {
  Rendezvous other = at(1, 3, port);
  other.secret = "another secret";
  const std::string told = begin(other).get();
  EXPECT_NE(told.find("rank 0 at 127.0.0.1:" + std::to_string(port) + " has another secret"), std::string::npos)
      << told;
  expect_that_all_meet();
}

TEST_F(Strangers, WhoIsOfAnotherJobIsToldSo) {
  const std::string told = begin(at(1, 4, port)).get();
  EXPECT_NE(told.find("WORLD_SIZE"), std::string::npos) << told;
  expect_that_all_meet();
}

// The place is free again when its process dies before the job begins.
TEST_F(Strangers, APlaceThatIsTakenIsNotGivenTwice) {
  Ending one = begin(at(1, 3, port));
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const std::string told = begin(at(1, 3, port)).get();
  EXPECT_NE(told.find("another process of this RANK"), std::string::npos) << told;
  Ending two = begin(at(2, 3, port));
  EXPECT_EQ(zero.get(), "");
  EXPECT_EQ(one.get(), "");
  EXPECT_EQ(two.get(), "");
}

// What rank 0 proves is that it knows the secret: nobody trains for whoever holds its port.
TEST(RendezvousOf, ALeaderThatDoesNotKnowTheSecretIsLeft) {
  std::uint16_t port = a_port();
  const Socket listener = listen_at("127.0.0.1", port);
  Rendezvous how = at(1, 2, port);
  how.seconds = 3;
  Ending one = begin(how);
  ASSERT_TRUE(readable(listener, 5000));
  Socket from = accept_from(listener);
  std::vector<std::byte> greeting(24), said(102), verdict(33);
  const std::uint64_t magic = 0x32727465656b73ull;
  std::memcpy(greeting.data(), &magic, sizeof magic);
  ASSERT_TRUE(from.send(greeting));
  for (std::size_t have = 0; have < 70 && readable(from, 3000);) have += std::size_t(from.receive(said));
  ASSERT_TRUE(from.send(verdict));  // welcome, without a proof
  const std::string told = one.get();
  EXPECT_NE(told.find("does not know the job's secret"), std::string::npos) << told;
}

TEST(RendezvousOf, WhoIsMissingIsNamedAndWhoWasRefusedCounted) {
  Rendezvous how = at(0, 3, a_port());
  how.seconds = 2;
  Ending zero = begin(how);
  Socket stranger = connect_to("127.0.0.1:" + std::to_string(how.port), 2);
  stranger.close();
  const std::string told = zero.get();
  EXPECT_NE(told.find("rank 1, 2 did not come"), std::string::npos) << told;
  EXPECT_NE(told.find("1 connection was refused: closed before it said who it is"), std::string::npos) << told;
}

TEST(RendezvousOf, AnOpenNetworkNeedsASecret) {
  Rendezvous how = at(0, 2, a_port());
  how.master = "192.0.2.1";  // of nobody, by RFC 5737
  how.secret.clear();
  EXPECT_THROW(meet(how), NoSecret);
  how.insecure = true;
  how.seconds = 0.1;
  try {
    meet(how);
    ADD_FAILURE() << "listened at an address that is not this host's";
  } catch (const NoSecret&) {
    ADD_FAILURE() << "--insecure needs none";
  } catch (const std::runtime_error&) {
  }
}

TEST(RendezvousOf, LoopbackAloneNeedsNoSecretAndIsAllThatIsListenedOn) {
  Rendezvous how = at(0, 2, a_port());
  how.secret.clear();
  Ending zero = begin(how);
  Rendezvous other = at(1, 2, how.port);
  other.secret.clear();
  connect_to("127.0.0.1:" + std::to_string(how.port), 5).close();
  EXPECT_THROW(connect_to("127.0.0.2:" + std::to_string(how.port), 0), std::runtime_error);
  EXPECT_EQ(begin(other).get(), "");
  EXPECT_EQ(zero.get(), "");
}

TEST(Loopback, IsKnownByNameAndNumber) {
  for (const char* address : {"127.0.0.1", "127.8.9.1", "localhost", "::1"}) EXPECT_TRUE(is_loopback(address));
  for (const char* address : {"192.0.2.1", "0.0.0.0", "::"}) EXPECT_FALSE(is_loopback(address));
}

}  // namespace
}  // namespace seeksim::runtime
