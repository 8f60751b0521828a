// Evaluation between steps: that it changes no bit of the training, whatever is cut how; that each mistake that is
// planted in it turns its check red; what is refused; and where its losses stand.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "harness/loading/load.h"
#include "harness/oracles/reference_steps.h"
#include "harness/record/collector.h"
#include "harness/run/run.h"
#include "tests/support/paths.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

constexpr const char* kEvaluation = "evaluation={\"every_steps\":2,\"samples\":7}";

std::string text_of(int stage) {
  return fmt::format(
      R"({{ "name": "evaluation",
  "model": {{ "family": "gpt2", "layers": 2, "width": 8, "heads": 2, "context": 5, "vocab": 31, "dropout": 0.2 }},
  "data": {{ "synthetic": true }},
  "world": {{ "nodes": 1, "ranks_per_node": 3, "network": "ib" }},
  "deepspeed": {{ "train_batch_size": 12, "train_micro_batch_size_per_gpu": 2,
                 "zero_optimization": {{ "stage": {}, "stage3_param_persistence_threshold": 0 }},
                 "optimizer": {{ "type": "AdamW", "params": {{ "lr": 3e-3 }} }} }},
  "steps": 5, "batch_arithmetic": "by_samples", "checks": [ "golden:bitwise" ] }})",
      stage);
}

Outcome run_with(int stage, std::vector<std::string> sets) {
  LoadOptions options;
  options.sets = std::move(sets);
  return run_scenario(load_scenario_text(text_of(stage), "evaluation.json", options), {}, [](std::string_view) {});
}

// What a check said; null where it was not made.
Json said(const Outcome& outcome, const std::string& check) {
  for (const Json& one : outcome.report["checks"]) {
    if (one["name"] == check) return one;
  }
  return {};
}

struct Training {
  int stage;
  std::vector<std::string> sets;
};

const std::vector<Training> kTrainings = {
    {0, {}},
    {1, {"deepspeed.bf16={\"enabled\":true}"}},
    {2, {"checkpointing={\"every\":1}"}},
    {3, {"deepspeed.zero_optimization.stage3_max_reuse_distance=100000"}},
    {3, {"world.ranks_per_node=4", "deepspeed.zero_optimization.zero_hpz_partition_size=2"}},
    {1, {"world={\"nodes\":1,\"replicas\":2,\"pipeline\":2,\"network\":\"ib\"}"}},
    {0, {"world={\"nodes\":1,\"replicas\":2,\"tensor\":2,\"network\":\"ib\"}", "model.width=16", "model.heads=8"}},
};

TEST(Evaluation, ChangesNoBitOfTheTraining) {
  for (const Training& training : kTrainings) {
    const Outcome without = run_with(training.stage, training.sets);
    std::vector<std::string> sets = training.sets;
    sets.push_back(kEvaluation);
    const Outcome with = run_with(training.stage, sets);
    EXPECT_EQ(with.status, ExitStatus::as_expected) << with.report["checks"].dump(2);
    EXPECT_EQ(without.status, ExitStatus::as_expected) << without.report["checks"].dump(2);
    for (const char* key : {"params_digest", "loss", "grad_norm"}) {
      ASSERT_TRUE(with.report.contains(key)) << key;
      EXPECT_EQ(with.report[key], without.report[key]) << key << " at stage " << training.stage;
    }
    EXPECT_FALSE(without.report.contains("evaluations"));
    ASSERT_EQ(with.report["evaluations"].size(), 3u);
    for (std::size_t i = 0; i < 3; ++i)
      EXPECT_EQ(with.report["evaluations"][i]["steps"], (std::vector<int>{2, 4, 5})[i])
          << "at stage " << training.stage;
  }
}

TEST(Evaluation, HeldOutBytesAreReadByNoStep) {
  const std::vector<std::string> text = {"model.vocab=256", "data={\"text\":\"golden/corpus.txt\"}"};
  std::vector<std::string> shorter = text;
  shorter.push_back("data.held_out_bytes=115000");
  const Outcome all = run_with(0, text), some = run_with(0, shorter);
  EXPECT_NE(all.report["loss"], some.report["loss"]) << "training draws from what is left";
  shorter.push_back(kEvaluation);
  const Outcome with = run_with(0, shorter);
  EXPECT_EQ(with.report["loss"], some.report["loss"]);
  EXPECT_EQ(with.status, ExitStatus::as_expected) << with.report["checks"].dump(2);
}

struct Planted {
  const char* bug;
  int stage;
  const char* check;
  const char* detail;
};

TEST(Evaluation, EachPlantedMistakeTurnsItsCheckRed) {
  const std::vector<Planted> all = {
      {"evaluation_keeps_dropout", 1, "golden:bitwise", "held-out loss after 2 steps"},
      {"evaluation_skipped_by_one", 0, "collectives_match", "rank 1"},
      {"evaluation_skipped_by_one", 3, "collectives_match", "rank 1"},
      {"evaluation_left_out", 2, "evaluations", "after 5 steps is missing"},
      {"evaluation_leaves_gradients", 0, "golden:bitwise", "of step 2"},
      {"evaluation_means_of_ranks", 3, "golden:bitwise", "held-out loss after 2 steps"},
  };
  for (const Planted& one : all) {
    const Outcome outcome = run_with(
        one.stage, {kEvaluation, fmt::format("bug={}", one.bug), "recovery={\"policy\":\"stop\",\"watchdog_s\":60}"});
    const Json check = said(outcome, one.check);
    ASSERT_FALSE(check.is_null()) << one.check << " was not made";
    EXPECT_FALSE(check["ok"].get<bool>()) << one.bug << " goes unnoticed: " << check["detail"];
    EXPECT_NE(check["detail"].get<std::string>().find(one.detail), std::string::npos) << check["detail"];
  }
}

// The last rank dies in the evaluation after the last step: the run has an end, and no evaluation is missing.
TEST(Evaluation, WhatNobodyLivedToMakeIsNotMissing) {
  const std::string dies = R"(faults=[{"kind":"rank_crash","rank":0,"step":5,"phase":"evaluation","op":"all_reduce"}])";
  const Outcome before = run_with(0, {kEvaluation, "world.ranks_per_node=1", dies});
  EXPECT_EQ(before.status, ExitStatus::check_failed);
  EXPECT_FALSE(said(before, "finished")["ok"].get<bool>());
  EXPECT_TRUE(said(before, "evaluations")["ok"].get<bool>()) << before.report["checks"].dump(1);
}

TEST(Evaluation, LossesThatDifferBetweenRanksAreTold) {
  Collector collector(2);
  collector.evaluated(0, {2, 0, 1.5f, 0});
  collector.evaluated(1, {2, 0, 1.5f, 0});
  EXPECT_EQ(collector.record().training.evaluations_disagree, "");
  collector.evaluated(1, {2, 1, 1.25f, 0});
  EXPECT_EQ(collector.record().training.evaluations_disagree,
            "after 2 steps rank 1 has a held-out loss of 1.25, and another has 1.5");
  collector.evaluated(0, {1, 0, 3.0f, 0});
  ASSERT_EQ(collector.record().training.evaluations.size(), 2u);
  EXPECT_EQ(collector.record().training.evaluations[0].steps, 1) << "by steps, whatever came first";
  collector.rolled_back(0, 1);
  EXPECT_EQ(collector.record().training.evaluations.size(), 1u) << "what came after undone steps never was";
}

// Beside runs of the reference that are off by what rounding does to them.
TEST(Evaluation, TheReferenceSeesAWrongHeldOutLoss) {
  reference::Training training;
  training.steps = 2;
  training.held_out.samples = 4;
  reference::FreeRun clean;
  clean.held_out = 3;
  clean.held_out_bound = 1e-5;
  clean.routing = {0};
  std::vector<reference::FreeRun> noisy(3, clean);
  noisy[1].held_out = 3.0001;
  const auto judged = [&](float loss) {
    RunRecord run;
    run.training.evaluations = {{2, 0, loss, 0}};
    ReferenceVerdict verdict;
    judge_held_out(run, training, clean, noisy, verdict);
    EXPECT_EQ(verdict.values, 1);
    return verdict.differences;
  };
  EXPECT_TRUE(judged(3.0003f).empty());
  ASSERT_EQ(judged(3.01f).size(), 1u);
  EXPECT_EQ(judged(3.01f)[0].quantity, "held-out loss of the whole run");
  noisy[2].routing = {1};  // tokens went to other experts: nothing can be said
  RunRecord run;
  run.training.evaluations = {{2, 0, 9, 0}};
  ReferenceVerdict verdict;
  judge_held_out(run, training, clean, noisy, verdict);
  EXPECT_TRUE(verdict.differences.empty());
}

TEST(Evaluation, WhatCannotBeIsRefusedInALine) {
  const std::string text = text_of(0);
  EXPECT_EQ(problems_of(text, {kEvaluation}), "");
  const std::vector<std::pair<std::vector<std::string>, const char*>> all = {
      {{"evaluation={\"every_steps\":2}"}, "samples"},
      {{"evaluation={\"samples\":0}"}, "0"},
      {{"evaluation={\"samples\":4,\"every_steps\":-1}"}, "-1"},
      {{kEvaluation, "model.vocab=256", "data={\"text\":\"golden/corpus.txt\"}"}, "data.held_out_bytes is 0"},
      {{kEvaluation, "model.vocab=256", "data={\"text\":\"golden/corpus.txt\",\"held_out_bytes\":5}"},
       "takes context + 1 = 6 bytes"},
      {{"model.vocab=256", "data={\"text\":\"golden/corpus.txt\",\"held_out_bytes\":200000}"}, "are held out"},
      {{"data={\"synthetic\":true,\"held_out_bytes\":10}"}, "only a text has an end"},
  };
  for (const auto& [sets, what] : all) {
    const std::string problems = problems_of(text, sets, seeksim::paths::source_dir() + "/scenarios/s.json");
    EXPECT_NE(problems.find(what), std::string::npos) << problems << "\n  not: " << what;
    EXPECT_EQ(std::count(problems.begin(), problems.end(), '\n'), 0) << problems;
  }
}

TEST(Evaluation, ItsLossesAreInTheStoryAndInEveryExport) {
  TemporaryFolder folder;
  const std::string path = folder.write("evaluation.json", text_of(1));
  const Ran ran = seeksim({"run", path, "--set", kEvaluation, "--metrics", folder.file("metrics.jsonl"),
                           "--tensorboard", folder.file("board")});
  EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
  EXPECT_NE(ran.out.find("held out  loss "), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("after 5 steps, evaluated 3 times"), std::string::npos) << ran.out;
  EXPECT_NE(read_all(folder.file("metrics.jsonl")).find("\"eval_loss\":"), std::string::npos);
  EXPECT_NE(read_all(folder.file("board") + "/events.out.tfevents.0.seeksim").find("eval/loss"), std::string::npos);
}

}  // namespace
}  // namespace seeksim::harness
