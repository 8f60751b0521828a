// Models with experts in scenarios: what is filled in and refused, what decides a bit, and that what is counted over a
// micro-batch is seen.
#include <nlohmann/json.hpp>

#include "harness/loading/estimate.h"
#include "harness/loading/load.h"
#include "harness/record/golden.h"
#include "harness/run/run.h"
#include "runtime/layout/parameters.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

Scenario experts(const std::vector<std::string>& sets = {}) {
  LoadOptions options;
  options.sets = {"model.family=llama", "model.experts=4"};
  options.sets.insert(options.sets.end(), sets.begin(), sets.end());
  return load_scenario_text(small_text(), "s.json", options);
}

std::string refusal(const std::vector<std::string>& sets) {
  try {
    experts(sets);
  } catch (const BadInput& bad) {
    std::string all;
    for (const Problem& problem : bad.problems()) all += problem.path + ": " + problem.what + "\n";
    return all;
  }
  return "";
}

TEST(Experts, GatesAreNormalizedWhereThereAreSeveral) {
  EXPECT_TRUE(experts().train.definition.model.experts.normalized);
  EXPECT_FALSE(experts({"model.experts_per_token=1"}).train.definition.model.experts.normalized);
  EXPECT_FALSE(experts({"model.normalize_gates=false"}).train.definition.model.experts.normalized);
}

TEST(Experts, CapacityIsRoundedUp) {
  runtime::ExpertsPlan plan{.count = 4, .per_token = 2};
  EXPECT_EQ(plan.capacity(8), 0) << "all";
  plan.capacity_factor = 1;
  EXPECT_EQ(plan.capacity(8), 4);
  EXPECT_EQ(plan.capacity(9), 5);
  plan.capacity_factor = 0.01;
  EXPECT_EQ(plan.capacity(8), 1);
}

TEST(Experts, AreWrittenBack) {
  const Scenario given = experts({"model.experts_per_token=3", "model.capacity_factor=1.25", "model.aux_loss=0.01",
                                  "model.z_loss=0.001", "model.normalize_gates=false"});
  const Scenario back = load_scenario_text(to_json(given).dump(), "s.json");
  EXPECT_EQ(to_json(back), to_json(given));
  EXPECT_TRUE(load_scenario_text(to_json(experts({"model.expert_sums=slabs", "model.ffn=16"})).dump(), "s.json")
                  .train.definition.model.experts.slabs);
  EXPECT_EQ(back.train.definition.model.experts, given.train.definition.model.experts);
  EXPECT_EQ(
      back.train.definition.model.experts,
      (runtime::ExpertsPlan{
          .count = 4, .per_token = 3, .capacity_factor = 1.25, .normalized = false, .balance = 0.01, .z = 0.001}));
}

TEST(Experts, ParametersAreEstimatedAsTheyAre) {
  const Scenario s = experts({"model.ffn=21", "model.tied=true"});
  const runtime::Definition& d = s.train.definition;
  EXPECT_EQ(estimate(s).parameters, double(runtime::Parameters(d.model, false).size()));
}

TEST(Experts, WhatTheyCannotDoYetIsRefusedByItsKey) {
  for (const auto& [sets, key] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"world.tensor=2"}, "world.tensor"},
           {{"world.expert=2", "world.nodes=1", "world.ranks_per_node=3"}, "world.expert"},
           {{"world.expert=2", "model.experts=0"}, "world.expert"},
           {{"world.expert=2", "model.experts=6"}, "world.expert"},
           {{"world.pipeline=2", "world.expert=2", "world.nodes=1", "world.ranks_per_node=6"}, "world.expert"},
           {{"world.expert=2", "world.tensor=2"}, "world.tensor"},
           {{"world.expert=2", "world.shard_group=1", "deepspeed.zero_optimization.stage=2"}, "world.expert"},
           {{"world.expert=2", R"(compression={"method":"int8","groups":2})"}, "world"},
           {{"world.expert=2", "recovery.rerun_and_compare=true"}, "recovery.rerun_and_compare"},
           {{"numerics=fast"}, "numerics"},
           {{"model.expert_sums=slabs", "model.ffn=12"}, "model.expert_sums"},
           {{"model.expert_sums=slabs", "model.experts=0"}, "model.expert_sums"},
           {{"model.expert_sums=slabs", "model.ffn=16", "world.tensor=2", "world.schedule=zero_bubble"},
            "world.schedule"},
           {{"model.shared_experts=1", "world.pipeline=2", "world.schedule=zero_bubble"}, "world.schedule"},
           {{"model.expert_sums=slabs", "model.ffn=16", "world.tensor=2", R"(deepspeed.optimizer={"type":"Muon"})"},
            "world.tensor"},
           {{"quirks=[\"ds_old_default_clipping\"]"}, "quirks"},
           {{"quirks=[\"experts_by_micro_batch\"]"}, "quirks"},
           {{"quirks=[\"experts_by_micro_batch\"]", "model.aux_loss=0.1", "model.experts=0"}, "quirks"},
           {{"quirks=[\"experts_by_micro_batch\"]", "model.aux_loss=0.1", "model.routing_samples=2"}, "quirks"},
           {{"model.routing_samples=3"}, "deepspeed.train_batch_size"},
           {{"model.routing_samples=4", "deepspeed.train_micro_batch_size_per_gpu=2"},
            "deepspeed.train_micro_batch_size_per_gpu"},
           {{"model.routing_samples=2", R"(evaluation={"samples":3})"}, "evaluation.samples"},
           {{"model.routing_samples=2", R"(compression={"method":"int8","groups":2})"}, "model.routing_samples"},
           {{"model.routing_samples=2", "model.experts=0"}, "model.routing_samples"},
           {{R"(alarms={"expert_share_max":0.5})", "model.experts=0"}, "alarms.expert_share_max"},
           {{R"(alarms={"dropped_share_max":0.5})"}, "alarms.dropped_share_max"},
           {{R"(faults=[{"kind":"token_imbalance","step":0,"token":99999}])"}, "faults.0.token"},
           {{"model.experts_per_token=5"}, "model.experts_per_token"},
           {{"model.experts_per_token=1", "model.normalize_gates=true"}, "model.normalize_gates"},
           {{"model.experts=0", "model.aux_loss=0.1"}, "model.aux_loss"},
           {{"model.family=gpt2"}, "model.experts"}}) {
    EXPECT_NE(refusal(sets).find(key + ": "), std::string::npos) << sets.back() << "\n" << refusal(sets);
  }
}

// By slabs the same model has other bits, and so another golden; without experts the key has nothing to say.
TEST(Experts, SlabsAreAnotherDefinition) {
  const auto key = [](const std::vector<std::string>& sets) { return golden_key(experts(sets).train.definition); };
  EXPECT_NE(key({"model.ffn=16", "model.expert_sums=slabs"}), key({"model.ffn=16"}));
  EXPECT_EQ(key({"model.ffn=16", "model.expert_sums=experts"}), key({"model.ffn=16"}));
  const std::vector<std::string> cut = {"model.ffn=16", "model.expert_sums=slabs", "world.tensor=2", "model.heads=8",
                                        "model.width=32"};
  std::vector<std::string> whole = cut;
  whole[2] = "world.tensor=1";
  EXPECT_EQ(key(cut), key(whole));
}

// Names of the checks that are red.
std::string red(const std::vector<std::string>& sets) {
  const Outcome outcome = run_scenario(experts(sets), {}, [](std::string_view) {});
  std::string names;
  for (const Json& check : outcome.report["checks"]) {
    if (!check["ok"].get<bool>()) names += check["name"].get<std::string>() + ' ';
  }
  return names;
}

// The bits of one rank on four, and others once capacity or shares are counted over a micro-batch. A micro-batch of one
// sample is a sample, and there the mistake is none.
TEST(Experts, CountedOverAMicroBatchTheyAreAnotherRun) {
  for (const char* const what : {"model.capacity_factor=1", "model.aux_loss=0.1"}) {
    const auto with = [&](int micro_batch, const std::string& bug) {
      return red({what, "steps=2", "faults=[]", R"(checks=["golden:bitwise"])",
                  "deepspeed.train_micro_batch_size_per_gpu=" + std::to_string(micro_batch), "bug=\"" + bug + "\""});
    };
    EXPECT_EQ(with(2, ""), "") << what;
    EXPECT_EQ(with(2, "experts_count_micro_batch"), "golden:bitwise ") << what;
    EXPECT_EQ(with(1, "experts_count_micro_batch"), "") << what;
  }
}

// What the quirk counts over is a micro-batch, whatever the model says elsewhere; the golden has it in its key.
TEST(Experts, AQuirkCountsThemOverAMicroBatch) {
  const auto with = [](int micro_batch) {
    return experts({R"(quirks=["experts_by_micro_batch"])", "model.aux_loss=0.1", "deepspeed.train_batch_size=16",
                    "deepspeed.train_micro_batch_size_per_gpu=" + std::to_string(micro_batch)});
  };
  const runtime::Definition two = with(2).train.definition, four = with(4).train.definition;
  EXPECT_EQ(two.model.experts.samples, 2);
  EXPECT_EQ(four.model.experts.samples, 4);
  EXPECT_NE(golden_key(two), golden_key(four));
  const Json written = to_json(with(2));
  EXPECT_FALSE(written["model"].contains("routing_samples")) << "the quirk says it";
  EXPECT_EQ(load_scenario_text(written.dump(), "s.json").train.definition.model.experts.samples, 2);
  EXPECT_EQ(red({R"(quirks=["experts_by_micro_batch"])", "model.aux_loss=0.1", "steps=2", "faults=[]",
                 "deepspeed.train_micro_batch_size_per_gpu=2", R"(checks=["golden:bitwise","quirk_differs"])"}),
            "");
}

// Each rank counts its own tokens, and each layer is some rank's: together they have what one rank counts.
TEST(Experts, ChoicesAreCountedAlikeInEveryCut) {
  const auto loads = [](const std::vector<std::string>& more) {
    std::vector<std::string> sets = {"model.capacity_factor=0.5",
                                     "model.experts=4",
                                     "model.layers=2",
                                     "model.heads=8",
                                     "model.width=32",
                                     "model.ffn=16",
                                     "model.expert_sums=slabs",
                                     "steps=3",
                                     "faults=[]",
                                     "checks=[]",
                                     "batch_arithmetic=by_samples",
                                     R"(alarms={"expert_share_max":0.99,"dropped_share_max":1})"};
    sets.insert(sets.end(), more.begin(), more.end());
    return run_scenario(experts(sets), {}, [](std::string_view) {}).report["experts"];
  };
  const Json one = loads({R"(world={"nodes":1,"ranks_per_node":1})"});
  ASSERT_EQ(one.size(), 3u);
  EXPECT_GT(one[0]["share"].get<double>(), 0.25) << "no router is even at once";
  EXPECT_GT(one[0]["dropped"].get<double>(), 0.49) << "of two even shares a half finds room";
  for (const char* world :
       {R"(world={"nodes":1,"ranks_per_node":3})", R"(world={"nodes":1,"replicas":2,"pipeline":2})",
        R"(world={"nodes":1,"replicas":2,"tensor":2})", R"(world={"nodes":1,"replicas":4,"expert":2,"tensor":2})"}) {
    EXPECT_EQ(loads({world}), one) << world;
    EXPECT_EQ(loads({world, "checkpointing.every=1"}), one) << world;
  }
}

// A step that is made again is counted once.
TEST(Experts, ChoicesOfAStepThatIsMadeAgainAreCountedOnce) {
  const auto counted = [](const std::string& faults) {
    return run_scenario(experts({"steps=3", "checks=[]", R"(alarms={"expert_share_max":0.99})", "faults=" + faults}),
                        {}, [](std::string_view) {})
        .report["experts"];
  };
  EXPECT_EQ(counted(R"([{"kind":"rank_crash","rank":1,"step":1,"op":"vote"}])"), counted("[]"));
}

TEST(Experts, ARouterWithoutItsGradientOnOneRankIsSeen) {
  const std::vector<std::string> sets = {"steps=2", "faults=[]", R"(checks=["golden:bitwise","ranks_agree"])"};
  EXPECT_EQ(red(sets), "");
  std::vector<std::string> lost = sets;
  lost.emplace_back("bug=\"router_gradient_lost\"");
  EXPECT_EQ(red(lost), "golden:bitwise ");
}

// Where experts are divided among ranks: the bits of one rank, and mistakes that a check sees.
TEST(Experts, DividedAmongRanksTheyAreTheSame) {
  for (const std::string stage : {"0", "1", "2", "3"}) {
    const auto with = [&](const std::string& bug) {
      return red({"world.expert=2", "steps=2", "faults=[]", "model.experts=4",
                  R"(checks=["golden:bitwise","conservation"])", "deepspeed.zero_optimization.stage=" + stage,
                  "bug=\"" + bug + "\""});
    };
    EXPECT_EQ(with(""), "") << stage;
    EXPECT_EQ(with("experts_divided_by_group"), "golden:bitwise conservation ") << stage;
    EXPECT_EQ(with("experts_of_own_samples"), "golden:bitwise conservation ") << stage;
    EXPECT_EQ(with("combined_in_anothers_order"), "golden:bitwise ") << stage;
    if (stage < "2") continue;
    EXPECT_EQ(with("experts_scattered_over_all"), "golden:bitwise conservation traffic_formula ") << stage;
  }
}

TEST(Experts, TheBalancingLossIsInTheLoss) {
  const auto last_loss = [](const char* aux) {
    const Outcome outcome =
        run_scenario(experts({"steps=2", "faults=[]", "checks=[]", aux}), {}, [](std::string_view) {});
    return outcome.report["loss"].back().get<double>();
  };
  EXPECT_GT(last_loss("model.aux_loss=1"), last_loss("model.aux_loss=0") + 0.5) << "it is part of the loss";
}

}  // namespace
}  // namespace seeksim::harness
