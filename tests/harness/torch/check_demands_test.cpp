// Lines of `seeksim torch check` from runs made by hand: what is red, what is not, and what says why it cannot be told.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "harness/torch/check/check.h"
#include "tests/harness/torch/made_run.h"

namespace seeksim::harness::torch {
namespace {

using pytorch::SightKind;
using State = CheckLine::State;
using testing::made_run;
using testing::MadeRank;
using testing::MadeRun;
using Step = MadeRank::Step;

const Switch& of_name(const std::string& name) {
  const auto& all = switches();
  return *std::find_if(all.begin(), all.end(), [&](const Switch& one) { return one.name == name; });
}

// Two ranks that have no weight in common, as in a pipeline. `turned`: the switch that took effect; `moved`: how far
// rank 1's weights are away from step 1 on.
TorchRun pipeline(const std::string& turned = "", double moved = 0, const std::string& uses = "") {
  MadeRun made(2);
  for (int rank = 0; rank < 2; ++rank) {
    if (!turned.empty()) made[rank].sees(SightKind::turned, turned);
    if (!uses.empty()) made[rank].sees(SightKind::uses, uses);
    made[rank].steps(4, [&](std::int64_t step, Step& what) {
      what.name = "block" + std::to_string(rank);
      if (rank == 1 && step >= 1 && moved > 0) what.weight ^= 1, what.weight_probe += moved;
    });
  }
  return made.run();
}

Allowance measured(double moved) {
  Allowance allowed;
  allowed.add(compare_runs(pipeline().ranks, pipeline("rounding", moved).ranks, "a", "b").distances);
  allowed.spread();
  return allowed;
}

TEST(CheckDemands, WhatRoundingMovesIsAllowedAndNoMore) {
  const Allowance allowed = measured(1e-5);
  const CheckLine near = judged(of_name("threads"), pipeline(), pipeline("threads", 5e-5), &allowed);
  EXPECT_EQ(near.state, State::good) << near.text;
  const CheckLine far = judged(of_name("threads"), pipeline(), pipeline("threads", 1e-4), &allowed);
  EXPECT_EQ(far.state, State::red) << far.text;
  EXPECT_NE(far.text.find("of what other sums and roundings allow; first at step 1, rank 1"), std::string::npos)
      << far.text;
}

TEST(CheckDemands, WithoutAMeasureADistanceIsToldAndNotJudged) {
  const CheckLine line = judged(of_name("threads"), pipeline(), pipeline("threads", 1e-4), nullptr);
  EXPECT_EQ(line.state, State::not_applicable);
  EXPECT_NE(line.text.find("1.0e-04 away; nothing measures how far is allowed"), std::string::npos) << line.text;
  EXPECT_EQ(judged(of_name("threads"), pipeline(), pipeline("threads"), nullptr).state, State::good);
}

TEST(CheckDemands, AWeightWithoutReplicasHasToBeSeenInTheRecord) {
  const CheckLine seen = judged(of_name("weight"), pipeline(), pipeline("weight", 1e-3), nullptr);
  EXPECT_EQ(seen.state, State::good) << seen.text;
  EXPECT_NE(seen.text.find("no weight is on two ranks"), std::string::npos) << seen.text;
  EXPECT_EQ(judged(of_name("weight"), pipeline(), pipeline("weight"), nullptr).state, State::red);
}

// Where ranks have replicas the judge has to see it: that the record does is not enough.
TEST(CheckDemands, AWeightWithReplicasHasToBeSeenByTheJudge) {
  const auto turned = [](const MadeRank::Change& change) {
    MadeRun made(2);
    for (int rank = 0; rank < 2; ++rank) made[rank].sees(SightKind::turned, "weight");
    made[0].steps(4);
    made[1].steps(4, change);
    return made.run();
  };
  const TorchRun flipped = turned([](std::int64_t step, Step& made) { made.weight ^= std::uint64_t(step >= 2); });
  EXPECT_EQ(judged(of_name("weight"), made_run(2), flipped, nullptr).state, State::good);
  EXPECT_EQ(judged(of_name("weight"), made_run(2), turned({}), nullptr).state, State::red);
}

TEST(CheckDemands, ADataSetThatDrawsExplainsWhatAWorkerChanges) {
  const TorchRun far = pipeline("workers", 0.1);
  EXPECT_EQ(judged(of_name("workers"), pipeline(), far, nullptr).state, State::red);
  const CheckLine line = judged(of_name("workers"), pipeline("", 0, "drawing data"), far, nullptr);
  EXPECT_EQ(line.state, State::not_applicable);
  EXPECT_NE(line.text.find("a worker draws others"), std::string::npos) << line.text;
}

// Ranks that each draw from a seed of their own train otherwise with each other's samples; with one seed they must not.
TEST(CheckDemands, SeedsOfTheirOwnExplainWhatOtherSamplesChange) {
  const auto seeded = [](const std::string& of_rank_1, bool draws) {
    MadeRun made(2);
    for (int rank = 0; rank < 2; ++rank) {
      made[rank].sees(SightKind::uses, rank == 0 ? "seed 10" : of_rank_1);
      if (draws) made[rank].sees(SightKind::uses, "drawing");
      made[rank].steps(4);
    }
    return made.run();
  };
  const auto far = [](std::int64_t step, Step& made) {
    if (step >= 1) made.weight ^= 1, made.weight_probe += 0.1;
  };
  MadeRun other(2);
  for (int rank = 0; rank < 2; ++rank) {
    other[rank].sees(SightKind::turned, "ranks");
    other[rank].steps(4, far);
  }
  const TorchRun reversed = other.run();
  const Allowance allowed = measured(1e-5);
  EXPECT_EQ(judged(of_name("ranks"), seeded("seed 11", true), reversed, &allowed).state, State::not_applicable);
  EXPECT_EQ(judged(of_name("ranks"), seeded("seed 10", true), reversed, &allowed).state, State::red);
  EXPECT_EQ(judged(of_name("ranks"), seeded("seed 11", false), reversed, &allowed).state, State::red);
}

// Dropout from one seed: four ranks draw other masks for the samples than two do.
TEST(CheckDemands, RandomNumbersExplainWhatOtherNumbersOfRanksChange) {
  const auto run = [](int ranks, bool draws, double moved) {
    MadeRun made(ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      if (draws) made[rank].sees(SightKind::uses, "drawing");
      made[rank].steps(4, [&](std::int64_t step, Step& what) {
        what.samples.clear();
        if (step >= 1 && moved > 0) what.weight ^= 1, what.weight_probe += moved;
      });
    }
    return made.run();
  };
  const Allowance allowed = measured(1e-5);
  EXPECT_EQ(judged(of_name("np"), run(2, true, 0), run(4, true, 0.1), &allowed).state, State::not_applicable);
  EXPECT_EQ(judged(of_name("np"), run(2, false, 0), run(4, false, 0.1), &allowed).state, State::red);
}

TEST(CheckDemands, AScriptThatUsesNoMoreRanksIsForThatMany) {
  MadeRun more(4);
  for (int rank = 0; rank < 2; ++rank) more[rank].steps(4);
  const CheckLine line = judged(of_name("np"), made_run(2), more.run(), nullptr);
  EXPECT_EQ(line.state, State::not_applicable);
  EXPECT_NE(line.text.find("rank 2 recorded no collective"), std::string::npos) << line.text;
}

}  // namespace
}  // namespace seeksim::harness::torch
