// nccl-tests' output in place of the model, and what a platform's name says.

#include "harness/calibration/curves.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

#include "harness/calibration/collective_times.h"
#include "harness/input/problem.h"

namespace seeksim::harness::calibration {
namespace {

std::string ranks_of(int ranks, int per_node) {
  std::string lines;
  for (int rank = 0; rank < ranks; ++rank)
    lines += "#  Rank " + std::to_string(rank) + " Group  0 Pid   42 on node" + std::to_string(rank / per_node) +
             " device  0 [0x8d] NVIDIA H100\n";
  return lines;
}

constexpr const char* kHead = "#       size         count      type   redop    root     time   algbw   busbw #wrong\n";
constexpr const char* kGather =
    "     1048576         16384     float    none      -1    100.0   10.49    9.83      0    90.0   11.65   10.92 0\n"
    "     4194304         65536     float    none      -1    200.0   20.97   19.66      0    190.0  22.08   20.70 0\n";
constexpr const char* kSum =
    "     1048576        262144     float     sum      -1    123.2    8.51   15.95      0    121.3    8.64  16.21 0\n";
constexpr const char* kScatter =
    "     1048576         16384     float     sum      -1    100.0   10.49    9.83      0    90.0   11.65   10.92 0\n";
// Before there was a column for the root.
constexpr const char* kOld =
    "     1048576        262144     float     sum    123.2    8.51   15.95  2e-07    121.3    8.64   16.21  2e-07\n";

TEST(Curves, AreReadFromNcclTests) {
  const Curve gather = read_nccl_tests(ranks_of(16, 8) + kHead + kGather, "out.txt");
  EXPECT_EQ(gather.what, Collective::all_gather);
  EXPECT_EQ(gather.ranks, 16);
  EXPECT_EQ(gather.nodes, 2);
  ASSERT_EQ(gather.points.size(), 2u);
  EXPECT_DOUBLE_EQ(gather.us(1048576), 100);
  EXPECT_DOUBLE_EQ(gather.us(1024), 100);
  EXPECT_NEAR(gather.us(2097152), 141.42, 0.01);
  EXPECT_DOUBLE_EQ(gather.us(8388608), 400);
}

TEST(Curves, TellTheCollectiveByItsBandwidths) {
  for (const char* rows : {kSum, kOld})
    EXPECT_EQ(read_nccl_tests(ranks_of(16, 8) + rows, "out.txt").what, Collective::all_reduce);
  EXPECT_EQ(read_nccl_tests(ranks_of(16, 8) + kScatter, "out.txt").what, Collective::reduce_scatter);
}

TEST(Curves, ArePrintedByLaunchersWithPrefixes) {
  const std::string text = ranks_of(16, 8) + "0: " + kSum + "[1,0]<stdout>:" + kSum;
  EXPECT_DOUBLE_EQ(read_nccl_tests(text, "out.txt").us(1048576), 123.2);
}

TEST(Curves, WithoutRanksOrRowsAreRefused) {
  EXPECT_THROW(read_nccl_tests(std::string(kHead) + kSum, "out.txt"), BadInput);
  EXPECT_THROW(read_nccl_tests(ranks_of(8, 8) + kHead, "out.txt"), BadInput);
  EXPECT_THROW(read_nccl_tests("", "out.txt"), BadInput);
  EXPECT_THROW(read_nccl_tests(ranks_of(8, 8) + "1048576 262144 float sum -1 inf 0.00 0.00 0\n", "out.txt"), BadInput);
  // A line whose bandwidth does not follow from its size and time is no row.
  EXPECT_THROW(read_nccl_tests(ranks_of(8, 8) + "1048576 262144 float sum -1 123.2 85.1 159.5 0\n", "out.txt"),
               BadInput);
}

std::string refusal_of(const std::string& text) {
  try {
    read_nccl_tests(text, "out.txt");
  } catch (const BadInput& bad) {
    return bad.problems().at(0).text();
  }
  return "";
}

// Line 9 is the first below eight ranks.
TEST(Curves, ABadRowIsNamedWithItsLine) {
  for (const char* row :
       {"1048576 262144 float sum -1 inf 0.00 0.00 0", "1048576 262144 float sum -1 nan 0.00 0.00 0",
        "1048576 262144 float sum -1 -123.2 -8.51 -15.95 0", "1048576 262144 float sum -1 123.2 8.51 -15.95 0",
        "-1048576 262144 float sum -1 123.2 8.51 15.95 0", "1e400 262144 float sum -1 123.2 8.51 15.95 0",
        "1e300 262144 float sum -1 1e290 10000000.00 15.95 0", "1048576 262144 float sum -1 1e-308 8.51 15.95 0",
        "1 1 float sum -1 1e308 0.00 0.00 0", "1048576 262144 float sum",
        "1048576 262144 float sum -1 123.2 85.1 159 0", "1048576 262144 float sum -1 123,2 8,51 15,95 0",
        "0 262144 float sum -1 123.2 0.00 0.00 0"}) {
    const std::string refusal = refusal_of(ranks_of(8, 8) + row + '\n' + kSum);
    EXPECT_TRUE(refusal.starts_with("out.txt:9: this is no row of nccl-tests")) << row << " gives " << refusal;
  }
}

TEST(Curves, OneFileIsOneOutput) {
  EXPECT_TRUE(refusal_of(ranks_of(8, 8) + kScatter + kGather).starts_with("out.txt:10: this row is of another"));
  EXPECT_TRUE(refusal_of(ranks_of(8, 8) + ranks_of(8, 8) + kSum).starts_with("out.txt:9: rank \"0\" is named twice"));
}

TEST(Curves, SizesComeInAnyOrderAndTheLastRowOfOneCounts) {
  const std::string large = "4194304 65536 float none -1 200.0 20.97 19.66 0\n",
                    small = "1048576 16384 float none -1 100.0 10.49 9.83 0\n",
                    again = "4194304 65536 float none -1 210.0 19.97 18.72 0\n",
                    nothing = "0 0 float none -1 4.5 0.00 0.00 0\n";
  const Curve curve = read_nccl_tests(ranks_of(16, 8) + nothing + large + small + again, "out.txt");
  ASSERT_EQ(curve.points.size(), 2u);
  EXPECT_DOUBLE_EQ(curve.points[0].us, 100);
  EXPECT_DOUBLE_EQ(curve.points[1].us, 210);
}

TEST(Curves, WhatIsNoTextIsNoCurve) {
  EXPECT_NE(refusal_of(std::string(1000, '\xff')), "");
  EXPECT_NE(refusal_of(std::string(1000, '\0')), "");
  EXPECT_NE(refusal_of(ranks_of(8, 8) + "1048576 262144 fl\xff\xfe"
                                        "at sum -1 1 2 3 0\n"),
            "");
}

// A thousand edits of an output, each of up to four bytes: refused, or times that are times.
TEST(Curves, EditedOutputsAreRefusedOrGiveTimes) {
  const std::string whole = ranks_of(16, 8) + kHead + kGather;
  std::uint64_t state = 1;
  const auto drawn = [&](std::size_t below) {
    state = state * 6364136223846793005 + 1442695040888963407;
    return std::size_t(state >> 33) % below;
  };
  int taken = 0;
  for (int i = 0; i < 1000; ++i) {
    std::string text = whole;
    for (std::size_t edits = 1 + drawn(4); edits > 0; --edits) text[drawn(text.size())] = char(drawn(256));
    try {
      const Curve curve = read_nccl_tests(text, "out.txt");
      for (const double bytes : {1.0, 1e6, 3e6, 1e12}) {
        EXPECT_TRUE(std::isfinite(curve.us(bytes))) << text;
        EXPECT_GT(curve.us(bytes), 0) << text;
      }
      ++taken;
    } catch (const BadInput&) {
    }
  }
  EXPECT_GT(taken, 500);
}

TEST(Curves, ReplaceTheModelForTheirGroupAlone) {
  Platform platform;
  platform.curves.push_back(read_nccl_tests(ranks_of(16, 8) + kGather, "out.txt"));
  const auto time = [&](Collective what, int ranks, int per_node) {
    return collective_time(what, 1048576, {ranks, per_node, 1, 1}, platform);
  };
  EXPECT_TRUE(time(Collective::all_gather, 16, 8).measured);
  EXPECT_DOUBLE_EQ(time(Collective::all_gather, 16, 8).us, 100);
  EXPECT_FALSE(time(Collective::all_gather, 16, 4).measured);
  EXPECT_FALSE(time(Collective::all_gather, 8, 8).measured);
  EXPECT_FALSE(time(Collective::all_reduce, 16, 8).measured);
}

TEST(Platforms, AreNamedWithWhatDiffers) {
  const Platform some = platform_of("a100,network=hdr8,stack=eager,node=4,oversubscription=2,leaf=16", "--platform");
  EXPECT_EQ(text(some), "a100,network=hdr8,stack=eager,node=4,oversubscription=2,leaf=16");
  EXPECT_FALSE(some.has_nvls());
  EXPECT_EQ(text(platform_of("h100", "")), "h100,network=ib,stack=plain");
  // Adapters go with the GPUs.
  EXPECT_DOUBLE_EQ(2 * platform_of("h100,node=4", "").wire_bytes_per_us(2),
                   platform_of("h100", "").wire_bytes_per_us(2));
  EXPECT_LT(platform_of("h100,watts=500", "").peak_flops_per_us(), platform_of("h100", "").peak_flops_per_us());
}

TEST(Platforms, ThatNobodyMeasuredAreRefused) {
  for (const char* bad : {"b200", "h100,network=roce", "h100,stack=jax", "h100,nodes=3", "h100,node=0", "h100,watts=9",
                          "h100,oversubscription=0.5", "h100,leaf=x", ""})
    EXPECT_THROW(platform_of(bad, "--platform"), BadInput) << bad;
}

}  // namespace
}  // namespace seeksim::harness::calibration
