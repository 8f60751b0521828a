// Judges of what people forget in training scripts, each seen green and red on records made by hand.
#include "harness/torch/habits.h"

#include <gtest/gtest.h>

#include "harness/torch/check/check.h"
#include "tests/harness/torch/made_run.h"

namespace seeksim::harness::torch {
namespace {

using pytorch::SightKind;
using testing::made_run;
using testing::MadeRank;
using testing::MadeRun;
using Step = MadeRank::Step;

// Two ranks with four steps each; `more` adds to rank 1 what its hooks saw.
TorchRun seen(SightKind kind, const std::string& name, std::int64_t step = 2) {
  MadeRun run(2);
  for (int rank = 0; rank < 2; ++rank) run[rank].steps(4);
  run[1].sees(kind, name, "", step);
  return run.run();
}
bool has(const Finding& finding, const std::string& words) { return finding.detail.find(words) != std::string::npos; }

TEST(TorchHabits, RanksThatReadTheSameSamplesAreNamed) {
  EXPECT_TRUE(samples(made_run(2)).ok);
  const Finding same = samples(made_run(2, 1, [](std::int64_t step, Step& made) {
    made.samples = std::to_string(step) + ":5";  // rank 0's
  }));
  EXPECT_FALSE(same.ok);
  EXPECT_TRUE(has(same, "ranks 0 and 1 read the same samples in batch 0")) << same.detail;
}

TEST(TorchHabits, ASampleThatComesTwiceInAnEpochIsRedButNotInTheLastBatch) {
  const auto again = [](std::int64_t at) {
    return [at](std::int64_t step, Step& made) {
      if (step == at) made.samples = "0:5";  // rank 0's of step 0
    };
  };
  const Finding twice = samples(made_run(2, 1, again(2)));
  EXPECT_FALSE(twice.ok);
  EXPECT_TRUE(has(twice, "sample 0 comes twice: rank 0 has it in batch 0, rank 1 in batch 2")) << twice.detail;
  EXPECT_TRUE(samples(made_run(2, 1, again(3))).ok);  // a sampler fills up the last batch
}

TEST(TorchHabits, ABatchThatALoaderDropsIsNamed) {
  MadeRun run(2);
  for (int rank = 0; rank < 2; ++rank) run[rank].steps(4);
  for (const std::int64_t number : {0, 1, 3})
    run[1].sees(SightKind::batch, "loader 0, epoch 1", std::to_string(50 + number) + ":5", number);
  const Finding finding = samples(run.run());
  EXPECT_FALSE(finding.ok);
  EXPECT_TRUE(has(finding, "loader 0, epoch 1: rank 1 never gets batch 2")) << finding.detail;
}

TEST(TorchHabits, RanksWithDataSetsOfTheirOwnMayUseTheSameIndices) {
  EXPECT_TRUE(
      samples(made_run(2, 1, [](std::int64_t step, Step& made) { made.samples = std::to_string(step) + ":6"; })).ok);
}

TEST(TorchHabits, AShuffledEpochInTheOrderOfTheFirstIsRed) {
  const auto epochs = [](const std::string& more, bool same_order) {
    return [=](std::int64_t step, Step& made) {
      const bool second = step >= 2;
      made.epoch = std::string("loader 0, epoch ") + (second ? "1" : "0") + more;
      made.samples = step % 2 == 0 ? "3:5,1:5,7:5,5:5" : "9:5,0:5,2:5,4:5";
      if (second && !same_order) made.samples = step % 2 == 0 ? "9:5,0:5,2:5,4:5" : "3:5,1:5,7:5,5:5";
    };
  };
  const Finding same = samples(made_run(1, 0, epochs(" shuffled", true)));
  EXPECT_FALSE(same.ok);
  EXPECT_TRUE(has(same, "set_epoch()")) << same.detail;
  EXPECT_TRUE(samples(made_run(1, 0, epochs(" shuffled", false))).ok);
  EXPECT_TRUE(samples(made_run(1, 0, epochs("", true))).ok);  // nobody asked for another order
}

TEST(TorchHabits, BatchesOfALoaderThatIsNotTrainedOnAreNotLookedAt) {
  const Finding finding = samples(made_run(2, 1, [](std::int64_t step, Step& made) {
    made.epoch = "loader 1, epoch 0";
    made.samples = std::to_string(step) + ":5";
  }));
  EXPECT_TRUE(finding.ok) << finding.detail;
}

TEST(TorchHabits, BatchesThatAreNoNumbersHarmNobody) {
  EXPECT_TRUE(
      samples(made_run(2, 1, [](std::int64_t, Step& made) { made.samples = "7:,:,x,99999999999999999999:1"; })).ok);
}

TEST(TorchHabits, AWeightThatNeverMovesIsNamed) {
  EXPECT_TRUE(weights_move(made_run(2)).ok);
  const auto still = [](std::int64_t, Step& made) { made.weight = 1000; };
  const Finding found = weights_move(made_run(2, 1, still));
  EXPECT_FALSE(found.ok);
  EXPECT_TRUE(has(found, "rank 1: head.weight requires a gradient and never changed in 4 steps")) << found.detail;
}

// DeepSpeed's copies of 16 bits: three updates of 0.001 do not show in a gain of 1.
TEST(TorchHabits, AWeightOf16BitsMayStandStill) {
  const auto still = [](std::int64_t, Step& made) { made.weight = 1000, made.type = pytorch::DType::bf16; };
  EXPECT_TRUE(weights_move(made_run(2, 1, still)).ok);
}

TEST(TorchHabits, WhatAHookSawIsRedWithRankAndStep) {
  const struct {
    Finding (*judge)(const TorchRun&);
    SightKind kind;
    const char* name;
    const char* says;
  } rows[] = {
      {gradients_cleared, SightKind::old_gradient, "head.weight", "rank 1, step 2: the gradient of head.weight"},
      {gradients_cleared, SightKind::no_gradient, "4 weights", "rank 1, step 2: none of 4 weights has a gradient"},
      {train_mode, SightKind::left_eval, "drop (Dropout)", "rank 1, step 2: drop (Dropout) is trained on in eval()"},
      {train_mode, SightKind::left_train, "drop (Dropout)", "rank 1, step 2: drop (Dropout) is in train()"},
      {clips_in_time, SightKind::late_clip, "clip_grad_norm_", "rank 1, step 2: gradients are clipped"},
      {losses_divided, SightKind::undivided, "4 micro-batches", "rank 1, step 2: 4 micro-batches add up"},
  };
  for (const auto& row : rows) {
    EXPECT_TRUE(row.judge(made_run(2)).ok) << row.says;
    const Finding found = row.judge(seen(row.kind, row.name));
    EXPECT_FALSE(found.ok) << row.says;
    EXPECT_TRUE(has(found, row.says)) << found.detail;
  }
}

// Steps in which rank 1 lost the gradients of all micro-batches but the last, of four.
TorchRun losing(int steps) {
  MadeRun run(2);
  for (int rank = 0; rank < 2; ++rank) run[rank].steps(4, [](std::int64_t, Step& made) { made.micro_batches = 2; });
  for (int step = 0; step < steps; ++step) run[1].sees(SightKind::lost_gradient, "head.weight", "", step);
  return run.run();
}

TEST(TorchHabits, GradientsThatAreLostInMostStepsAreRedAndADroppedBatchIsNot) {
  EXPECT_TRUE(gradients_cleared(losing(1)).ok);
  const Finding found = gradients_cleared(losing(3));
  EXPECT_FALSE(found.ok);
  EXPECT_TRUE(has(found, "rank 1: zero_grad() comes between the backward passes of 3 of 4 steps, first step 0"))
      << found.detail;
}

TEST(TorchHabits, AMicroBatchLeftOverFromAnEpochIsRedInTheNext) {
  // The batch that ended the first epoch comes before step 2's own.
  const auto run = [](int count, bool boundary) {
    MadeRun made(1);
    made[0].steps(2, [](std::int64_t, Step& step) { step.micro_batches = 2; });
    made[0].sees(SightKind::batch, "loader 0, epoch 0", "90:5", 2);
    made[0].steps(1, [=](std::int64_t, Step& step) {
      step.micro_batches = count;
      step.epoch = boundary ? "loader 0, epoch 1" : "loader 0, epoch 0";
    });
    return losses_divided(made.run());
  };
  const Finding found = run(3, true);
  EXPECT_FALSE(found.ok);
  EXPECT_TRUE(has(found, "it adds up 3 micro-batches, the step before 2")) << found.detail;
  EXPECT_TRUE(run(2, true).ok);   // a script that counts over epochs
  EXPECT_TRUE(run(3, false).ok);  // one that accumulates more from here on
}

const Switch& named(const std::string& name) {
  for (const Switch& one : switches())
    if (one.name == name) return one;
  throw std::runtime_error(name);
}
using State = CheckLine::State;

TEST(TorchCheck, ASwitchThatMovesAWeightIsRedWithItsPlace) {
  const TorchRun plain = made_run(2);
  EXPECT_EQ(judged(named("again"), plain, made_run(2), nullptr).state, State::good);
  const TorchRun other = made_run(2, 1, [](std::int64_t step, Step& made) {
    if (step == 2) made.weight += 7;
  });
  const CheckLine line = judged(named("again"), plain, other, nullptr);
  EXPECT_EQ(line.state, State::red);
  EXPECT_EQ(judged(named("zeros"), plain, other, nullptr).state, State::not_applicable);  // no rank turned it
}

TEST(TorchCheck, AnotherSeedHasToChangeTheLosses) {
  MadeRun run(1);
  run[0].steps(4, [](std::int64_t, Step& made) { made.loss += 0.5; });
  run[0].sees(SightKind::turned, "seed");
  EXPECT_EQ(judged(named("seed"), made_run(1), run.run(), nullptr).state, State::good);
  MadeRun same(1);
  same[0].steps(4);
  same[0].sees(SightKind::turned, "seed");
  EXPECT_EQ(judged(named("seed"), made_run(1), same.run(), nullptr).state, State::red);
}

TEST(TorchCheck, AResumedRunIsHeldAgainstTheStepsThatItRepeats) {
  const auto resumed = [](std::uint64_t by) {
    MadeRun run(2);
    for (int rank = 0; rank < 2; ++rank)
      run[rank].steps(2, [=](std::int64_t, Step& made) { made.weight += 2 + by, made.loss -= 0.5; });
    return run.run();
  };
  EXPECT_EQ(judged(named("resume"), made_run(2), resumed(0), nullptr).state, State::good);
  EXPECT_EQ(judged(named("resume"), made_run(2), resumed(1), nullptr).state, State::red);
  EXPECT_EQ(judged(named("resume"), made_run(2), made_run(2), nullptr).state, State::not_applicable);
}

TEST(TorchCheck, TwiceTheRanksAreComparedWhereTheyTrainOnAsManySamples) {
  const CheckLine line = judged(named("np"), made_run(2), made_run(4), nullptr);
  EXPECT_EQ(line.state, State::not_applicable);
  EXPECT_EQ(line.text, "2 ranks train on 2 samples a batch, 4 ranks on 4");
}

TEST(TorchCheck, GradientsThatGrowWithTheRanksAreRedThoughTheWeightsAreEqual) {
  const auto four = [](double norm) {
    MadeRun run(4);
    for (int rank = 0; rank < 4; ++rank)
      run[rank].steps(4, [=](std::int64_t step, Step& made) {
        made.gradient_norm = norm;
        if (rank > 1) made.samples = "";  // as many samples as two ranks have
        made.weight = 1000 + std::uint64_t(step);
      });
    return run.run();
  };
  const CheckLine same = judged(named("np"), made_run(2), four(1.01), nullptr);
  EXPECT_EQ(same.state, State::good) << same.text;
  const CheckLine twice = judged(named("np"), made_run(2), four(2), nullptr);
  EXPECT_EQ(twice.state, State::red);
  EXPECT_NE(twice.text.find("gradients 2 times as large on 4 ranks as on 2: they are added over the ranks"),
            std::string::npos)
      << twice.text;
  const CheckLine other = judged(named("np"), made_run(2), four(1.5), nullptr);
  EXPECT_EQ(other.state, State::red);
  EXPECT_EQ(other.text.find("added over the ranks"), std::string::npos) << other.text;
}

TEST(TorchCheck, AFlippedWeightThatNoJudgeSeesIsRed) {
  MadeRun unseen(2);
  for (int rank = 0; rank < 2; ++rank) unseen[rank].steps(4);
  unseen[1].sees(SightKind::turned, "weight");
  EXPECT_EQ(judged(named("weight"), made_run(2), unseen.run(), nullptr).state, State::red);
  MadeRun noticed(2);
  for (int rank = 0; rank < 2; ++rank)
    noticed[rank].steps(4, [rank](std::int64_t step, Step& made) { made.weight += std::uint64_t(rank * (step > 1)); });
  noticed[1].sees(SightKind::turned, "weight");
  EXPECT_EQ(judged(named("weight"), made_run(2), noticed.run(), nullptr).state, State::good);
}

}  // namespace
}  // namespace seeksim::harness::torch
