#include "pytorch/core/expectation.h"

#include <gtest/gtest.h>

namespace seeksim::pytorch {
namespace {

Expectation sum_of(std::int64_t numel) {
  Expectation e;
  e.reduce = ReduceName::sum;
  e.dtype = DType::fp32;
  e.numel = numel;
  e.tensors = 1;
  return e;
}

const std::vector<int> kLaunch = {0, 2, 5};

TEST(Expectations, RanksThatMeanTheSameAgree) {
  EXPECT_FALSE(disagreement(std::vector<Expectation>(3, sum_of(8)), kLaunch).has_value());
}

TEST(Expectations, TheOddOneOutIsNamedByItsLaunchRank) {
  std::vector<Expectation> all(3, sum_of(8));
  all[1] = sum_of(9);
  const auto found = disagreement(all, kLaunch);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->odd, std::vector<int>{1});
  EXPECT_EQ(found->text, "all_reduce fp32 x 8, sum: ranks 0, 5\n  all_reduce fp32 x 9, sum: rank 2");
}

TEST(Expectations, EveryPropertyCounts) {
  const auto differs = [](auto change) {
    std::vector<Expectation> all(3, sum_of(8));
    change(all[2]);
    const auto found = disagreement(all, kLaunch);
    return found && found->odd == std::vector<int>{2};
  };
  EXPECT_TRUE(differs([](Expectation& e) { e.op = OpName::broadcast; }));
  EXPECT_TRUE(differs([](Expectation& e) { e.reduce = ReduceName::max; }));
  EXPECT_TRUE(differs([](Expectation& e) { e.dtype = DType::bf16; }));
  EXPECT_TRUE(differs([](Expectation& e) { e.root = 1; }));
  EXPECT_TRUE(differs([](Expectation& e) { e.tensors = 2; }));
  EXPECT_TRUE(differs([](Expectation& e) { e.sizes = 2; }));
  EXPECT_TRUE(differs([](Expectation& e) { e.layout = 2; }));
}

TEST(Expectations, HowATensorLiesInMemoryIsTold) {
  std::vector<Expectation> all(2, sum_of(8));
  all[1].layout = memory_order(std::vector<int>{1, 0});
  const auto found = disagreement(all, std::vector<int>{0, 1});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->text,
            "all_reduce fp32 x 8, sum: rank 0\n  all_reduce fp32 x 8, sum, in memory by dimensions 1 0: rank 1");
  EXPECT_NE(memory_order(std::vector<int>{0, 1}), memory_order(std::vector<int>{1, 0}));
  EXPECT_EQ(memory_order_text(memory_order(std::vector<int>{0, 2, 3, 1}), 1), "0 2 3 1");
  EXPECT_EQ(memory_order_text(0x123456789abcdef0, 2).size(), 8U) << "of several tensors a number";
}

TEST(Expectations, OfTwoNobodyIsTheOddOne) {
  const std::vector<int> launch = {0, 1};
  const auto found = disagreement(std::vector<Expectation>{sum_of(8), sum_of(9)}, launch);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->odd, (std::vector<int>{0, 1}));
}

std::vector<Expectation> gathering(std::vector<std::int64_t> gives) {
  std::vector<Expectation> all(gives.size());
  for (std::size_t r = 0; r < gives.size(); ++r) {
    all[r].op = OpName::all_gather;
    for (std::size_t to = 0; to < gives.size(); ++to) {
      all[r].gives[to] = gives[r];
      all[r].takes[to] = gives[to];
    }
  }
  return all;
}

TEST(Expectations, RanksMayGiveDifferentSizesWhereOthersExpectThem) {
  EXPECT_FALSE(disagreement(gathering({4, 8, 12}), kLaunch).has_value());
}

TEST(Expectations, ASizeThatOthersDoNotExpectIsNamed) {
  std::vector<Expectation> all = gathering({4, 8, 12});
  for (std::int64_t& given : all[1].gives) given = 16;
  const auto found = disagreement(all, kLaunch);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->odd, std::vector<int>{1});
  EXPECT_NE(found->text.find("rank 2 gives 16 bytes to rank 0, which expects 8"), std::string::npos) << found->text;
}

TEST(Expectations, WhatAStrangerWroteDoesNoHarm) {
  std::vector<Expectation> all(3, sum_of(8));
  all[0].op = OpName(200);
  all[0].dtype = DType(99);
  all[0].numel = INT64_MIN;
  const auto found = disagreement(all, kLaunch);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->odd, std::vector<int>{0});
}

}  // namespace
}  // namespace seeksim::pytorch
