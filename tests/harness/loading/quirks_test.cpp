// Quirks of a scenario: what the loader refuses, what the key and the JSON hold, and that a quirk which changes nothing
// is red. Each scenario of a quirk is red without it.
#include "harness/loading/features/quirks.h"

#include <filesystem>

#include <nlohmann/json.hpp>

#include "harness/loading/load.h"
#include "harness/record/golden.h"
#include "harness/run/run.h"
#include "harness/scenario/variants.h"
#include "harness/verdict/checks.h"
#include "tests/support/paths.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

std::string problems_with(const std::string& quirks, std::vector<std::string> sets = {}) {
  sets.insert(sets.end(), {"quirks=" + quirks, "faults=[]", "checks=[\"ranks_agree\"]"});
  return problems_of(small_text(), sets);
}

TEST(Quirks, LoaderSaysWhatCannotBe) {
  struct Case {
    const char* quirks;
    std::vector<std::string> sets;
    const char* problem;
  };
  const std::vector<Case> cases = {
      {R"(["mean_of_rank_mean"])", {}, "there is no quirk \"mean_of_rank_mean\". Did you mean \"mean_of_rank_means\"?"},
      {R"([3])", {}, "a string was expected"},
      {R"(["mean_of_rank_means", "mean_of_micro_batch_means"])", {}, "both decide the denominator: keep one"},
      {R"(["ds_bf16_unchecked"])", {}, "ds_bf16_unchecked: the model is in fp32. Use bf16."},
      {R"(["ds_fp32_unchecked"])", {"deepspeed.bf16.enabled=true"}, "the model is in bf16"},
      {R"(["ds_stage0_scaler"])", {}, "there is no dynamic loss scale"},
      {R"(["ds_unscales_by_new_scale"])",
       {"deepspeed.fp16={\"enabled\":true,\"loss_scale\":128}"},
       "there is no loss scale that moves"},
      {R"(["torch_clips_before_unscale"])", {}, "there is no loss scale"},
      {R"(["llmc_clip_without_epsilon"])", {"deepspeed.gradient_clipping=0"}, "there is no gradient_clipping"},
      {R"(["torch_schedule_counts_skipped"])", {}, "the learning rate is constant"},
      {R"(["ds_stage0_stray_adam_step"])",
       {R"(deepspeed.optimizer={"type":"Lion"})"},
       "it is about Adam's bias correction, and Lion has none"},
      {R"(["ds_stage0_stray_adam_step"])",
       {R"(deepspeed.optimizer={"type":"SGD"})"},
       "it is about Adam's bias correction, and SGD has none"},
      {R"(["ds_stage0_stray_adam_step"])",
       {R"(deepspeed.optimizer={"type":"Muon"})"},
       "it is a step of Adam's on every tensor, and Muon has others"},
      {R"(["ds_partition_norm"])", {}, "every rank holds all gradients"},
      {R"(["torch_found_inf_local"])", {}, "every rank holds all gradients"},
      {R"(["ds_accumulates_in_parameter_type"])", {}, "parameters are fp32"},
      {R"(["ds_divides_before_sum"])", {"deepspeed.fp16.enabled=true"}, "not supported for fp16"},
      {R"(["ds_old_default_clipping"])", {"deepspeed.gradient_clipping=1"}, "there is no default"},
  };
  for (const Case& one : cases) {
    const std::string said = problems_with(one.quirks, one.sets);
    EXPECT_NE(said.find(one.problem), std::string::npos) << one.quirks << ": " << said;
  }
  EXPECT_EQ(problems_with(R"(["mean_of_rank_means", "ds_old_default_clipping"])"), "");
}

TEST(Quirks, NoGoldenHasTheBitsOfASplit) {
  const std::string said =
      problems_of(small_text(), {"quirks=[\"mean_of_rank_means\"]", "faults=[]", "checks=[\"golden:bitwise\"]"});
  EXPECT_NE(said.find("golden:bitwise: with mean_of_rank_means the result depends on the split"), std::string::npos)
      << said;
}

TEST(Quirks, AreInTheJsonAndInTheKey) {
  LoadOptions options;
  options.sets = {"quirks=[\"ds_old_default_clipping\",\"ds_stage0_stray_adam_step\"]"};
  const Scenario scenario = load_scenario_text(small_text(), "s.json", options);
  EXPECT_EQ(scenario.train.definition.gradient_clipping, 0);
  const Scenario again = load_scenario_text(to_json(scenario).dump(), "again.json");
  EXPECT_EQ(again.train.definition.quirks, scenario.train.definition.quirks);
  EXPECT_EQ(again.train.definition.gradient_clipping, 0);
  EXPECT_EQ(golden_key(again.train.definition), golden_key(scenario.train.definition));
  EXPECT_NE(golden_key(scenario.train.definition), golden_key(without_quirks(scenario).train.definition));
  EXPECT_EQ(golden_key(without_quirks(scenario).train.definition), golden_key(small_scenario().train.definition));
  EXPECT_FALSE(key_fields(small_scenario().train.definition).contains("quirks"));
}

TEST(Quirks, AreListedWithTheirSources) {
  const Ran ran = seeksim({"list", "quirks"});
  EXPECT_EQ(ran.status, 0);
  for (const runtime::QuirkInfo& row : runtime::quirk_catalogue()) {
    for (const std::string_view part : {row.name, row.framework, row.does, row.instead, row.edits, row.source})
      EXPECT_NE(ran.out.find(part), std::string::npos) << part;
  }
}

TEST(Quirks, DifferenceIsSaidAndNoneIsRed) {
  Scenario scenario = small_scenario();
  const RunRecord clean = good_run();
  RunRecord run = good_run();
  const auto judged = [&](const char* step) {
    Evidence evidence{scenario, run, nullptr, std::nullopt, {}};
    evidence.without_quirks = &clean;
    return judge(CheckSpec{"quirk_differs", step}, evidence);
  };
  EXPECT_NE(judged("").detail.find("looked at nothing: the scenario has no quirks"), std::string::npos);
  scenario.train.definition.quirks = {runtime::Quirk::mean_of_rank_means};
  EXPECT_FALSE(judged("").ok);
  EXPECT_NE(judged("").detail.find("mean_of_rank_means had no effect"), std::string::npos) << judged("").detail;
  run.steps[2].loss *= 1.5f;
  EXPECT_TRUE(judged("").ok);
  EXPECT_TRUE(judged("2").ok) << judged("2").detail;
  EXPECT_FALSE(judged("1").ok) << "it was to differ in step 1";
  EXPECT_NE(judged("").detail.find("loss in 1 step, by 0.5 at most"), std::string::npos) << judged("").detail;
}

TEST(Quirks, EachScenarioOfOneIsRedWithoutIt) {
  int seen = 0;
  for (const auto& entry : std::filesystem::directory_iterator(seeksim::paths::source_dir() + "/scenarios/quirks")) {
    const Ran ran = seeksim({"run", entry.path().string(), "--set", "quirks=[]"});
    EXPECT_EQ(ran.status, 1) << entry.path() << '\n' << ran.out;
    EXPECT_NE(ran.out.find("the scenario has no quirks"), std::string::npos) << ran.out;
    ++seen;
  }
  EXPECT_GE(seen, 3);
}

}  // namespace
}  // namespace seeksim::harness
