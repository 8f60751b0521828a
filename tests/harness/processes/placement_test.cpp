// Which ranks may share a GPU: NCCL decides by its version and by one variable.
#include "harness/processes/placement.h"

#include <gtest/gtest.h>

#include "harness/doctor/machine.h"

namespace seeksim::harness {
namespace {

const std::vector<std::string> kTwoOnOne = {"GPU-a", "GPU-b", "GPU-a"};

std::string said_of(const std::vector<std::string>& gpus, int ranks, int version, const char* enabled) {
  std::string all;
  for (const Problem& problem : problems_of_sharing(gpus, ranks, version, enabled)) all += problem.text();
  return all;
}

TEST(Placement, AGpuForEachRankIsNoProblem) {
  EXPECT_EQ(said_of({"GPU-a", "GPU-b"}, 2, 22809, nullptr), "");
  EXPECT_EQ(said_of(kTwoOnOne, 2, 22809, nullptr), "") << "the third process has no part in this run";
  EXPECT_EQ(said_of({"", ""}, 2, 22809, nullptr), "") << "nobody knows which GPUs those are";
}

TEST(Placement, TwoRanksOnOneGpuNeedANewNcclAndItsVariable) {
  EXPECT_EQ(said_of(kTwoOnOne, 3, 23003, "1"), "");
  const std::string old = said_of(kTwoOnOne, 3, 22809, "1"), without = said_of(kTwoOnOne, 3, 23003, nullptr),
                    off = said_of(kTwoOnOne, 3, 23003, "0");
  EXPECT_NE(old.find("ranks 0 and 2 would share one GPU (\"GPU-a\"): NCCL 2.28.9 takes one rank a GPU; from 2.30 on"),
            std::string::npos)
      << old;
  EXPECT_NE(without.find("NCCL 2.30.3 takes one rank a GPU unless NCCL_MULTI_RANK_GPU_ENABLE=1 is set"),
            std::string::npos)
      << without;
  EXPECT_EQ(without, off);
}

TEST(Placement, TheDoctorSaysWhetherRanksMayShareAGpu) {
  EXPECT_EQ(nccl_probe(0, "1").state, Probe::State::missing);
  EXPECT_NE(nccl_probe(22809, nullptr).text.find("2.28.9 takes one rank a GPU; from 2.30 on"), std::string::npos);
  EXPECT_NE(nccl_probe(23003, nullptr).text.find("unless NCCL_MULTI_RANK_GPU_ENABLE=1 is set"), std::string::npos);
  EXPECT_EQ(nccl_probe(23003, "1").text, "NCCL 2.30.3 takes several ranks a GPU");
}

}  // namespace
}  // namespace seeksim::harness
