// Layers of experts on the stages of a pipeline, in scenarios: what is taken and refused, what the independent
// reference says of losses that came from other stages, mistakes that checks see, and checkpoints of other cuts.
#include <nlohmann/json.hpp>

#include "harness/loading/load.h"
#include "harness/record/golden.h"
#include "harness/run/run.h"
#include "tests/support/paths.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

// Two stages of four ranks.
Scenario on_stages(const std::vector<std::string>& sets = {}) {
  LoadOptions options;
  options.sets = {"model.family=llama",
                  "model.experts=4",
                  "model.layers=4",
                  "model.aux_loss=0.05",
                  "model.z_loss=0.01",
                  "world.nodes=2",
                  "world.pipeline=2",
                  "world.ranks_per_node=4",
                  "faults=[]",
                  "steps=2",
                  "world.expert=2",
                  "batch_arithmetic=by_samples",
                  R"(checks=["golden:bitwise"])"};
  options.sets.insert(options.sets.end(), sets.begin(), sets.end());
  return load_scenario_text(small_text(), "s.json", options);
}

std::string refused_on_stages(const std::vector<std::string>& sets) {
  try {
    on_stages(sets);
  } catch (const BadInput& bad) {
    std::string all;
    for (const Problem& problem : bad.problems()) all += problem.path + ": " + problem.what + "\n";
    return all;
  }
  return "";
}

std::string red_on_stages(const std::vector<std::string>& sets) {
  const Outcome outcome = run_scenario(on_stages(sets), {}, [](std::string_view) {});
  std::string names;
  for (const Json& check : outcome.report["checks"]) {
    if (!check["ok"].get<bool>()) names += check["name"].get<std::string>() + ' ';
  }
  return names;
}

TEST(ExpertStages, WhatTheyCannotDoIsRefusedByItsKey) {
  EXPECT_EQ(refused_on_stages({}), "");
  EXPECT_EQ(refused_on_stages({"world.schedule=zero_bubble"}), "");
  for (const auto& [sets, key] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"world.ranks_per_node=3"}, "world.expert"},
           {{"world.expert=3"}, "world.expert"},
           {{"model.layers=1"}, "world.expert"},
           {{R"(checks=["memory_formula"])"}, "checks.0"},
           {{"world.shard_group=2", "deepspeed.zero_optimization.stage=2"}, "world.expert"},
           {{"recovery.rerun_and_compare=true"}, "recovery.rerun_and_compare"},
           {{"quirks=[\"ds_old_default_clipping\"]"}, "quirks"}}) {
    EXPECT_NE(refused_on_stages(sets).find(key), std::string::npos) << sets.back() << "\n" << refused_on_stages(sets);
  }
}

TEST(ExpertStages, TheCutDecidesNoBit) {
  const std::string whole = golden_key(on_stages({"world.expert=1", "world.pipeline=1"}).train.definition);
  EXPECT_EQ(golden_key(on_stages().train.definition), whole);
  EXPECT_EQ(golden_key(on_stages({"world.schedule=interleaved"}).train.definition), whole);
}

TEST(ExpertStages, TheReferenceHasTheSameLossesAndGradients) {
  EXPECT_EQ(red_on_stages({R"(checks=["golden:bitwise","reference"])"}), "");
}

// What is reported has all routers' losses, and is the loss that the last stage alone would report without them.
TEST(ExpertStages, AllLossesAreInTheLoss) {
  const auto first_loss = [](const std::vector<std::string>& sets) {
    return run_scenario(on_stages(sets), {}, [](std::string_view) {}).report["loss"].front().get<double>();
  };
  const auto without = first_loss({"model.aux_loss=0", "model.z_loss=0"});
  const auto with = first_loss({"model.aux_loss=1", "model.z_loss=0"});
  const auto of_last = first_loss({"model.aux_loss=1", "model.z_loss=0", "bug=\"router_losses_of_last_stage\""});
  EXPECT_GT(with - without, 3.9) << "each of four layers adds one at least, where experts have equal shares";
  EXPECT_GT(of_last - without, 1.9);
  EXPECT_LT(of_last, with - 1.9);
}

TEST(ExpertStages, MistakesAreSeen) {
  for (const char* const bug : {"router_losses_of_last_stage", "router_losses_left_behind", "router_losses_by_stages",
                                "arrivals_of_last_micro_batch"}) {
    for (const char* const schedule : {"1f1b", "gpipe", "zero_bubble", "interleaved"}) {
      const std::string set = std::string("world.schedule=") + schedule;
      EXPECT_EQ(red_on_stages({set, std::string("bug=\"") + bug + '"'}), "golden:bitwise ") << bug << ' ' << schedule;
    }
  }
}

// Four micro-batches a rank: with two of them 1F1B and GPipe are the same on the first stage.
const std::vector<std::string> kOutOfStep = {
    "bug=\"out_of_step_in_group\"", "deepspeed.train_micro_batch_size_per_gpu=1", "deepspeed.train_batch_size=16",
    R"(recovery={"policy":"rebuild_and_redo","watchdog_s":60})", R"(checks=["golden:bitwise","no_recovery"])"};

TEST(ExpertStages, ARankThatIsOutOfStepWithItsGroupIsSeen) {
  EXPECT_NE(red_on_stages(kOutOfStep).find("no_recovery"), std::string::npos) << red_on_stages(kOutOfStep);
}

// Alone it is no mistake: no message between stages minds the order.
TEST(ExpertStages, WithoutAGroupNobodyIsOutOfStep) {
  std::vector<std::string> alone = kOutOfStep;
  alone.emplace_back("world.expert=1");
  EXPECT_EQ(red_on_stages(alone), "");
}

// Written by two stages with groups of two; read by four stages, by one, by other groups. The golden saw none of it.
TEST(ExpertStages, CheckpointsDoNotKnowTheCut) {
  const std::string scenario = seeksim::paths::source_dir() + "/scenarios/deaths/expert_pipeline_dies.json";
  for (const std::vector<std::string>& then : std::vector<std::vector<std::string>>{
           {"world.pipeline=4", "world.expert=1"},
           {"world.pipeline=1", "world.expert=4", "deepspeed.zero_optimization.stage=3"},
           {"world.pipeline=4", "world.expert=2", "deepspeed.zero_optimization.stage=2"},
           {"world.schedule=interleaved", "world.expert=4", "deepspeed.zero_optimization.stage=0"}}) {
    const TemporaryFolder folder;
    const auto run = [&](const std::vector<std::string>& sets, bool resumes) {
      std::vector<std::string> all = {"run", scenario, "--storage", "real", "--out", folder.path()};
      if (resumes) all.emplace_back("--resume");
      for (const std::string& set :
           {std::string("sweep=[]"), std::string("faults=[]"), std::string("batch_arithmetic=by_samples"),
            std::string("checkpoint.every_steps=2"), std::string(R"(checks=["golden:bitwise"])")})
        all.insert(all.end(), {"--set", set});
      for (const std::string& set : sets) all.insert(all.end(), {"--set", set});
      return seeksim(all);
    };
    const Ran first = run({"steps=2"}, false);
    EXPECT_EQ(first.status, 0) << first.out << first.err;
    const Ran second = run(then, true);
    EXPECT_EQ(second.status, 0) << then.front() << second.out << second.err;
    EXPECT_NE(second.out.find("after step 2 of an earlier run"), std::string::npos) << second.out;
  }
}

}  // namespace
}  // namespace seeksim::harness
