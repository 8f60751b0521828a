// How processes meet over TCP while strangers knock: whatever strangers send, say or withhold, the processes of the job
// meet.
#include "runtime/backend/wire/rendezvous.h"

#include <gtest/gtest.h>
#include <netdb.h>

#include <unistd.h>

#include <atomic>
#include <cstring>
#include <future>
#include <vector>

namespace seeksim::runtime {
namespace {

// Below what connections are given.
std::uint16_t a_port() {
  static int used = 0;
  return std::uint16_t(10'000 + (::getpid() * 16 + used++) % 20'000);
}

constexpr int kMeetingWait_s = 60, kStrangersWait_s = 3600;

Rendezvous at(int rank, int size, std::uint16_t port) {
  Rendezvous at;
  at.rank = rank;
  at.size = size;
  at.master = "127.0.0.1";
  at.port = port;
  at.secret = "a secret of this test";
  at.seconds = kMeetingWait_s;
  at.stranger_seconds = kStrangersWait_s;
  return at;
}

// How a process's meeting ended. The connections stay open as long as this lives: others may still be on their way.
struct Ending {
  std::string problem;  // empty: it met all
  Met met;
};
using Meeting = std::future<Ending>;
Meeting begin(const Rendezvous& how) {
  return std::async(std::launch::async, [how]() -> Ending {
    try {
      Ending ending{"", meet(how)};
      for (int rank = 0; rank < how.size; ++rank) {
        if (ending.met.peers[std::size_t(rank)].open() != (rank != how.rank))
          ending.problem = "a connection is missing";
      }
      return ending;
    } catch (const std::exception& error) {
      return {error.what(), {}};
    }
  });
}

TEST(Rendezvous, EndsWhenItIsAskedTo) {
  const std::uint16_t port = a_port();
  for (const int rank : {0, 1}) {  // who listens, and who knocks where nobody is
    Rendezvous alone = at(rank, 2, port);
    alone.give_up = [] { return true; };
    EXPECT_NE(begin(alone).get().problem.find("asked to stop"), std::string::npos) << rank;
  }
}

void expect_that_all_meet(std::vector<Meeting> meetings) {
  std::vector<Ending> endings;
  for (Meeting& meeting : meetings) endings.push_back(meeting.get());
  for (const Ending& ending : endings) EXPECT_EQ(ending.problem, "");
}

template <class... More>
std::vector<Meeting> together(More... meetings) {
  std::vector<Meeting> all;
  (all.push_back(std::move(meetings)), ...);
  return all;
}

class Strangers : public testing::Test {
 protected:
  Socket knock(const std::string& says = "") {
    Socket socket = connect_to("127.0.0.1:" + std::to_string(port), 10);
    socket.send({reinterpret_cast<const std::byte*>(says.data()), says.size()});
    return socket;
  }
  // Rank 0 has waited while the stranger did what it does; now the others come.
  void expect_that_all_meet() {
    seeksim::runtime::expect_that_all_meet(together(std::move(zero), begin(at(1, 3, port)), begin(at(2, 3, port))));
  }
  const std::uint16_t port = a_port();
  Meeting zero = begin(at(0, 3, port));
};

TEST_F(Strangers, AStrangerThatSendsGarbageIsDropped) {
  const Socket stranger = knock(std::string(200, 'x'));
  expect_that_all_meet();
}

TEST_F(Strangers, AStrangerThatClosesAtOnceIsForgotten) {
  for (int i = 0; i < 10; ++i) knock().close();
  expect_that_all_meet();
}

// Rank 0 would listen to them until long after the meeting's own deadline.
TEST_F(Strangers, SilentStrangersKeepNobodyWaiting) {
  const Socket silent = knock(), slow = knock("s");
  static_assert(kStrangersWait_s > kMeetingWait_s);
  expect_that_all_meet();
}

TEST_F(Strangers, HundredsOfSilentStrangersShutNobodyOut) {
  std::vector<Socket> strangers;
  for (int i = 0; i < 300; ++i) strangers.push_back(knock("s"));
  expect_that_all_meet();
}

TEST_F(Strangers, AnotherSecretTakesNoPlaceAndTheProcessIsTold) {
  Rendezvous other = at(1, 3, port);
  other.secret = "another secret";
  const std::string problem = begin(other).get().problem;
  EXPECT_NE(problem.find("rank 0 at 127.0.0.1:" + std::to_string(port) + " has another secret"), std::string::npos)
      << problem;
  expect_that_all_meet();
}

TEST_F(Strangers, AProcessOfAnotherJobIsTold) {
  const std::string problem = begin(at(1, 4, port)).get().problem;
  EXPECT_NE(problem.find("WORLD_SIZE"), std::string::npos) << problem;
  expect_that_all_meet();
}

// Two processes come with RANK=1. The first gets the place and waits for rank 2, so the one that ends now is the
// second.
TEST_F(Strangers, APlaceThatIsTakenIsNotGivenTwice) {
  std::promise<int> sent_away;  // who ends first; the other one waits for rank 2
  std::atomic<bool> told{false};
  const auto come = [&](int who) {
    return std::async(std::launch::async, [&sent_away, &told, who, how = at(1, 3, port)] {
      Ending ending = begin(how).get();
      if (!told.exchange(true)) sent_away.set_value(who);
      return ending;
    });
  };
  Meeting a = come(0), b = come(1);
  const bool b_ended = sent_away.get_future().get() == 1;
  Meeting &first = b_ended ? a : b, &second = b_ended ? b : a;
  const std::string problem = second.get().problem;
  EXPECT_NE(problem.find("another process of this RANK"), std::string::npos) << problem;
  seeksim::runtime::expect_that_all_meet(together(std::move(zero), std::move(first), begin(at(2, 3, port))));
}

// The job has begun for rank 2, which ends at once. Rank 1 finds out in the run, as of any rank that ends: it does not
// wait for another rank 2, who never comes. Rank 1 may look before or after rank 2 has left, so they meet many times.
TEST(RendezvousOf, ARankThatLeavesWhenAllHaveMetIsMissedByTheRun) {
  const std::uint16_t port = a_port();
  for (int times = 0; times < 200; ++times) {
    auto meetings = together(begin(at(0, 3, port)), begin(at(1, 3, port)));
    meet(at(2, 3, port));
    expect_that_all_meet(std::move(meetings));
  }
}

// Rank 0 proves that it knows the secret: a stranger that holds its port gets nobody to train for it.
TEST(RendezvousOf, ALeaderThatDoesNotKnowTheSecretIsLeft) {
  std::uint16_t port = a_port();
  const Socket listener = listen_at("127.0.0.1", port);
  Rendezvous how = at(1, 2, port);
  how.seconds = 3;
  Meeting one = begin(how);
  ASSERT_TRUE(readable(listener, 5000));
  Socket from = accept_from(listener);
  std::vector<std::byte> greeting(24), said(102), verdict(33);
  const std::uint64_t magic = 0x32727465656b73ull;
  std::memcpy(greeting.data(), &magic, sizeof magic);
  ASSERT_TRUE(from.send(greeting));
  for (std::size_t have = 0; have < 70 && readable(from, 3000);) have += std::size_t(from.receive(said));
  ASSERT_TRUE(from.send(verdict));  // welcome, without a proof
  const std::string problem = one.get().problem;
  EXPECT_NE(problem.find("does not know the job's secret"), std::string::npos) << problem;
}

TEST(RendezvousOf, MissingRanksAreNamedAndRefusedConnectionsCounted) {
  Rendezvous how = at(0, 3, a_port());
  how.seconds = 2;
  Meeting zero = begin(how);
  Socket stranger = connect_to("127.0.0.1:" + std::to_string(how.port), 2);
  stranger.close();
  const std::string problem = zero.get().problem;
  EXPECT_NE(problem.find("rank 1, 2 did not come"), std::string::npos) << problem;
  EXPECT_NE(problem.find("1 connection was refused: closed before it said who it is"), std::string::npos) << problem;
}

TEST(RendezvousOf, AnOpenNetworkNeedsASecret) {
  Rendezvous how = at(0, 2, a_port());
  how.master = "192.0.2.1";  // RFC 5737 gives it to nobody
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
  Meeting zero = begin(how);
  Rendezvous other = at(1, 2, how.port);
  other.secret.clear();
  connect_to("127.0.0.1:" + std::to_string(how.port), 5).close();
  EXPECT_THROW(connect_to("127.0.0.2:" + std::to_string(how.port), 0), std::runtime_error);
  expect_that_all_meet(together(std::move(zero), begin(other)));
}

TEST(Loopback, IsKnownByNumber) {
  for (const char* address : {"127.0.0.1", "127.8.9.1", "::1"}) EXPECT_TRUE(is_loopback(address));
  for (const char* address : {"192.0.2.1", "0.0.0.0", "::"}) EXPECT_FALSE(is_loopback(address));
}

TEST(Loopback, IsKnownByName) {
  addrinfo* found = nullptr;
  if (::getaddrinfo("localhost", nullptr, nullptr, &found) != 0)
    GTEST_SKIP() << "this machine has no name localhost: a chroot made by debootstrap has no /etc/hosts";
  ::freeaddrinfo(found);
  EXPECT_TRUE(is_loopback("localhost"));
}

}  // namespace
}  // namespace seeksim::runtime
