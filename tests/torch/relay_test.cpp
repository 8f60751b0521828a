// Groups on several hosts: what holds on one host holds there, and whatever becomes of a host or a link is named.
#include <gtest/gtest.h>
#include <poll.h>

#include <thread>

#include "harness/torch/hosts/frames.h"
#include "runtime/backend/wire/tcp_world.h"
#include "tests/pytorch/rank_bodies.h"
#include "tests/torch/forked_hosts.h"

namespace seeksim::harness::torch {
namespace {

using pytorch::Bytes;
using pytorch::Call;
using pytorch::CollectiveError;
using pytorch::Group;
using pytorch::monotonic_ns;
using pytorch::rank_bodies::sums_once;
using testing::ForkedHosts;
using Hosts = std::vector<int>;

// "is_dead 1,2: the text"
std::string blamed(Group& group, const std::function<std::string(Group&)>& body) {
  try {
    return body(group);
  } catch (const CollectiveError& error) {
    std::string ranks;
    for (const pytorch::Culprit& culprit : error.culprits)
      ranks += (ranks.empty() ? "" : ",") + std::to_string(culprit.rank);
    return std::string(name(error.culprits.at(0).blame)) + " " + ranks + ": " + error.what();
  }
}
std::string sums(Group& group) {
  return blamed(group, [](Group& g) { return sums_once(g); });
}

bool says(const std::string& text, const std::string& start, const std::string& inside) {
  return text.starts_with(start) && text.find(inside) != std::string::npos;
}
#define EXPECT_SAYS(text, start, inside) EXPECT_TRUE(says(text, start, inside)) << (text)

TEST(RelayedRanks, SumAndKeepThatUp) {
  for (const Hosts& hosts : {Hosts{0, 1}, Hosts{0, 0, 1}, Hosts{0, 1, 0, 1}, Hosts{0, 1, 2}, Hosts{2, 2, 0, 1}}) {
    for (const std::string& said : ForkedHosts(hosts).run(pytorch::rank_bodies::sums_and_keeps_that_up))
      EXPECT_EQ(said, "ok") << ::testing::PrintToString(hosts);
  }
}

TEST(RelayedRanks, ExchangeRaggedPartsAndShares) {
  for (const Hosts& hosts : {Hosts{0, 1, 2}, Hosts{0, 1, 1}}) {
    for (const std::string& said : ForkedHosts(hosts).run(pytorch::rank_bodies::exchanges_ragged_parts))
      EXPECT_EQ(said, "ok") << ::testing::PrintToString(hosts);
    for (const std::string& said : ForkedHosts(hosts).run(pytorch::rank_bodies::reduces_and_scatters))
      EXPECT_EQ(said, "ok") << ::testing::PrintToString(hosts);
  }
}

TEST(RelayedRanks, SendMessagesOfAnySize) {
  for (const std::string& said : ForkedHosts({0, 1}).run(pytorch::rank_bodies::sends_messages)) EXPECT_EQ(said, "ok");
}

TEST(RelayedRanks, ThatDoNotComeAreNamedWithTheirHostAndAskedForTheirStacks) {
  ForkedHosts hosts({0, 0, 1});
  hosts.timeout_s = 1;
  const auto said = hosts.run([](Group& group) -> std::string {
    if (group.place() != 2) return sums(group);
    for (int i = 0; i < 40; ++i) usleep(100'000);  // a signal ends a sleep
    return "slept";
  });
  EXPECT_EQ(said[2], "slept");
  for (const int place : {0, 1})
    EXPECT_SAYS(said[std::size_t(place)],
                "did_not_join 2: seeksim: all_reduce #1 of group 0 (step 2): rank 2 did not join",
                "rank 2 is alive on host 1 (node1); it joined 0 collectives");
  EXPECT_GE(hosts.asked_for_stacks(), 1);
}

TEST(RelayedRanks, ThatDieAreNamedAtOnceOnTheOtherHost) {
  const std::int64_t began = monotonic_ns();
  const auto said = ForkedHosts({0, 1, 1}).run([](Group& group) -> std::string {
    if (group.place() == 2) kill(getpid(), SIGKILL);
    return sums(group);
  });
  EXPECT_EQ(said[2], "signal 9");
  EXPECT_SAYS(said[0], "is_dead 2: ", "");
  EXPECT_SAYS(said[1], "is_dead 2: ", "");
  EXPECT_LT(monotonic_ns() - began, 20'000'000'000);
}

// What a rank had published before it died has arrived: nobody is blamed for it.
TEST(RelayedRanks, ThatDieAfterTheirPartHaveGivenIt) {
  const auto said = ForkedHosts({0, 1}).run([](Group& group) -> std::string {
    const std::string sum = sums(group);
    if (group.place() == 1) kill(getpid(), SIGKILL);
    return sum;
  });
  EXPECT_EQ(said, (std::vector<std::string>{"ok", "signal 9"}));
}

TEST(RelayedRanks, AreGoneWithTheirHost) {
  const std::int64_t began = monotonic_ns();
  const auto said = ForkedHosts({0, 1, 1}).run([](Group& group) -> std::string {
    if (group.place() == 1) kill(getppid(), SIGKILL);
    if (group.place() != 0) pause();
    return sums(group);
  });
  EXPECT_EQ(said[1], "gone with its host");
  EXPECT_SAYS(said[0], "is_dead 1,2: ", "is gone with host 1 (node1) (its seeksim has closed the connection)");
  EXPECT_LT(monotonic_ns() - began, 20'000'000'000);
}

TEST(RelayedRanks, ThatMeanSomethingElseAreNamedOnAllHosts) {
  for (const std::string& said : ForkedHosts({0, 0, 1}).run([](Group& group) {
         return blamed(group, [](Group& g) { return sums_once(g, g.place() == 2 ? 101 : 100); });
       })) {
    EXPECT_SAYS(said, "disagrees 2: ", "all_reduce fp32 x 101, sum: rank 2");
  }
}

TEST(RelayedRanks, ALostContributionIsToldFromARankThatNeverCame) {
  ForkedHosts hosts({0, 1});
  hosts.timeout_s = 1;
  for (const std::string& said : hosts.run([](Group& group) {
         return blamed(group, [](Group& g) -> std::string {
           std::vector<float> x(10);
           Call c = pytorch::rank_bodies::call(g);
           c.lost = g.place() == 1;
           all_reduce(g, c, {}, std::vector<Bytes>{pytorch::rank_bodies::raw(x)});
           return "nothing";
         });
       })) {
    EXPECT_SAYS(said, "contribution_lost 1: ", "it did call this one");
  }
}

// A cable between host 0 and host 1: it carries what it gets until it is cut, and says nothing then.
class Cable {
 public:
  explicit Cable(ForkedHosts& hosts) {
    auto [to_zero, zero] = testing::tcp_pair();
    auto [to_one, one] = testing::tcp_pair();
    hosts.wires[0][1] = std::move(zero);
    hosts.wires[1][0] = std::move(one);
    ends_[0] = std::move(to_zero);
    ends_[1] = std::move(to_one);
  }
  ~Cable() {
    over_ = true;
    if (thread_.joinable()) thread_.join();
  }
  void lie_there() {
    thread_ = std::thread([this] {
      while (!over_) {
        pollfd both[] = {{ends_[0].fd(), POLLIN, 0}, {ends_[1].fd(), POLLIN, 0}};
        ::poll(both, 2, 20);
        for (int side = 0; side < 2 && !cut_; ++side) {
          std::byte bytes[1 << 14];
          const int n = ends_[side].receive(bytes);
          if (n > 0) ends_[1 - side].send({bytes, std::size_t(n)});
        }
      }
    });
  }
  void cut() { cut_ = true; }
  void mend() { cut_ = false; }

 private:
  runtime::Socket ends_[2];
  std::atomic<bool> cut_{false}, over_{false};
  std::thread thread_;
};

void cut_once_all_are_in(ForkedHosts& hosts, Cable& cable) {
  cable.lie_there();
  while (!hosts.all_in()) usleep(1000);
  usleep(300'000);
  cable.cut();
}

TEST(RelayedRanks, BehindALinkThatIsCutAreUnreachable) {
  ForkedHosts hosts({0, 0, 1});
  hosts.timeout_s = 4;
  Cable cable(hosts);
  hosts.meanwhile = [&] { cut_once_all_are_in(hosts, cable); };
  const auto said = hosts.run([](Group& group) -> std::string {
    if (const std::string before = sums(group); before != "ok") return before;
    sleep(1);
    return sums(group);
  });
  for (const int place : {0, 1})
    EXPECT_SAYS(said[std::size_t(place)], "unreachable 2: ", "is on host 1 (node1), from which nothing has come for ");
  EXPECT_SAYS(said[2], "unreachable 0,1: ", "rank 0 is on host 0 (node0)");
}

TEST(RelayedRanks, BehindALinkThatStaysCutAreGivenUpBeforeTheTimeout) {
  ForkedHosts hosts({0, 1});
  hosts.unreachable_s = 3;
  Cable cable(hosts);
  hosts.meanwhile = [&] { cut_once_all_are_in(hosts, cable); };
  const std::int64_t began = monotonic_ns();
  const auto said = hosts.run([](Group& group) -> std::string {
    sleep(1);
    return sums(group);
  });
  EXPECT_SAYS(said[0], "unreachable 1: ", "the connection was given up");
  EXPECT_SAYS(said[1], "unreachable 0: ", "the connection was given up");
  EXPECT_LT(monotonic_ns() - began, 20'000'000'000);
}

TEST(RelayedRanks, ALinkThatIsCutForAWhileChangesNothing) {
  ForkedHosts hosts({0, 1});
  Cable cable(hosts);
  hosts.meanwhile = [&] {
    cable.lie_there();
    while (!hosts.all_in()) usleep(1000);
    cable.cut();
    usleep(2'500'000);
    cable.mend();
  };
  for (const std::string& said : hosts.run(pytorch::rank_bodies::sums_and_keeps_that_up)) EXPECT_EQ(said, "ok");
}

// A relay in the middle with a bug: what host 1 gives to a round is what it gave to the round before.
class StaleMiddle {
 public:
  StaleMiddle(runtime::Socket to_zero, runtime::Socket to_one) {
    std::vector<runtime::Socket> zero(2), one(2);
    zero[1] = std::move(to_zero);
    one[1] = std::move(to_one);
    wires_[0] = std::make_unique<runtime::TcpWire>(0, std::move(zero));
    wires_[1] = std::make_unique<runtime::TcpWire>(0, std::move(one));
    for (int side = 0; side < 2; ++side) {
      sides_[side] = std::make_unique<Side>(*this, side);
      wires_[side]->listen(sides_[side].get());
    }
  }
  void run(const std::atomic<bool>& over) {
    while (!over) {
      if (!wires_[0]->poll() & !wires_[1]->poll()) usleep(200);
    }
  }

 private:
  struct Message {
    std::vector<std::byte> head, payload;
    runtime::Wire::Ticket ticket = 0;
    bool whole = false;
  };
  struct Side final : runtime::Wire::Listener {
    Side(StaleMiddle& middle, int from) : all(middle), side(from) {}
    void arrived(int, std::span<const std::byte> head, runtime::Wire::Ticket payload) override {
      auto message = std::make_unique<Message>();
      message->head.assign(head.begin(), head.end());
      message->ticket = payload;
      message->whole = payload == 0;
      Message& kept = *message;
      waiting.push_back(std::move(message));
      if (payload != 0) {
        kept.payload.resize(all.wires_[side]->announced_bytes(payload));
        all.wires_[side]->receive(payload, kept.payload);
      }
      hand_on();
    }
    void over(runtime::Wire::Ticket ticket) override {
      for (auto& message : waiting) message->whole |= message->ticket == ticket;
      hand_on();
    }
    void damaged(int, runtime::Wire::Ticket) override {}
    void failed(const std::string&) override {}
    void hand_on() {
      for (; next < waiting.size() && waiting[next]->whole; ++next) {
        Message& message = *waiting[next];
        const bool is_part = FrameKind(message.head[0]) == FrameKind::part;
        if (side == 1 && is_part) {
          const std::vector<std::byte> now = message.payload;
          if (last.size() == now.size()) message.payload = last;
          last = now;
        }
        all.wires_[1 - side]->send(1, message.head, message.payload);
      }
    }
    StaleMiddle& all;
    int side;
    std::vector<std::unique_ptr<Message>> waiting;  // kept: payloads stay while they are sent
    std::size_t next = 0;
    std::vector<std::byte> last;
  };

  std::unique_ptr<runtime::TcpWire> wires_[2];
  std::unique_ptr<Side> sides_[2];
};

// The digest of a few sums, of the group as it is.
std::string digest_of_sums(Group& group) {
  pytorch::Digester all(pytorch::DType::fp32, false);
  for (std::uint64_t seq = 1; seq <= 4; ++seq) {
    std::vector<float> x = pytorch::rank_bodies::numbers(group.place() + int(seq), 5000);
    Call c = pytorch::rank_bodies::call(group, seq);
    c.expected.numel = 5000;
    all_reduce(group, c, {}, std::vector<Bytes>{pytorch::rank_bodies::raw(x)});
    all.add(pytorch::rank_bodies::raw(x));
  }
  return std::to_string(all.done().hash);
}

TEST(RelayedRanks, HaveTheDigestOfOneHostUnlessARelayGivesARoundThatIsOld) {
  const std::string right = ForkedHosts({0, 0}).run(digest_of_sums).at(0);
  EXPECT_EQ(ForkedHosts({0, 1}).run(digest_of_sums), (std::vector<std::string>{right, right}));

  ForkedHosts hosts({0, 1});
  auto [to_zero, zero] = testing::tcp_pair();
  auto [to_one, one] = testing::tcp_pair();
  hosts.wires[0][1] = std::move(zero);
  hosts.wires[1][0] = std::move(one);
  std::atomic<bool> over{false};
  std::thread thread;
  hosts.meanwhile = [&, zero_end = &to_zero, one_end = &to_one] {
    thread =
        std::thread([&over, zero_end, one_end] { StaleMiddle(std::move(*zero_end), std::move(*one_end)).run(over); });
  };
  const auto said = hosts.run(digest_of_sums);
  over = true;
  thread.join();
  EXPECT_NE(said[0], right);  // it got what was old
  EXPECT_EQ(said[1], right);
}

}  // namespace
}  // namespace seeksim::harness::torch
