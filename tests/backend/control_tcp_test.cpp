// The control plane over TCP: ranks in threads, a server, and strangers.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>

#include "runtime/backend/control/control_client.h"
#include "runtime/backend/control/control_server.h"
#include "tests/backend/run_token.h"

namespace seeksim::runtime {
namespace {

// A server on a thread of its own, which also looks, after each step, whether what a test waits for has come true.
class Server {
 public:
  explicit Server(int ranks, TimeNs heartbeat_timeout_ns = 0)
      : server_(options(ranks, heartbeat_timeout_ns), [this](int rank, const std::string& text) {
          const std::lock_guard lock(mutex_);
          stories_.push_back(std::to_string(rank) + ": " + text);
        }) {
    thread_ = std::jthread([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        server_.step(5);
        look();
      }
    });
  }
  // False: it has not come true within a minute.
  bool comes(std::function<bool(const ControlServer&)> condition) {
    std::promise<void> seen;
    const std::future<void> came = seen.get_future();
    {
      const std::lock_guard lock(mutex_);
      awaited_ = std::move(condition);
      seen_ = std::move(seen);
    }
    const bool in_time = came.wait_for(std::chrono::minutes(1)) == std::future_status::ready;
    const std::lock_guard lock(mutex_);
    awaited_ = nullptr;
    return in_time;
  }
  std::string endpoint() const { return "127.0.0.1:" + std::to_string(server_.port()); }
  bool told(const std::string& part) {
    const std::lock_guard lock(mutex_);
    return has_told(part);
  }
  bool tells(const std::string& part) {
    return comes([this, part](const ControlServer&) { return has_told(part); });
  }

 private:
  static ControlServer::Options options(int ranks, TimeNs heartbeat_timeout_ns) {
    ControlServer::Options options;
    options.ranks = ranks;
    options.token = kToken;
    options.heartbeat_timeout_ns = heartbeat_timeout_ns;
    return options;
  }
  bool has_told(const std::string& part) const {
    return std::any_of(stories_.begin(), stories_.end(),
                       [&](const std::string& story) { return story.find(part) != std::string::npos; });
  }
  void look() {
    const std::lock_guard lock(mutex_);
    if (!awaited_ || !awaited_(server_)) return;
    awaited_ = nullptr;
    seen_.set_value();
  }

  std::mutex mutex_;  // of these three
  std::vector<std::string> stories_;
  std::function<bool(const ControlServer&)> awaited_;
  std::promise<void> seen_;
  ControlServer server_;
  std::jthread thread_;
};

struct Client {
  Client(const Server& server, int rank, int ranks, TimeNs heartbeat_ns = 0)
      : control(loop, signals, {server.endpoint(), kToken, rank, ranks, heartbeat_ns}) {
    op.kind = OpKind::vote;
    op.rank = rank;
    op.step = 1;
  }
  Signals signals;
  WallClock wall;
  ProgressLoop loop{wall};
  ControlClient control;
  Op op;
};

TEST(ControlOverTcp, AllGetTheSameAnswer) {
  Server server(3);
  std::vector<Agreement> agreed(3);
  {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < 3; ++rank) {
      ranks.emplace_back([&, rank] {
        Client client(server, rank, 3);
        Ballot ballot;
        ballot.words[0] = rank * 10;
        agreed[std::size_t(rank)] = client.control.agree(client.op, 0, ballot, kForever);
        const std::vector<int> members = {0, 1, 2};
        client.control.enter_epoch(1, members);
        EXPECT_EQ(client.control.epoch(), 1u);
      });
    }
  }
  for (const Agreement& agreement : agreed) {
    EXPECT_EQ(agreement.members, (std::vector<int>{0, 1, 2}));
    EXPECT_EQ(agreement.ballots.at(2).words[0], 20);
  }
}

// The store may hear of the revoke before the ballot or after it (control_store_test): the vote ends either way.
TEST(ControlOverTcp, ARevokeReachesTheOthersAndCutsTheirVoteShort) {
  Server server(2);
  std::jthread other([&] {
    Client client(server, 1, 2);
    client.control.revoke(0, client.op, ErrorKind::io);
  });
  Client client(server, 0, 2);
  try {
    client.control.agree(client.op, 0, Ballot{}, kForever);
    FAIL() << "the vote was decided";
  } catch (const SeamError& error) {
    EXPECT_EQ(error.kind(), ErrorKind::revoked);
  }
  EXPECT_TRUE(client.loop.until(10 * kSecond, [&] { return client.control.revoked(0); }));
}

TEST(ControlOverTcp, ALateProcessHearsOfAnEarlierRevoke) {
  Server server(2);
  Client quick(server, 1, 2);
  quick.control.revoke(0, quick.op, ErrorKind::out_of_memory);
  ASSERT_TRUE(server.tells("revokes epoch 0"));
  Client late(server, 0, 2);
  EXPECT_TRUE(late.loop.until(late.loop.now() + 10 * kSecond, [&] { return late.control.revoked(0); }));
}

TEST(ControlOverTcp, AProcessThatIsGoneIsNotWaitedFor) {
  Server server(2);
  {
    // Without a goodbye: as a killed process.
    Socket socket = connect_to(server.endpoint(), 5);
    socket.send(frame_bytes(FrameKind::hello, to_bytes(Hello{kToken, 1, false})));
    ASSERT_TRUE(readable(socket, 5000));
  }
  Client client(server, 0, 2);
  const Agreement agreement = client.control.agree(client.op, 0, Ballot{}, client.loop.now() + 20 * kSecond);
  EXPECT_EQ(agreement.dead, (std::vector<int>{1}));
  EXPECT_TRUE(server.told("1: closed its connection"));
}

TEST(ControlOverTcp, AProcessWithoutHeartbeatsIsDeclaredDead) {
  Server server(2, 300 * kMillisecond);
  Client beats(server, 0, 2, 50 * kMillisecond);
  {
    Socket socket = connect_to(server.endpoint(), 5);
    socket.send(frame_bytes(FrameKind::hello, to_bytes(Hello{kToken, 1, true})));
    EXPECT_TRUE(server.tells("1: sends no heartbeats"));
  }
  EXPECT_FALSE(server.told("0: sends no heartbeats"));
}

// A process is watched by its heart from before it trains until after.
TEST(ControlOverTcp, AProcessThatHasNotBegunIsWatched) {
  Server server(3, 300 * kMillisecond);
  const auto heart = [&](int rank) {
    return std::make_unique<Heart>(
        Heart::Options{server.endpoint(), kToken, rank, 50 * kMillisecond, Heart::WhenLost::stop});
  };
  const std::unique_ptr<Heart> met = heart(0);
  heart(1).reset();  // says goodbye
  met->ready();
  EXPECT_TRUE(server.comes([](const ControlServer& s) { return s.ready() == 1; }));
  {
    // Killed: closed without a word. And stopped: open, and no word.
    Socket stopped = connect_to(server.endpoint(), 5), killed = connect_to(server.endpoint(), 5);
    killed.send(frame_bytes(FrameKind::hello, to_bytes(Hello{kToken, 1, true})));
    stopped.send(frame_bytes(FrameKind::hello, to_bytes(Hello{kToken, 2, true})));
    killed.close();
    EXPECT_TRUE(server.comes([](const ControlServer& s) { return s.gone() == std::vector{1}; }));
    EXPECT_TRUE(server.comes([](const ControlServer& s) { return s.silent() == std::vector{2}; }));
  }
  EXPECT_TRUE(server.comes([](const ControlServer& s) { return s.gone() == std::vector{1, 2}; }));
}

TEST(ControlOverTcpDeathTest, AProcessEndsWhenItsSupervisorIsGone) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto left_alone = [] {
    auto server = std::make_unique<Server>(1);
    const Heart heart({server->endpoint(), kToken, 0, 20 * kMillisecond, Heart::WhenLost::end_process});
    server.reset();
    for (;;) ::pause();  // a heart that does not end the process leaves this to the test's own timeout
  };
  EXPECT_EXIT(left_alone(), testing::ExitedWithCode(3), "");
}

TEST(ControlOverTcp, StrangersAndBadBytesAreRefused) {
  Server server(2);
  const auto refused = [&](const std::vector<std::byte>& bytes, const std::string& why) {
    Socket socket = connect_to(server.endpoint(), 5);
    socket.send(bytes);
    EXPECT_TRUE(server.tells(why)) << why;
    std::array<std::byte, 16> answer;
    EXPECT_TRUE(readable(socket, 5000)) << why;
    EXPECT_EQ(socket.receive(answer), -1) << "it was not disconnected: " << why;
  };
  const auto hello = [](const std::string& token, int rank) {
    return frame_bytes(FrameKind::hello, to_bytes(Hello{token, rank, false}));
  };
  refused(hello(std::string(kTokenBytes, '0'), 0), "another run's token");
  refused(hello(std::string(kToken).substr(0, 8), 0), "another run's token");
  refused(hello(kToken, 2), "no rank of this run");
  refused(frame_bytes(FrameKind::beat, {}), "no hello first");
  refused(to_bytes(std::string("GET / HTTP/1.1\r\n\r\n")), "magic number of a different protocol");
  refused(frame_bytes(FrameKind::hello, to_bytes(std::string(1000, 'x'))), "a frame of 1004 bytes");

  Client rank(server, 0, 2);
  refused(hello(kToken, 0), "a rank that is here already");
  EXPECT_THROW(Client(server, 0, 2), std::exception);
}

// Each bit of a frame, changed once.
TEST(ControlFrames, NoBitChangesUnseen) {
  const std::vector<std::byte> whole = frame_bytes(FrameKind::revoke, to_bytes(std::uint32_t(3), std::string("why")));
  FrameReader undamaged;
  undamaged.take(whole);
  EXPECT_TRUE(undamaged.next(kFrameBytesMax).has_value());
  for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::vector<std::byte> bytes = whole;
    bytes[bit / 8] ^= std::byte(1u << bit % 8);
    FrameReader reader;
    reader.take(bytes);
    EXPECT_THROW(reader.next(kFrameBytesMax), Malformed) << "bit " << bit;
  }
}

TEST(ControlOverTcp, ARankWhoseFrameWasDamagedIsDisconnectedAndTheReasonIsTold) {
  Server server(2);
  Socket socket = connect_to(server.endpoint(), 5);
  socket.send(frame_bytes(FrameKind::hello, to_bytes(Hello{kToken, 1, false})));
  ASSERT_TRUE(readable(socket, 5000));
  std::vector<std::byte> bytes = frame_bytes(FrameKind::revoke, to_bytes(std::uint32_t(0), std::string("why")));
  bytes.back() ^= std::byte{1};
  socket.send(bytes);
  EXPECT_TRUE(server.tells("it said it was rank 1 and sent a frame that was damaged on its way (revoke)"));
  EXPECT_TRUE(server.tells("1: closed its connection"));
}

TEST(ControlOverTcp, AKnownRankThatSendsNonsenseIsDisconnected) {
  Server server(2);
  Socket socket = connect_to(server.endpoint(), 5);
  socket.send(frame_bytes(FrameKind::hello, to_bytes(Hello{kToken, 1, false})));
  ASSERT_TRUE(readable(socket, 5000));
  socket.send(frame_bytes(FrameKind::ballot, to_bytes(std::string("no ballot"))));
  EXPECT_TRUE(server.tells("said it was rank 1 and sent"));
  EXPECT_TRUE(server.tells("1: closed its connection"));
}

}  // namespace
}  // namespace seeksim::runtime
