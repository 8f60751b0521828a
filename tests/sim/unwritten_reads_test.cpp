// What counts as written, and which read is a finding: on bare accesses, and on the queues of a world.
#include "sim/race_detector.h"

#include "tests/sim/sim_test.h"

namespace seeksim::sim {
namespace {

using kernels::Lane;
using kernels::Vec;
using runtime::Buffer;
using runtime::Range;

// One buffer of 100 bytes, and what is done with it.
struct Bench {
  Bench() {
    buffer.bytes = 100;
    buffer.name = "b";
    buffer.id = 3;
    op.kind = OpKind::compute;
    op.site = "here";
    reads.allocated(buffer);
  }
  void read(std::size_t lo, std::size_t hi) { access({{&buffer, lo, hi, false}}); }
  void write(std::size_t lo, std::size_t hi) { access({{&buffer, lo, hi, true}}); }
  void access(std::vector<Range> ranges) { reads.accesses(op, ranges); }
  std::size_t found() const { return reads.found().size(); }
  bool says(const std::string& words) const {
    return found() > 0 && reads.found()[0].text.find(words) != std::string::npos;
  }

  Buffer buffer;
  Op op;
  UnwrittenReads reads{5};
};

TEST(UnwrittenReads, FreshMemoryIsUnwritten) {
  Bench bench;
  bench.read(8, 12);
  ASSERT_EQ(bench.found(), 1u);
  EXPECT_EQ(bench.reads.found()[0].rank, 5);
  EXPECT_TRUE(bench.says("at here reads 'b' (scratch, buffer 3) bytes [8, 12)")) << bench.reads.found()[0].text;
}

TEST(UnwrittenReads, WhatWasWrittenMayBeRead) {
  Bench bench;
  bench.write(0, 100);
  bench.read(0, 100);
  bench.read(99, 100);
  bench.read(50, 50);  // nothing
  EXPECT_EQ(bench.found(), 0u);
  EXPECT_EQ(bench.reads.reads(), 2u);
}

TEST(UnwrittenReads, TheFirstGapIsNamed) {
  for (const bool first_read_is_inside : {false, true}) {
    Bench bench;
    bench.write(0, 10);
    bench.write(20, 30);
    if (first_read_is_inside) bench.read(22, 30);
    bench.read(5, 40);
    EXPECT_TRUE(bench.says("bytes [10, 20)"));
  }
  Bench behind;
  behind.write(0, 10);
  behind.read(0, 11);
  EXPECT_TRUE(behind.says("bytes [10, 11)"));
  Bench before;
  before.write(10, 20);
  before.read(9, 20);
  EXPECT_TRUE(before.says("bytes [9, 10)"));
}

TEST(UnwrittenReads, PiecesThatTouchAreOne) {
  Bench bench;
  for (const std::size_t at : {40, 0, 20, 60, 80}) bench.write(at, at + 20);
  bench.write(10, 90);
  bench.read(0, 100);
  EXPECT_EQ(bench.found(), 0u);
}

// Against a bit a byte.
TEST(UnwrittenReads, AgreeWithABitAByte) {
  std::uint64_t state = 1;
  const auto draw = [&state](std::size_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return std::size_t(state >> 33) % below;
  };
  std::size_t red = 0;
  for (int round = 0; round < 2000; ++round) {
    Bench bench;
    std::vector<bool> written(100);
    for (int step = 0; step < 12; ++step) {
      const std::size_t lo = draw(100), hi = lo + 1 + draw(std::min<std::size_t>(100 - lo, 30));
      if (draw(4) > 0) {
        bench.write(lo, hi);
        std::fill(written.begin() + std::ptrdiff_t(lo), written.begin() + std::ptrdiff_t(hi), true);
        continue;
      }
      const auto end = written.begin() + std::ptrdiff_t(hi);
      const auto gap = std::find(written.begin() + std::ptrdiff_t(lo), end, false);
      const bool was_clean = bench.found() == 0;
      bench.read(lo, hi);
      if (!was_clean) continue;
      ASSERT_EQ(bench.found(), gap == end ? 0u : 1u);
      if (gap == end) continue;
      ++red;
      ASSERT_TRUE(bench.says("bytes [" + std::to_string(gap - written.begin()) + ", ")) << bench.reads.found()[0].text;
    }
  }
  EXPECT_GT(red, 500u);
}

TEST(UnwrittenReads, AnOperationReadsBeforeItWrites) {
  Bench bench;
  bench.access({{&bench.buffer, 0, 4, true}, {&bench.buffer, 0, 4, false}});
  EXPECT_EQ(bench.found(), 1u);
}

TEST(UnwrittenReads, MemoryThatIsGivenBackForgets) {
  Bench bench;
  bench.write(0, 100);
  bench.reads.released(bench.buffer);
  bench.reads.allocated(bench.buffer);
  bench.read(0, 1);
  EXPECT_EQ(bench.found(), 1u);
}

TEST(UnwrittenReads, OneFindingACallSiteAndBuffer) {
  Bench bench;
  bench.read(0, 1);
  bench.read(5, 9);
  ASSERT_EQ(bench.found(), 1u);
  EXPECT_EQ(bench.reads.found()[0].times, 2u);
  bench.op.site = "there";
  bench.read(0, 1);
  EXPECT_EQ(bench.found(), 2u);
}

TEST(UnwrittenReads, AWorldTellsOfItsLaunchesAndItsHosts) {
  WorldPlan plan = small_world(2);
  plan.race_detector = true;
  World world(plan);
  const WorldResult result = world.run([](Rank& rank) {
    const BufferPtr b = floats(rank, 8), to = floats(rank, 8);
    rank.device.host_touches(op_of(rank, OpKind::copy, 1), {b.get(), 0, 16, true});
    const kernels::Index n = rank.id == 0 ? 4 : 5;
    rank.device.compute_queue().launch(
        op_of(rank, OpKind::compute, 1), {}, [](Lane, Vec<const float>, Vec<float>) {}, vec<const float>(*b, 0, n),
        vec<float>(*to, 0, n));
    rank.device.drain();
    rank.device.host_touches(op_of(rank, OpKind::copy, 1), {to.get(), 0, 16, false});
  });
  ASSERT_EQ(result.unwritten.size(), 1u);
  EXPECT_EQ(result.unwritten[0].rank, 1);
  EXPECT_NE(result.unwritten[0].text.find("bytes [16, 20)"), std::string::npos) << result.unwritten[0].text;
  EXPECT_EQ(result.reads, 4u);
}

}  // namespace
}  // namespace seeksim::sim
