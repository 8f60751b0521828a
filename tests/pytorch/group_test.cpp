// Ranks are processes here, as they are in life: each runs a function, and what it says comes back through a pipe.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <numeric>

#include "tests/pytorch/rank_bodies.h"

namespace seeksim::pytorch {
namespace {

using namespace rank_bodies;

// Ranks of one group: the memory is made before they are forked, and each waits until all have come in.
class Ranks {
 public:
  explicit Ranks(int n, double timeout_s = 60) : n_(n), timeout_s_(timeout_s), memory_(Segment::create(n)) {}

  std::vector<std::string> run(const std::function<std::string(Group&)>& body) {
    return in_processes(n_, [&](int place) {
      Group::Settings settings;
      settings.name = "0";
      settings.ranks.resize(std::size_t(n_));
      std::iota(settings.ranks.begin(), settings.ranks.end(), 0);
      settings.place = place;
      settings.timeout_s = timeout_s_;
      Group group(Segment::open(memory_.address(), n_), settings);
      group.come_in();
      for (int r = 0; r < n_; ++r) {
        while (memory_.rank(r).pid == 0) usleep(100);
      }
      group.know_all();
      return body(group);
    });
  }

 private:
  int n_;
  double timeout_s_;
  Segment memory_;
};

TEST(Ranks, SumAndKeepThatUp) {
  for (const int n : {1, 2, 3, 4}) {
    for (const std::string& said : Ranks(n).run(sums_and_keeps_that_up)) EXPECT_EQ(said, "ok") << n << " ranks";
  }
}

TEST(Ranks, DigestASumOnTheWay) {
  for (const int n : {2, 3}) {
    for (const std::string& said : Ranks(n).run([&](Group& group) -> std::string {
           std::vector<float> x = numbers(group.place(), 600001);
           const std::uint64_t before = digest(DType::fp32, raw(x), false).hash;
           Digester in(DType::fp32, false), out(DType::fp32, false);
           Call c = call(group);
           c.expected.numel = 600001;
           c.digest_in = &in;
           c.digest_out = &out;
           all_reduce(group, c, {}, std::vector<Bytes>{raw(x)});
           if (in.done().hash != before) return "in";
           return out.done().hash == digest(DType::fp32, raw(x), false).hash ? "ok" : "out";
         })) {
      EXPECT_EQ(said, "ok") << n << " ranks";
    }
  }
}

TEST(Ranks, GatherScatterAndExchangeRaggedParts) {
  for (const std::string& said : Ranks(3).run(exchanges_ragged_parts)) EXPECT_EQ(said, "ok");
}

TEST(Ranks, ReduceScatterGivesEachRankItsShareOfTheSum) {
  for (const std::string& said : Ranks(3).run(reduces_and_scatters)) EXPECT_EQ(said, "ok");
}

TEST(Ranks, SendMessagesOfAnySize) {
  for (const std::string& said : Ranks(2).run(sends_messages)) EXPECT_EQ(said, "ok");
}

TEST(Ranks, AreNamedWhenTheyDoNotCome) {
  const auto said = Ranks(3, 0.5).run([](Group& group) -> std::string {
    if (group.place() != 1) return sums_once(group);
    sleep(3);
    return "slept";
  });
  EXPECT_EQ(said[1], "slept");
  for (const int place : {0, 2}) {
    const std::string& text = said[std::size_t(place)];
    EXPECT_TRUE(text.starts_with("seeksim: all_reduce #1 of group 0 (step 2): rank 1 did not join; 2 of 3 ranks"))
        << text;
    EXPECT_NE(text.find("rank 1 is alive; it joined 0 collectives"), std::string::npos) << text;
  }
}

TEST(Ranks, AreNamedAtOnceWhenTheyDie) {
  const std::int64_t began = monotonic_ns();
  const auto said = Ranks(3, 60).run([](Group& group) -> std::string {
    if (group.place() == 1) kill(getpid(), SIGKILL);
    try {
      return sums_once(group);
    } catch (const CollectiveError& e) {
      const Culprit& culprit = e.culprits.at(0);
      return std::string(name(culprit.blame)) + " " + std::to_string(culprit.rank) + ": " + e.what();
    }
  });
  EXPECT_EQ(said[1], "signal 9");
  for (const int place : {0, 2}) {
    const std::string& text = said[std::size_t(place)];
    EXPECT_TRUE(text.starts_with("is_dead 1: ")) << text;
    EXPECT_NE(text.find("rank 1 is dead (its process is gone)"), std::string::npos) << text;
  }
  EXPECT_LT(monotonic_ns() - began, 30'000'000'000);
}

TEST(Ranks, AContributionThatIsLostIsToldFromARankThatNeverCame) {
  const auto said = Ranks(2, 0.5).run([](Group& group) -> std::string {
    std::vector<float> x(10);
    Call c = call(group);
    c.lost = group.place() == 1;
    try {
      all_reduce(group, c, {}, std::vector<Bytes>{raw(x)});
    } catch (const CollectiveError& e) {
      return std::string(name(e.culprits.at(0).blame)) + " " + std::to_string(e.culprits.at(0).rank);
    }
    return "nothing";
  });
  EXPECT_EQ(said, std::vector<std::string>(2, "contribution_lost 1"));
}

TEST(Ranks, ThatMeanSomethingElseAreNamedOnAllRanks) {
  for (const std::string& said : Ranks(3, 5).run([](Group& group) -> std::string {
         try {
           return sums_once(group, group.place() == 2 ? 101 : 100);
         } catch (const CollectiveError& e) {
           EXPECT_EQ(e.culprits.size(), 1U);
           return std::string(e.what()) + " | " + std::to_string(e.culprits[0].rank);
         }
       })) {
    EXPECT_EQ(
        said,
        "seeksim: ranks do not agree on collective #1 of group 0 (step 2)\n  all_reduce fp32 x 100, sum: ranks 0, "
        "1\n  all_reduce fp32 x 101, sum: rank 2 | 2");
  }
}

TEST(Ranks, AStrikeChangesWhatAllSeeOfAContribution) {
  for (const std::string& said : Ranks(2).run([](Group& group) -> std::string {
         std::vector<float> x(300000, 1.0F);
         Call c = call(group);
         c.expected.numel = 300000;
         if (group.place() == 1) c.strikes.push_back({4 * 290000 + 3, 0x80});  // the sign: 1 becomes -1
         all_reduce(group, c, {}, std::vector<Bytes>{raw(x)});
         int other = 0;
         for (const float value : x) other += value != 2.0F;
         return x[290000] == 0.0F && other == 1 ? "ok" : "other numbers: " + std::to_string(other);
       })) {
    EXPECT_EQ(said, "ok");
  }
}

TEST(Ranks, ASumMayHaveAContributionTwice) {
  for (const std::string& said : Ranks(3).run([](Group& group) -> std::string {
         const float mine = float(1 << group.place());
         std::vector<float> x(300000, mine), part(4), given(12, mine);
         Call all = call(group), scattered = call(group);
         all.expected.numel = 300000;
         scattered.expected.numel = 12;
         all.doubled = scattered.doubled = group.place() == 2;
         all_reduce(group, all, {}, std::vector<Bytes>{raw(x)});
         std::vector<ConstBytes> in;
         for (std::size_t r = 0; r < 3; ++r) in.push_back(raw(given).subspan(16 * r, 16));
         reduce_scatter(group, scattered, {}, in, raw(part));
         for (const float value : x)
           if (value != 11) return "all_reduce: " + std::to_string(value);
         for (const float value : part)
           if (value != 11) return "reduce_scatter: " + std::to_string(value);
         return given[0] == mine ? "ok" : "its own tensor was changed";
       })) {
    EXPECT_EQ(said, "ok");
  }
}

TEST(Ranks, MessagesThatDoNotFitAreRefused) {
  const auto said = Ranks(2, 5).run([](Group& group) -> std::string {
    std::vector<float> x(group.place() == 0 ? 10 : 20);
    const Group::Message m{DType::fp32, 0, "message"};
    if (group.place() == 0) {
      group.send(1, raw(x), m);
    } else {
      group.receive(0, raw(x), m);
    }
    return "ok";
  });
  EXPECT_NE(said[1].find("rank 0 sent 40 bytes of fp32 with tag 0, rank 1 expects 80 bytes"), std::string::npos)
      << said[1];
}

// What each rank says where another backend carries the data, once all have met; body: what that backend does.
std::vector<std::string> carried(Ranks& ranks, const std::function<void(Group&, Call&)>& body) {
  return ranks.run([&](Group& group) -> std::string {
    std::vector<float> x = numbers(group.place(), 100);
    const std::vector<float> before = x;
    Call c = call(group);
    c.carried_elsewhere = true;
    c.expected.numel = 100;
    all_reduce(group, c, {}, std::vector<Bytes>{raw(x)});
    if (x != before) return "it was summed here";
    body(group, c);
    group.end(c);
    return "ok";
  });
}
void look_for(const Group& group, const Call& c, double seconds) {
  const std::int64_t since = monotonic_ns();
  while (double(monotonic_ns() - since) * 1e-9 < seconds) {
    group.look_around(c, since);
    usleep(10'000);
  }
}

TEST(CarriedElsewhere, RanksMeetAndNothingMoves) {
  Ranks ranks(3);
  for (const std::string& said : carried(ranks, [](Group&group, Call&c) { group.entered(c); })) EXPECT_EQ(said, "ok");
}

TEST(CarriedElsewhere, RanksThatMeanSomethingElseAreNamedBeforeItBegins) {
  Ranks ranks(3);
  for (const std::string& said : ranks.run([](Group& group) -> std::string {
         std::vector<float> x(100);
         Call c = call(group);
         c.carried_elsewhere = true;
         c.expected.numel = group.place() == 1 ? 50 : 100;
         all_reduce(group, c, {}, std::vector<Bytes>{raw(x)});
         return "began";
       })) {
    EXPECT_NE(said.find("ranks do not agree on collective #1"), std::string::npos) << said;
  }
}

TEST(CarriedElsewhere, ARankThatDiesInItIsNamed) {
  Ranks ranks(3);
  const auto said = carried(ranks, [](Group& group, Call& c) {
    if (group.place() == 1) raise(SIGKILL);
    group.entered(c);
    look_for(group, c, 20);
  });
  EXPECT_EQ(said[1], "signal 9");
  for (const int r : {0, 2})
    EXPECT_NE(said[std::size_t(r)].find("(step 0): rank 1 died in it"), std::string::npos) << said[std::size_t(r)];
}

TEST(CarriedElsewhere, ACallThatNeverComesBackIsItsRanks) {
  Ranks ranks(3, 1.5);
  const auto said = carried(ranks, [](Group& group, Call& c) {
    if (group.place() == 1) sleep(5);
    group.entered(c);
    look_for(group, c, 20);
  });
  for (const int r : {0, 2}) {
    EXPECT_NE(said[std::size_t(r)].find("rank 1 got no result from the backend below"), std::string::npos)
        << said[std::size_t(r)];
  }
}

TEST(CarriedElsewhere, AnErrorOfOneRanksCallReachesAllWithItsText) {
  Ranks ranks(3);
  const auto said = carried(ranks, [](Group& group, Call& c) {
    if (group.place() == 2) group.failed(c, "NCCL error 1", true);
    group.entered(c);
    look_for(group, c, 20);
  });
  for (const std::string& text : said)
    EXPECT_NE(text.find("rank 2 got no result from the backend below\n  NCCL error 1"), std::string::npos) << text;
}

TEST(CarriedElsewhere, BothEndsOfAMessageMeetAndAreHeldToItsSize) {
  const auto meet = [](std::size_t expected) {
    return Ranks(2, 5).run([expected](Group& group) -> std::string {
      if (group.place() == 0) {
        group.send(1, {}, {DType::fp32, 7, "send", std::size_t(400)});
      } else {
        group.receive(0, {}, {DType::fp32, 7, "recv", expected});
      }
      return "ok";
    });
  };
  EXPECT_EQ(meet(400), (std::vector<std::string>{"ok", "ok"}));
  for (const std::string& said : meet(404)) EXPECT_NE(said.find("rank 0 sent 400 bytes"), std::string::npos) << said;
}

TEST(SharedMemory, IsFoundByItsAddressOnly) {
  const Segment memory = Segment::create(2);
  const std::string address = memory.address();
  EXPECT_NO_THROW(Segment::open(address, 2));
  EXPECT_THROW(Segment::open(address, 3), std::runtime_error);
  std::string other = address;
  other.back() = other.back() == '0' ? '1' : '0';
  EXPECT_THROW(Segment::open(other, 2), std::runtime_error);
  for (const char* nonsense : {"", "1", "-1:3:0000000000000000", "1:2:zz", "999999999:3:0000000000000000"}) {
    EXPECT_THROW(Segment::open(nonsense, 2), std::runtime_error) << nonsense;
  }
  EXPECT_THROW(Segment::open(address + "x", 2), std::runtime_error);
}

TEST(SharedMemory, HasNoNameThatCouldStayBehind) {
  Segment memory = Segment::create(2);
  const std::string address = memory.address();
  memory.close_address();
  EXPECT_THROW(Segment::open(address, 2), std::runtime_error);
}

}  // namespace
}  // namespace seeksim::pytorch
