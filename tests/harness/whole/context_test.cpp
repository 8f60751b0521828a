// Context parallelism in scenarios: what is refused and how, what is written back, what decides a bit, and mistakes
// that checks see.
#include <nlohmann/json.hpp>

#include "harness/loading/load.h"
#include "harness/record/golden.h"
#include "harness/run/run.h"
#include "tests/support/paths.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

Scenario in_groups(const std::vector<std::string>& sets = {}) {
  LoadOptions options;
  options.sets = {"model.gradient_sums=segments", "model.context=16", "world.context=2"};
  options.sets.insert(options.sets.end(), sets.begin(), sets.end());
  return load_scenario_text(small_text(), "s.json", options);
}

std::string refused_in_groups(const std::vector<std::string>& sets) {
  try {
    in_groups(sets);
  } catch (const BadInput& bad) {
    std::string all;
    for (const Problem& problem : bad.problems()) all += problem.path + ": " + problem.what + "\n";
    return all;
  }
  return "";
}

TEST(Context, WhatItCannotDoYetIsRefusedByItsKey) {
  EXPECT_EQ(refused_in_groups({}), "");
  for (const auto& [sets, key] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"model.gradient_sums=tokens"}, "world.context"},
           {{"world.context=3"}, "world.context"},
           {{"world.context=8", "world.nodes=2", "world.ranks_per_node=4"}, "world.context"},
           {{"world.nodes=1", "world.ranks_per_node=3"}, "world"},
           {{"model.context=12"}, "model.gradient_sums"},
           {{"world.tensor=2"}, "world.tensor"},
           {{"world.expert=2", "model.family=llama", "model.experts=4"}, "world.expert"},
           {{"model.family=llama", "model.experts=4"}, "model.gradient_sums"},
           {{"world.shard_group=1", "deepspeed.zero_optimization.stage=2"}, "world.shard_group"},
           {{R"(compression={"method":"int8","groups":2})"}, "world"},
           {{"recovery.rerun_and_compare=true"}, "recovery.rerun_and_compare"},
           {{"numerics=fast"}, "numerics"},
           {{"bug=\"definition:gelu_by_erf\""}, "bug"},
           {{"quirks=[\"ds_old_default_clipping\"]"}, "quirks"}}) {
    EXPECT_NE(refused_in_groups(sets).find(key + ": "), std::string::npos) << sets.back() << "\n"
                                                                           << refused_in_groups(sets);
  }
}

TEST(Context, RingsAreRefusedWhereTheirChunksAreNoNodes) {
  const std::vector<std::string> ring = {"world.context_attention=ring", "model.attention=fused"};
  const auto refused = [&](const std::vector<std::string>& more) {
    std::vector<std::string> sets = ring;
    sets.insert(sets.end(), more.begin(), more.end());
    return refused_in_groups(sets);
  };
  EXPECT_EQ(refused({"model.context=64"}), "");
  EXPECT_EQ(refused({"model.context=128", "world.context_cut=zigzag"}), "");
  EXPECT_EQ(refused({"model.context=128", "model.family=llama", "model.heads=2", "model.kv_heads=1"}), "");
  EXPECT_NE(refused({"model.context=16"}).find("a chunk of 8 tokens is not 32, 64, 128"), std::string::npos);
  EXPECT_NE(refused({"model.context=192"}).find("a chunk of 96 tokens"), std::string::npos);
  EXPECT_NE(refused({"model.context=64", "model.attention=standard"}).find("standard attention's sums"),
            std::string::npos);
  EXPECT_NE(refused_in_groups({"model.family=llama", "model.heads=2", "model.kv_heads=1"}).find("ring attention"),
            std::string::npos);
}

TEST(Context, IsWrittenBack) {
  const Scenario given = in_groups(
      {"world.context_cut=zigzag", "world.context_attention=ring", "model.attention=fused", "model.context=128"});
  const Scenario back = load_scenario_text(to_json(given).dump(), "s.json");
  EXPECT_EQ(to_json(back), to_json(given));
  EXPECT_EQ(back.train.layout.parallel, given.train.layout.parallel);
  EXPECT_TRUE(back.train.definition.model.segmented_gradients);
}

// The order of sums decides bits; how many ranks have a sample's tokens does not.
TEST(Context, GoldensAreKeyedByTheSumsNotByTheCut) {
  const auto key = [](const std::vector<std::string>& sets) { return golden_key(in_groups(sets).train.definition); };
  EXPECT_EQ(key({}), key({"world.context=1"}));
  EXPECT_EQ(key({}), key({"world.context_cut=zigzag"}));
  EXPECT_NE(key({"world.context=1"}), key({"world.context=1", "model.gradient_sums=tokens"}));
}

// Names of the checks that are red.
std::string red_in_groups(const std::vector<std::string>& sets) {
  const Outcome outcome = run_scenario(in_groups(sets), {}, [](std::string_view) {});
  std::string names;
  for (const Json& check : outcome.report["checks"]) {
    if (!check["ok"].get<bool>()) names += check["name"].get<std::string>() + ' ';
  }
  return names;
}

TEST(Context, EachMistakeTurnsItsCheckRed) {
  const auto with = [](const std::string& bug, const std::string& cut = "zigzag") {
    return red_in_groups({"steps=2", "faults=[]", "model.dropout=0.2", R"(checks=["golden:bitwise","replicas_equal"])",
                          "world.context_cut=" + cut, "bug=\"" + bug + "\""});
  };
  EXPECT_EQ(with(""), "");
  EXPECT_EQ(with("", "contiguous"), "");
  for (const char* bug : {"context_positions_of_chunk", "context_rows_by_rank", "context_heads_of_another",
                          "context_gradients_averaged", "context_loss_of_own_tokens", "context_dropout_of_chunk"})
    EXPECT_EQ(with(bug), "golden:bitwise ") << bug;
  EXPECT_EQ(with("context_gradients_of_own_tokens"), "golden:bitwise replicas_equal traffic_formula ");
  EXPECT_EQ(with("context_rows_by_rank", "contiguous"), "") << "there the order of ranks is that of positions";
}

TEST(Context, EachMistakeOfARingTurnsItsCheckRed) {
  const auto with = [](const std::string& bug, const std::string& cut = "zigzag") {
    return red_in_groups({"steps=2", "faults=[]", "model.dropout=0.2", "model.attention=fused", "model.context=128",
                          "world.context_attention=ring", R"(checks=["golden:bitwise","ranks_agree"])",
                          "world.context_cut=" + cut, "bug=\"" + bug + "\""});
  };
  EXPECT_EQ(with(""), "");
  EXPECT_EQ(with("", "contiguous"), "");
  for (const char* bug :
       {"ring_joins_without_factors", "ring_stale_block", "ring_dropout_of_block", "ring_sums_in_16_bits"})
    EXPECT_EQ(with(bug), "golden:bitwise ") << bug;
  for (const char* bug : {"ring_last_hop_left_out", "ring_gradients_stay"})
    EXPECT_EQ(with(bug), "golden:bitwise memory_formula traffic_formula ") << bug;
  EXPECT_EQ(with("ring_mask_by_rank"), "golden:bitwise traffic_formula ");
  EXPECT_EQ(with("ring_mask_by_rank", "contiguous"), "") << "there the order of ranks is that of chunks";
}

// Written by two groups of two, read by one of four whose cut is zig-zag; the golden saw none of it.
TEST(Context, CheckpointsDoNotKnowTheCut) {
  const TemporaryFolder folder;
  const std::string scenario = seeksim::paths::source_dir() + "/scenarios/deaths/context_rank_dies.json";
  const auto run = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = {"run",       scenario,
                                    "--storage", "real",
                                    "--out",     folder.path(),
                                    "--set",     "sweep=[]",
                                    "--set",     "faults=[]",
                                    "--set",     "checkpoint.every_steps=3",
                                    "--set",     R"(checks=["golden:bitwise"])"};
    all.insert(all.end(), more.begin(), more.end());
    return seeksim(all);
  };
  const Ran first = run({"--set", "steps=3"});
  EXPECT_EQ(first.status, 0) << first.out << first.err;
  const Ran second = run({"--resume", "--set", "world.context=4", "--set", "world.context_cut=zigzag", "--set",
                          "deepspeed.gradient_accumulation_steps=4"});
  EXPECT_EQ(second.status, 0) << second.out << second.err;
  EXPECT_NE(second.out.find("after step 3 of an earlier run"), std::string::npos) << second.out;
}

// The last losses are those of one rank: evaluations see all tokens too.
TEST(Context, EvaluationsHaveTheLossOfAllTokens) {
  EXPECT_EQ(red_in_groups({"steps=2", "faults=[]", R"(evaluation={"every_steps":1,"samples":3})",
                           R"(checks=["golden:bitwise"])"}),
            "");
}

}  // namespace
}  // namespace seeksim::harness
