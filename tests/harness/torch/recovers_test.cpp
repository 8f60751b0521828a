// A training that went on, against the one that nothing disturbed: records made by hand, one part forgotten at a time.
#include "harness/torch/check/recovers.h"

#include <gtest/gtest.h>

#include <bit>
#include <filesystem>
#include <functional>
#include <set>

#include "harness/torch/check/command_words.h"
#include "pytorch/core/record.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness::torch {
namespace {

using harness::testing::TemporaryFolder;
using pytorch::RecordWriter;
using pytorch::SightKind;
using pytorch::TensorUse;

// What one step of a training is made of. Numbers stand for hashes.
struct SavedStep {
  std::uint64_t weight = 0, buffer = 7, moment = 0, left = 0;
  bool has_moment = true;
  double loss = 1;
  std::string rate, epoch = "0", samples, rng;
};
using Change = std::function<void(std::int64_t step, SavedStep& made)>;

SavedStep step_of(std::int64_t step) {
  SavedStep made;
  made.weight = 100 + std::uint64_t(step);
  made.left = 101 + std::uint64_t(step);
  made.moment = 200 + std::uint64_t(step);
  made.loss = 4.0 - 0.5 * double(step);
  made.rate = std::to_string(10 - step);
  made.samples = "s" + std::to_string(step);
  made.rng = "r" + std::to_string(step);
  return made;
}

void write(RecordWriter& writer, std::int64_t number, const SavedStep& step) {
  const auto tensor = [&](TensorUse use, const std::string& name, std::uint64_t hash) {
    pytorch::TensorEntry entry;
    entry.use = use;
    entry.step = number;
    entry.name = writer.text(name);
    entry.hash = hash;
    writer.add(entry);
  };
  const auto state = [&](const std::string& name, const std::string& value) {
    pytorch::SightEntry entry;
    entry.kind = SightKind::state;
    entry.step = number;
    entry.name = writer.text(name);
    entry.text = writer.text(value);
    writer.add(entry);
  };
  state("samples.0", step.samples);
  state("sampler.epoch", step.epoch);
  state("rng.torch", step.rng);
  tensor(TensorUse::buffer, "norm.running_mean", step.buffer);
  tensor(TensorUse::weight, "head.weight", step.weight);
  pytorch::LossEntry loss;
  loss.step = number;
  loss.bits = std::bit_cast<std::uint64_t>(step.loss);
  writer.add(loss);
  if (step.has_moment) tensor(TensorUse::state, "head.weight.exp_avg", step.moment);
  state("param_groups.0.lr", step.rate);
  writer.add(pytorch::StepEntry{number, 1, pytorch::monotonic_ns()});
  tensor(TensorUse::left, "head.weight", step.left);
}

// Steps `from` to `to` of the training, counted from 0 as a process does that begins there.
std::vector<RankRun> training(const TemporaryFolder& folder, std::int64_t from, std::int64_t to,
                              const Change& change = {}) {
  const std::string path = folder.path() + "/rank-0.rec";
  std::filesystem::remove(path);
  {
    RecordWriter writer(path, {0, 1, 0, "2.15.0", "seeksim"});
    for (std::int64_t step = from; step < to; ++step) {
      SavedStep made = step_of(step);
      if (change) change(step, made);
      write(writer, step - from, made);
    }
  }
  return read_ranks(folder.path(), 1);
}

Resumption resumed_at_4(const Change& change) {
  TemporaryFolder folder;
  const std::vector<RankRun> whole = training(folder, 0, 8);
  return hold_resumed(whole, training(folder, 4, 8, change));
}

bool says(const Resumption& found, const std::string& words) { return found.text.find(words) != std::string::npos; }

TEST(TorchRecovers, ATrainingThatGoesOnWithTheSameBitsIsTheSame) {
  const Resumption found = resumed_at_4({});
  EXPECT_TRUE(found.same) << found.text;
  EXPECT_EQ(found.first, 4);
  EXPECT_EQ(found.weights, 8u);
  EXPECT_EQ(found.losses, 4u);
  EXPECT_EQ(found.text, "the same bits: 8 weights, 4 losses of 4 steps");
}

// Each part that was forgotten, and what it makes differ from there on.
TEST(TorchRecovers, TheFirstPartThatDiffersIsNamed) {
  const auto from = [](std::int64_t at, const std::function<void(SavedStep&)>& wrong) {
    return [=](std::int64_t step, SavedStep& made) {
      if (step >= at) {
        wrong(made);
        made.left += 1000;
      }
      if (step > at) made.weight += 1000, made.loss += 1;
    };
  };
  const Resumption optimizer = resumed_at_4(from(4, [](SavedStep& made) { made.has_moment = false; }));
  EXPECT_FALSE(optimizer.same);
  EXPECT_EQ(optimizer.differ, std::vector<Part>{Part::optimizer});
  EXPECT_TRUE(says(optimizer,
                   "step 4, the first after the resume: the optimizer's state head.weight.exp_avg is not "
                   "there on rank 0"))
      << optimizer.text;
  const Resumption rate = resumed_at_4(from(5, [](SavedStep& made) { made.rate = "10"; }));
  EXPECT_EQ(rate.differ, std::vector<Part>{Part::scheduler});
  EXPECT_TRUE(says(rate, "step 5: the schedule's param_groups.0.lr is 10, and was 5 on rank 0")) << rate.text;
  const Resumption samples = resumed_at_4(from(4, [](SavedStep& made) { made.samples = "others"; }));
  EXPECT_EQ(samples.differ, std::vector<Part>{Part::sampler});
  EXPECT_TRUE(says(samples, "other samples come")) << samples.text;
  const Resumption epoch = resumed_at_4(from(4, [](SavedStep& made) { made.samples = "others", made.epoch = "9"; }));
  EXPECT_EQ(epoch.differ, std::vector<Part>{Part::sampler});
  EXPECT_TRUE(says(epoch, "the sampler is in epoch 9, and was in epoch 0")) << epoch.text;
  const Resumption rng = resumed_at_4(from(4, [](SavedStep& made) { made.rng = "other"; }));
  EXPECT_EQ(rng.differ, std::vector<Part>{Part::rng});
  const Resumption buffer = resumed_at_4(from(6, [](SavedStep& made) { made.buffer = 8; }));
  EXPECT_EQ(buffer.differ, std::vector<Part>{Part::buffers});
  EXPECT_EQ(buffer.step, 6);
  const Resumption unknown = resumed_at_4(from(5, [](SavedStep&) {}));
  EXPECT_TRUE(unknown.differ.empty());
  EXPECT_TRUE(says(unknown, "nothing that is watched differs as it begins")) << unknown.text;
}

TEST(TorchRecovers, WhatDiffersAndChangesNothingIsNoFailure) {
  EXPECT_TRUE(resumed_at_4([](std::int64_t, SavedStep& made) { made.rng = "unused"; }).same);
}

TEST(TorchRecovers, AGeneratorThatNobodyDrawsFromExplainsNothing) {
  TemporaryFolder folder;
  const std::vector<RankRun> whole = training(folder, 0, 8, [](std::int64_t, SavedStep& made) { made.rng = "still"; });
  const Resumption found = hold_resumed(whole, training(folder, 4, 8, [](std::int64_t step, SavedStep& made) {
                                          made.rng = "elsewhere";
                                          made.rate = "10";
                                          made.left += 1000;
                                          made.weight += step > 4 ? 1000 : 0;
                                        }));
  EXPECT_EQ(found.differ, std::vector<Part>{Part::scheduler}) << found.text;
}

TEST(TorchRecovers, ADamagedWeightIsNamedBeforeAllThatFollowsFromIt) {
  const Resumption found = resumed_at_4([](std::int64_t, SavedStep& made) {
    made.weight += 1000;
    made.left += 1000;
    made.rng = "other";
  });
  EXPECT_EQ(found.differ, (std::vector<Part>{Part::weights, Part::rng}));
  EXPECT_TRUE(says(found, "step 4, the first after the resume: the weight head.weight differs on rank 0"))
      << found.text;
}

TEST(TorchRecovers, TheLastWeightsCountThoughNoForwardPassUsesThem) {
  const Resumption found = resumed_at_4([](std::int64_t step, SavedStep& made) { made.left += step == 7; });
  EXPECT_FALSE(found.same);
  EXPECT_EQ(found.step, 7);
}

TEST(TorchRecovers, AScriptThatLostItsPlaceIsNamed) {
  TemporaryFolder folder;
  const std::vector<RankRun> whole = training(folder, 0, 8);
  const Resumption found = hold_resumed(whole, training(folder, 4, 12));
  EXPECT_FALSE(found.same);
  EXPECT_TRUE(says(found, "it goes on with the weights of step 4, and makes 8 steps where 4 are left")) << found.text;
  EXPECT_FALSE(hold_resumed(whole, {}).same);
}

TEST(TorchRecovers, TheDrawnStepIsOneThatBeginsWithACheckpoint) {
  std::set<std::int64_t> drawn;
  for (std::uint64_t seed = 0; seed < 50; ++seed) drawn.insert(drawn_step(3, 8, seed));
  EXPECT_EQ(drawn, (std::set<std::int64_t>{3, 4, 5, 6, 7}));
}

TEST(TorchRecovers, WithoutAFolderForCheckpointsItIsBadInput) {
  TemporaryFolder folder;
  const auto ran = harness::testing::seeksim({"torch", "recovers", "--", folder.write("train.py", "")});
  EXPECT_EQ(ran.status, 2);
  EXPECT_NE(ran.err.find("{dir}"), std::string::npos) << ran.err;
  EXPECT_EQ(with_folder("--save={dir}/a,{dir}/b", "/f"), "--save=/f/a,/f/b");
}

}  // namespace
}  // namespace seeksim::harness::torch
