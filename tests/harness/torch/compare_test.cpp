// Two runs held against each other: equal, a little apart, and where the first difference began.
#include "harness/torch/compare.h"

#include <gtest/gtest.h>

#include <cmath>

#include <nlohmann/json.hpp>

#include "harness/input/problem.h"
#include "tests/harness/torch/made_run.h"

namespace seeksim::harness::torch {
namespace {

using testing::made_run;
using testing::MadeRank;
using testing::MadeRun;
using Step = MadeRank::Step;

RunComparison compare(const TorchRun& a, const TorchRun& b) { return compare_runs(a.ranks, b.ranks, "a", "b"); }

// A bit that flips in what rank 1 gives in step 1: everything that follows is another run.
void flipped(std::int64_t step, Step& made) {
  if (step == 1) made.sum.hash_in ^= 1;
  if (step >= 1) made.sum.hash_out ^= 1, made.gradient ^= 1;
  if (step >= 2) made.weight ^= 1, made.weight_probe += 1e-3, made.loss += 1e-3;
}

TEST(TorchCompare, EqualRunsAreOfGradeBits) {
  const RunComparison found = compare(made_run(2), made_run(2));
  EXPECT_EQ(found.grade, Grade::bits);
  EXPECT_EQ(found.weights, 8u);
  EXPECT_EQ(found.losses, 8u);
  EXPECT_EQ(found.steps, 4);
  EXPECT_FALSE(found.first.has_value());
}

// As the stages of a pipeline, of which each has a part of what each rank has by hand.
TEST(TorchCompare, WhatNoRankOfTheOtherRunHasIsCounted) {
  const auto other_name = [](std::int64_t step, Step& made) {
    if (step == 3) made.name = "body.weight";
  };
  MadeRun on_one(2), on_both(2);
  on_one[0].steps(4);
  on_one[1].steps(4, other_name);
  for (int rank : {0, 1}) on_both[rank].steps(4, other_name);
  const RunComparison there = compare(made_run(2), on_one.run()), nowhere = compare(made_run(2), on_both.run());
  EXPECT_EQ(there.only_in_a, 1u);
  EXPECT_EQ(there.on_no_rank_of_b, 0u) << "rank 0 has it";
  EXPECT_EQ(nowhere.on_no_rank_of_b, 1u) << "head.weight of step 3";
}

TEST(TorchCompare, ADifferenceIsNamedByStepParameterAndTheRankThatGaveSomethingElse) {
  MadeRun made(2);
  made[0].steps(4, [](std::int64_t step, Step& one) {
    const std::uint64_t gave = one.sum.hash_in;
    flipped(step, one);
    one.sum.hash_in = gave;  // rank 0 gave what it always gives
  });
  made[1].steps(4, flipped);
  const RunComparison found = compare(made_run(2), made.run());
  EXPECT_EQ(found.grade, Grade::rounding);
  ASSERT_TRUE(found.first.has_value());
  EXPECT_EQ(found.first->step, 2);
  EXPECT_EQ(found.first->what, "weight head.weight [8,8] (Linear)");
  EXPECT_EQ(found.first->origin, Origin::before_collective);
  EXPECT_EQ(found.first->origin_text,
            "rank 1 gave something else to all_reduce #2 of group 0 (step 1, backward) at train.py:51 main");
  const std::string text = comparison_text(found, Grade::bits, "a", "b");
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 5) << text;
  EXPECT_EQ(text.substr(0, 9), "DIFFERENT");
  EXPECT_EQ(comparison_text(found, Grade::rounding, "a", "b").substr(0, 4), "NEAR");
}

TEST(TorchCompare, ADifferenceInsideACollectiveIsTold) {
  const auto other = [](std::int64_t step, Step& made) {
    if (step >= 1) made.sum.hash_out ^= 1;
    if (step >= 2) made.weight ^= 1;
  };
  const RunComparison found = compare(made_run(1), made_run(1, 0, other));
  ASSERT_TRUE(found.first.has_value());
  EXPECT_EQ(found.first->origin, Origin::in_collective) << found.first->origin_text;
}

TEST(TorchCompare, ADifferenceBehindAllCollectivesIsTheOptimizers) {
  const auto other = [](std::int64_t step, Step& made) {
    if (step >= 2) made.weight ^= 1;
  };
  const RunComparison found = compare(made_run(2), made_run(2, 1, other));
  ASSERT_TRUE(found.first.has_value());
  EXPECT_EQ(found.first->origin, Origin::after_collective) << found.first->origin_text;
  EXPECT_EQ(found.first->rank, 1);
}

TEST(TorchCompare, RunsWithOtherCollectivesAreToldApartByTheirGradients) {
  const auto other = [](std::int64_t step, Step& made) {
    made.sum.op = testing::OpName::reduce_scatter;
    if (step >= 1) made.gradient ^= 1;
    if (step >= 2) made.weight ^= 1;
  };
  const RunComparison found = compare(made_run(1), made_run(1, 0, other));
  ASSERT_TRUE(found.first.has_value());
  EXPECT_EQ(found.first->origin, Origin::unknown);
  EXPECT_NE(found.first->origin_text.find("the gradient of head.weight in step 1 differed"), std::string::npos)
      << found.first->origin_text;
}

TEST(TorchCompare, GradesFollowTheDistance) {
  const auto away = [](double by) {
    return [by](std::int64_t, Step& made) { made.weight ^= 1, made.weight_probe += by; };
  };
  const TorchRun base = made_run(1);
  EXPECT_EQ(compare(base, made_run(1, 0, away(1e-7))).grade, Grade::reassociated);
  EXPECT_EQ(compare(base, made_run(1, 0, away(1e-4))).grade, Grade::rounding);
  EXPECT_EQ(compare(base, made_run(1, 0, away(0.5))).grade, Grade::different);
  const auto nan = [](std::int64_t step, Step& made) {
    if (step == 3) made.loss = std::nan("");
  };
  EXPECT_EQ(compare(base, made_run(1, 0, nan)).grade, Grade::different);
}

// Every weight and loss from step 1 on is so far away.
MadeRank::Change moved(double distance) {
  return [distance](std::int64_t step, Step& made) {
    if (step == 0) return;
    made.weight ^= 1;
    made.weight_probe += distance;
    made.loss *= 1 + distance;
  };
}
TorchRun all_moved(double distance) {
  MadeRun made(2);
  for (int rank = 0; rank < 2; ++rank) made[rank].steps(4, moved(distance));
  return made.run();
}

TEST(TorchCompare, WhatOtherOrdersOfSumsMoveIsTheBoundOfReassociated) {
  const TorchRun a = made_run(2);
  const auto grade = [&](double measured, double distance) {
    Allowance allowed;
    allowed.add(compare(a, all_moved(measured)).distances);
    return compare_runs(a.ranks, all_moved(distance).ranks, "a", "b", &allowed).grade;
  };
  EXPECT_EQ(grade(1e-5, 7e-5), Grade::reassociated);  // beyond 1e-6, and the orders explain it
  EXPECT_EQ(grade(1e-5, 9e-5), Grade::rounding);
  EXPECT_EQ(grade(1e-9, 1e-7), Grade::reassociated);  // an update that rounds the other way
  EXPECT_EQ(grade(1e-9, 9e-7), Grade::rounding);      // below 1e-6, and nothing explains it
}

TEST(TorchCompare, EachWeightAndStepIsHeldToWhatItsOwnSumsMove) {
  const TorchRun a = made_run(2);
  Allowance allowed;
  allowed.add(compare(a, all_moved(1e-5)).distances);
  const TorchRun before_any_sum = made_run(2, 1, [](std::int64_t step, Step& made) {
    if (step == 0) made.weight ^= 1, made.weight_probe += 1e-8;
  });
  const RunComparison found = compare_runs(a.ranks, before_any_sum.ranks, "a", "b", &allowed);
  EXPECT_EQ(found.grade, Grade::rounding);
  EXPECT_EQ(found.of_what, "step 0: head.weight");
  EXPECT_NE(comparison_text(found, Grade::reassociated, "a", "b").find("of what other orders of sums allow, at step 0"),
            std::string::npos);
}

// Weights that are rounded before they are used are apart before the first step, too.
TEST(TorchCompare, WhatMovedTheFarthestWeightMayCountForEachOne) {
  Allowance allowed;
  EXPECT_EQ(allowed.of(0, "head.weight"), 0);
  allowed.least = 0x1p-9;
  EXPECT_EQ(allowed.of(0, "head.weight"), 0x1p-6);
  allowed.add({{{1, "head.weight"}, 0.5}, {{2, ""}, 0.25}});
  EXPECT_EQ(allowed.of(1, "head.weight"), 4);
  EXPECT_EQ(allowed.of(1, "other"), 0x1p-6);
  allowed.spread();
  EXPECT_EQ(allowed.of(0, "other"), 4);
  EXPECT_EQ(allowed.of(0, ""), 2);
}

TEST(TorchCompare, AnOrderThatIsNoSuchRunIsBadInput) {
  const TorchRun a = made_run(2);
  const auto refused = [&](MadeRun& order, int steps, double distance) {
    for (int rank = 0; rank < 2; ++rank) order[rank].steps(steps, moved(distance));
    const TorchRun run = order.run();
    try {
      allowance_of(a.ranks, "a", {run.folder});
    } catch (const BadInput& wrong) {
      return wrong.problems().front().what;
    }
    return std::string();
  };
  MadeRun good(2), shorter(2);
  EXPECT_EQ(refused(good, 4, 1e-5), "");
  EXPECT_NE(refused(shorter, 3, 1e-5).find("not both recorded the same values"), std::string::npos);
  EXPECT_THROW(allowance_of(a.ranks, "a", {a.folder}), BadInput);  // its records are gone
}

TEST(TorchCompare, ALossThatIsScaledByAPowerOfTwoIsTheSameLoss) {
  const RunComparison found = compare(made_run(1), made_run(1, 0, [](std::int64_t, Step& made) { made.loss *= 0.5; }));
  EXPECT_EQ(found.grade, Grade::bits);
  ASSERT_EQ(found.notes.size(), 1u);
  // DeepSpeed's bf16: four times as large, and rounded.
  const auto rounded = [](std::int64_t, Step& made) { made.loss *= 4 * (1 - 0x1p-9); };
  EXPECT_NEAR(compare(made_run(1), made_run(1, 0, rounded)).loss_distance, 0x1p-9, 1e-9);
}

TEST(TorchCompare, OtherWorldSizesCompareTheWeightsOfRank0) {
  const RunComparison found = compare(made_run(2), made_run(4));
  EXPECT_EQ(found.weights, 4u);
  EXPECT_EQ(found.losses, 0u);
  EXPECT_EQ(found.grade, Grade::bits);
}

TEST(TorchCompare, RunsWithNothingInCommonAreBadInput) {
  MadeRun idle(1);
  const TorchRun empty = idle.run();
  EXPECT_THROW(compare(made_run(1), empty), BadInput);
  EXPECT_THROW(compare_runs({}, empty.ranks, "a", "b"), BadInput);
}

TEST(TorchCompare, TheJsonSaysWhatTheTextSays) {
  const RunComparison found = compare(made_run(2), made_run(2, 1, flipped));
  const Json json = comparison_json(found, Grade::bits, "a", "b");
  EXPECT_EQ(json["grade"], "rounding");
  EXPECT_EQ(json["ok"], false);
  EXPECT_EQ(json["first"]["step"], 2);
  EXPECT_EQ(json["first"]["origin"], "before_collective");
}

}  // namespace
}  // namespace seeksim::harness::torch
