// The race detector on bare queues: each rule of what comes before what, alone.
#include "tests/sim/sim_test.h"

namespace seeksim::sim {
namespace {

using kernels::Lane;
using kernels::Vec;
using runtime::Queue;

void reads(Queue& q, const Rank& rank, const BufferPtr& b, kernels::Index first, kernels::Index n) {
  q.launch(
      op_of(rank, OpKind::compute, 1), {1e6, 0}, [](Lane, Vec<const float>) {}, vec<const float>(*b, first, n));
}
void writes(Queue& q, const Rank& rank, const BufferPtr& b, kernels::Index first, kernels::Index n) {
  q.launch(
      op_of(rank, OpKind::compute, 1), {1e6, 0}, [](Lane, Vec<float>) {}, vec<float>(*b, first, n));
}
void host(Rank& rank, const BufferPtr& b, bool write) {
  rank.device.host_touches(op_of(rank, OpKind::copy, 1), {b.get(), 0, b->bytes, write});
}

struct Queues {
  explicit Queues(Rank& rank)
      : rank(rank),
        compute(rank.device.compute_queue()),
        communication(rank.device.communication_queue()),
        copy(rank.device.copy_queue()),
        b(floats(rank, 100)) {}
  ~Queues() { rank.device.drain(); }  // b is not given back in use
  Rank& rank;
  Queue& compute;
  Queue& communication;
  Queue& copy;
  BufferPtr b;
};

std::vector<Race> races_of(const std::function<void(Queues&)>& body) {
  WorldPlan plan = small_world(1);
  plan.race_detector = true;
  World world(plan);
  const WorldResult result = world.run([&](Rank& rank) {
    Queues queues(rank);
    body(queues);
  });
  EXPECT_TRUE(all_returned(result));
  return result.races;
}

TEST(RaceDetector, TwoReadersNeedNoOrder) {
  EXPECT_TRUE(races_of([](Queues& q) {
                reads(q.compute, q.rank, q.b, 0, 100);
                reads(q.communication, q.rank, q.b, 50, 50);
                host(q.rank, q.b, false);
              }).empty());
}

TEST(RaceDetector, AQueueIsInOrder) {
  EXPECT_TRUE(races_of([](Queues& q) {
                writes(q.compute, q.rank, q.b, 0, 100);
                reads(q.compute, q.rank, q.b, 0, 50);
                writes(q.compute, q.rank, q.b, 20, 50);
              }).empty());
}

TEST(RaceDetector, AReaderWaitsForTheWriter) {
  const std::vector<Race> races = races_of([](Queues& q) {
    writes(q.compute, q.rank, q.b, 0, 60);
    reads(q.communication, q.rank, q.b, 50, 50);
  });
  ASSERT_EQ(races.size(), 1u);
  EXPECT_EQ(races[0].rank, 0);
  for (const char* part : {"bytes [200, 240)", "the communication queue reads it", "the compute queue writes it",
                           "the communication queue has to wait for the compute queue's event"})
    EXPECT_NE(races[0].text.find(part), std::string::npos) << races[0].text;
  EXPECT_TRUE(races_of([](Queues& q) {
                writes(q.compute, q.rank, q.b, 0, 60);
                q.communication.wait(q.compute.record());
                reads(q.communication, q.rank, q.b, 50, 50);
              }).empty());
}

TEST(RaceDetector, AWriterWaitsForReadersAndWriters) {
  EXPECT_EQ(races_of([](Queues& q) {
              reads(q.compute, q.rank, q.b, 0, 100);
              writes(q.communication, q.rank, q.b, 99, 1);
            }).size(),
            1u);
  EXPECT_EQ(races_of([](Queues& q) {
              writes(q.compute, q.rank, q.b, 0, 100);
              writes(q.communication, q.rank, q.b, 0, 1);
            }).size(),
            1u);
  EXPECT_TRUE(races_of([](Queues& q) {
                writes(q.compute, q.rank, q.b, 0, 50);
                writes(q.communication, q.rank, q.b, 50, 50);  // beside it
              }).empty());
}

TEST(RaceDetector, AnEventIsAPlaceAndNotTheWholeQueue) {
  EXPECT_EQ(races_of([](Queues& q) {
              reads(q.compute, q.rank, q.b, 0, 1);
              const Event early = q.compute.record();
              writes(q.compute, q.rank, q.b, 0, 100);
              q.communication.wait(early);
              reads(q.communication, q.rank, q.b, 0, 100);
            }).size(),
            1u);
}

TEST(RaceDetector, OrderGoesThroughAThirdQueue) {
  EXPECT_TRUE(races_of([](Queues& q) {
                writes(q.compute, q.rank, q.b, 0, 100);
                q.copy.wait(q.compute.record());
                reads(q.copy, q.rank, q.b, 0, 1);
                q.communication.wait(q.copy.record());
                writes(q.communication, q.rank, q.b, 0, 100);
              }).empty());
  EXPECT_TRUE(races_of([](Queues& q) {  // even where that queue has nothing to do
                writes(q.compute, q.rank, q.b, 0, 100);
                q.copy.wait(q.compute.record());
                q.communication.wait(q.copy.record());
                writes(q.communication, q.rank, q.b, 0, 100);
              })
                  .empty());
  EXPECT_EQ(races_of([](Queues& q) {  // an event of before the wait carries nothing
              writes(q.compute, q.rank, q.b, 0, 100);
              reads(q.copy, q.rank, q.b, 0, 0);
              const Event before = q.copy.record();
              reads(q.copy, q.rank, q.b, 0, 0);
              q.copy.wait(q.compute.record());
              q.communication.wait(before);
              writes(q.communication, q.rank, q.b, 0, 100);
            })
                .size(),
            1u);
}

TEST(RaceDetector, TheHostIsOlderThanWhatItEnqueues) {
  EXPECT_TRUE(races_of([](Queues& q) {
                host(q.rank, q.b, true);
                reads(q.compute, q.rank, q.b, 0, 100);
              }).empty());
}

TEST(RaceDetector, TheHostWaitsForWhatItReads) {
  const std::vector<Race> races = races_of([](Queues& q) {
    writes(q.compute, q.rank, q.b, 0, 100);
    host(q.rank, q.b, false);
    host(q.rank, q.b, false);
  });
  ASSERT_EQ(races.size(), 1u);
  EXPECT_EQ(races[0].times, 2u);
  EXPECT_NE(races[0].text.find("the host has to wait for the compute queue's event"), std::string::npos);
  EXPECT_TRUE(races_of([](Queues& q) {
                writes(q.compute, q.rank, q.b, 0, 100);
                q.rank.device.wait(q.compute.record(), kSecond, 0);
                host(q.rank, q.b, true);
                writes(q.communication, q.rank, q.b, 0, 100);  // what the host has seen done, all later work has
              }).empty());
  EXPECT_TRUE(races_of([](Queues& q) {
                writes(q.compute, q.rank, q.b, 0, 100);
                reads(q.copy, q.rank, q.b, 0, 0);
                q.rank.device.drain();
                host(q.rank, q.b, true);
              }).empty());
}

TEST(RaceDetector, AWaitThatTimedOutOrdersNothing) {
  EXPECT_EQ(races_of([](Queues& q) {
              writes(q.compute, q.rank, q.b, 0, 100);
              EXPECT_EQ(q.rank.device.wait(q.compute.record(), 0, 0), runtime::WaitResult::timed_out);
              host(q.rank, q.b, false);
            }).size(),
            1u);
}

TEST(RaceDetector, MemoryInUseIsNotGivenBack) {
  const std::vector<Race> races = races_of([](Queues& q) {
    writes(q.compute, q.rank, q.b, 0, 1);
    q.b.reset();
    q.b = floats(q.rank, 100);
    writes(q.communication, q.rank, q.b, 0, 1);  // other memory
  });
  ASSERT_EQ(races.size(), 1u);
  EXPECT_NE(races[0].text.find("is given back while the compute queue writes it"), std::string::npos) << races[0].text;
  EXPECT_TRUE(races_of([](Queues& q) {
                writes(q.compute, q.rank, q.b, 0, 1);
                q.rank.device.wait(q.compute.record(), kSecond, 0);
                q.b.reset();
                q.b = floats(q.rank, 1);
              }).empty());
}

TEST(RaceDetector, AnExchangeReadsWhatItSendsAndWritesWhatItReceives) {
  for (const bool ordered : {true, false}) {
    WorldPlan plan = small_world(2);
    plan.race_detector = true;
    World world(plan);
    const WorldResult result = world.run([&](Rank& rank) {
      const Comm comm = make_comm(rank);
      const BufferPtr b = floats(rank, 2);
      const int peer = 1 - rank.id;
      writes(rank.device.compute_queue(), rank, b, 0, 1);
      if (ordered) rank.device.communication_queue().wait(rank.device.compute_queue().record());
      const Event done =
          exchange(rank, comm, op_of(rank, OpKind::send, 1), {send_to(peer, b, 0, 1), receive_from(peer, b, 1, 1)});
      if (ordered) rank.device.compute_queue().wait(done);
      reads(rank.device.compute_queue(), rank, b, 1, 1);
      rank.device.drain();
    });
    EXPECT_TRUE(all_returned(result));
    std::uint64_t found = 0;
    for (const Race& race : result.races) found += race.times;
    EXPECT_EQ(found, ordered ? 0u : 4u);  // both pieces, on both ranks
    EXPECT_GT(result.accesses, 0u);
  }
}

// Memory of a dead process has no user.
TEST(RaceDetector, ADeadRankGivesNothingBackTooEarly) {
  WorldPlan plan = small_world(1);
  plan.race_detector = true;
  World world(plan);
  const WorldResult result = world.run([&](Rank& rank) {
    const BufferPtr b = floats(rank, 1);
    writes(rank.device.compute_queue(), rank, b, 0, 1);
    throw runtime::RankDied{rank.id};
  });
  EXPECT_TRUE(result.races.empty());
}

// Overlapping ranges of all sizes against a detector that keeps one place a byte.
TEST(RaceDetector, KnowsEveryByte) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    std::uint64_t state = seed * 0x9e3779b97f4a7c15ull;
    const auto draw = [&](int below) {
      state = state * 6364136223846793005ull + 1442695040888963407ull;
      return int((state >> 33) % std::uint64_t(below));
    };
    constexpr int kFloats = 16;
    std::array<int, kFloats> written{}, read{};  // by queue 0 or 1: bits
    bool raced = false;
    const std::vector<Race> races = races_of([&](Queues& q) {
      for (int i = 0; i < 6; ++i) {
        const int queue = draw(2), lo = draw(kFloats), n = 1 + draw(kFloats - lo);
        const bool write = draw(3) == 0;
        for (int at = lo; at < lo + n; ++at) {
          const int other = 2 >> queue;
          raced |= (written[std::size_t(at)] & other) || (write && (read[std::size_t(at)] & other));
          (write ? written : read)[std::size_t(at)] |= 1 << queue;
        }
        (write ? writes : reads)(queue == 0 ? q.compute : q.communication, q.rank, q.b, lo, n);
      }
    });
    EXPECT_EQ(!races.empty(), raced) << "seed " << seed;
  }
}

}  // namespace
}  // namespace seeksim::sim
