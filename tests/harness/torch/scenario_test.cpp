// Scenarios with "torch": read, written back, and everything wrong with them said at once.
#include "harness/torch/scenario.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "harness/input/problem.h"
#include "harness/torch/faults.h"
#include "harness/torch/run.h"
#include "tests/harness/torch/made_run.h"
#include "tests/support/paths.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness::torch {
namespace {

using harness::testing::read_all;
using harness::testing::seeksim;
using harness::testing::TemporaryFolder;

TorchScenario load(const std::string& text, std::optional<int> np = {}) {
  return load_torch_scenario_text(text, "s.json", {}, np);
}

std::string problems(const std::string& text, std::optional<int> np = {}) {
  try {
    load(text, np);
    return "";
  } catch (const BadInput& bad) {
    std::string all;
    for (const Problem& problem : bad.problems()) all += problem.text() + '\n';
    return all;
  }
}

TEST(TorchScenario, ReadAndWrittenBackItIsTheSame) {
  const std::string text = R"({"name": "n", "why": "w",
    "torch": {"np": 3, "timeout_s": 8, "stall_s": 20, "seed": 7, "record": {"stacks": false, "weights_every": 2},
              "replicas": [[0, 2], [1]]},
    "faults": [{"kind": "collective_timeout", "rank": 1, "step": 2, "op": "all_reduce"},
               {"kind": "bit_flip", "rank": 0, "site": "gradient", "element": 5, "bit": 28}],
    "checks": ["culprit:1", "loss_falls"], "expect": {"check_fails": ["no_hang", "finite"]}})";
  const TorchScenario first = load(text);
  EXPECT_EQ(first.torch.ranks, 3);
  EXPECT_EQ(first.torch.patience_s(), 20);
  EXPECT_EQ(first.torch.replicas, (std::vector<std::vector<int>>{{0, 2}, {1}}));
  EXPECT_EQ(first.faults.size(), 2u);
  const Json written = to_json(first);
  EXPECT_EQ(to_json(load(written.dump())), written);
}

TEST(TorchScenario, WithoutAFileEverythingIsAsByDefault) {
  const TorchScenario scenario = load_torch_scenario("", {"torch.timeout_s=9"}, 4);
  EXPECT_EQ(scenario.torch.ranks, 4);
  EXPECT_EQ(scenario.torch.timeout_s, 9);
  EXPECT_EQ(scenario.torch.patience_s(), 28);
}

TEST(TorchScenario, AllProblemsAreSaidAtOnce) {
  const std::string text = R"({"torch": {"np": 2, "timout_s": 3},
    "faults": [{"kind": "rank_crash", "rank": 2}, {"kind": "slow_disk", "rank": 0},
               {"kind": "overflow", "rank": 1, "site": "optimizer_state"},
               {"kind": "nan_inject", "site": "loss", "tensor": "head.weight"}, {"kind": "data_error", "mode": "flip"},
               {"kind": "nan_inject", "layer": 1}],
    "checks": ["culprit:5", "no_such"], "expect": {"check_fails": "finit"}})";
  const std::string found = problems(text);
  for (const char* part : {"timout_s", "ranks go from 0 to 1", "slow_disk cannot be injected into a script yet",
                           "overflow cannot strike", "a loss has no name", "data_error has skip, dup_apply, or none",
                           "has no meaning for a script", "names rank 5", "no_such", "finit"})
    EXPECT_NE(found.find(part), std::string::npos) << part << " in\n" << found;
}

TEST(TorchScenario, AWorldThatDoesNotMatchIsRefused) {
  EXPECT_NE(problems(R"({"torch": {"np": 2}})", 4).find("2 ranks, and --np says 4"), std::string::npos);
  EXPECT_EQ(problems(R"({"torch": {"np": 4}})", 4), "");
}

TEST(TorchScenario, TorchAndModelTogetherAreBadInput) {
  const std::string both = R"({"torch": {}, "model": {}})";
  EXPECT_NE(problems(both).find("the script brings it"), std::string::npos) << problems(both);
  EXPECT_NE(harness::testing::problems_of(both).find("the script brings the model"), std::string::npos);
}

TEST(TorchScenario, EachCommandNamesTheOther) {
  TemporaryFolder folder;
  const std::string mine = folder.write("mine.json", R"({"torch": {}})");
  const auto ran = seeksim({"run", mine});
  EXPECT_EQ(ran.status, 2);
  EXPECT_NE(ran.err.find("seeksim torch run"), std::string::npos) << ran.err;
  EXPECT_NE(problems(harness::testing::small_text()).find("seeksim run"), std::string::npos);
}

TEST(TorchScenario, ReplicasNameEachRankOnce) {
  EXPECT_NE(problems(R"({"torch": {"np": 2, "replicas": [[0], [2]]}})").find("there is no rank 2"), std::string::npos);
  EXPECT_NE(problems(R"({"torch": {"np": 2, "replicas": [[0], [0]]}})").find("rank 0 is there twice"),
            std::string::npos);
}

TEST(TorchScenario, FaultsNeedSeeksimsOwnBackend) {
  const std::string text = R"({"torch": {"backend": "own"}, "faults": [{"kind": "rank_crash", "rank": 1}]})";
  EXPECT_NE(problems(text).find("torch's own backend injects none"), std::string::npos);
}

TEST(TorchScenario, AnErrorOfNcclNeedsABackendThatCallsIt) {
  const std::string rule = R"("faults": [{"kind": "device_error", "rank": 1, "mode": "never"}]})";
  EXPECT_EQ(problems(R"({"torch": {"backend": "forwarded"}, )" + rule), "");
  EXPECT_NE(problems(R"({"torch": {}, )" + rule).find("strikes NCCL, which this backend never calls"),
            std::string::npos);
  EXPECT_NE(problems(R"({"torch": {"backend": "forwarded"},
    "faults": [{"kind": "device_error", "rank": 1, "mode": "late"}]})")
                .find("device_error"),
            std::string::npos);
}

TEST(TorchScenario, AnOrderOfSumsNeedsABackendThatHasIt) {
  for (const auto& [backend, sums, loads] : {std::tuple{"seeksim", "three_parts", true},
                                             {"gathered", "rotated", true},
                                             {"gathered", "two_parts", false},
                                             {"forwarded", "reversed", false},
                                             {"own", "reversed", false}}) {
    const Json scenario = {{"torch", {{"backend", backend}, {"sums", sums}}}};
    EXPECT_EQ(problems(scenario.dump()).empty(), loads) << scenario;
  }
}

// One that can do what the row says.
std::string backend_for(const TorchFault& row) {
  return row.kind == faults::FaultKind::device_error ? "forwarded" : "seeksim";
}

TEST(TorchScenario, EveryKindThatAppliesLoadsAndGoesIntoThePlan) {
  Start start;
  start.built.module = "/m.so";
  start.attempt = 1;
  for (const TorchFault& row : torch_faults()) {
    Json fault = {{"kind", std::string(faults::name(row.kind))}, {"rank", 1}, {"step", 2}};
    const auto takes = [&](const char* key) { return is_key_in_torch(row.kind, key); };
    if (row.kind == faults::FaultKind::pause || row.kind == faults::FaultKind::data_stall) fault["delay_s"] = 0.5;
    if (takes("offset_s")) fault["offset_s"] = -60;
    if (takes("link")) fault["link"] = {{"from", 1}, {"to", 0}};
    for (const char* key : {"rank", "step"})
      if (!takes(key)) fault.erase(key);
    const Json scenario = {{"torch", {{"np", 2}, {"backend", backend_for(row)}}}, {"faults", {fault}}};
    EXPECT_EQ(problems(scenario.dump()), "") << faults::name(row.kind);
    const Json plan = plan_json(load(scenario.dump()), start);
    EXPECT_EQ(plan["attempt"], 1);
    EXPECT_TRUE(takes("attempt")) << "each can strike in a resumed run";
    EXPECT_EQ(plan["faults"][0].contains("rank"), takes("rank"));
    EXPECT_EQ(plan["faults"][0]["kind"], faults::name(row.kind));
  }
}

TEST(TorchScenario, EveryModeAndSiteOfAKindLoads) {
  for (const TorchFault& row : torch_faults()) {
    Json fault = {{"kind", std::string(faults::name(row.kind))}};
    for (const char* key : {"rank", "delay_s", "offset_s"})
      if (is_key_in_torch(row.kind, key)) fault[key] = 1;
    const auto fine = [&](const char* key, std::string_view word) {
      Json one = fault;
      one[key] = word;
      if (word == "never") one.erase("delay_s");
      const Json scenario = {{"torch", {{"np", 2}, {"backend", backend_for(row)}}}, {"faults", {one}}};
      EXPECT_EQ(problems(scenario.dump()), "") << one;
    };
    for (const faults::Mode mode : row.modes) fine("mode", faults::name(mode));
    for (const faults::Site site : row.sites) fine("site", faults::name(site));
  }
}

TEST(TorchScenario, TheStoredSchemaIsThatOfTheRows) {
  const std::string stored = read_all(seeksim::paths::source_dir() + "/examples/pytorch/torch.schema.json");
  EXPECT_EQ(stored, torch_schema_text()) << "seeksim list torch_schema > examples/pytorch/torch.schema.json";
}

TEST(TorchRun, WhatIsNoScriptIsBadInputOfOneLine) {
  TemporaryFolder folder;
  const std::string script = folder.write("train.py", "");
  const auto status_and_error = [](const std::vector<std::string>& arguments) {
    const auto ran = seeksim(arguments);
    return std::pair(ran.status, ran.err);
  };
  const auto none = status_and_error({"torch", "run"});
  EXPECT_EQ(none.first, 2);
  EXPECT_NE(none.second.find("there is no script"), std::string::npos) << none.second;
  const auto missing = status_and_error({"torch", "run", "--", "no_such.py"});
  EXPECT_EQ(missing.first, 2);
  EXPECT_NE(missing.second.find("no_such.py: there is no such script"), std::string::npos) << missing.second;
  const auto python = status_and_error({"torch", "run", "--python", "/no/python", "--", script});
  EXPECT_EQ(python.first, 2);
  EXPECT_NE(python.second.find("there is no such program"), std::string::npos) << python.second;
}

TEST(TorchRun, AScriptThatFailsBeforeItsFirstStepIsBadInput) {
  testing::MadeRun idle(2);
  TorchRun run = idle.run();
  EXPECT_EQ(failed_by_itself(run), "");
  run.job.processes[1].ending.status = 1;
  run.job.processes[1].last_words = "ModuleNotFoundError: No module named 'x'";
  EXPECT_EQ(failed_by_itself(run),
            "rank 1 ended with status 1 before the first step: ModuleNotFoundError: No module named 'x'");
  run.ranks[0].refused = "the model of rank 0 has no module 'block.0.up': did you mean 'blocks.0.up'?";
  EXPECT_EQ(failed_by_itself(run), "rank 0: " + run.ranks[0].refused);
  TorchRun trained = testing::made_run(2);
  trained.job.processes[1].ending.status = 1;
  EXPECT_EQ(failed_by_itself(trained), "");
}

TEST(TorchRecords, TheScriptsOwnFrameIsFound) {
  EXPECT_EQ(own_frame("/v/lib/python3.11/site-packages/torch/nn/a.py:3 f\ntrain.py:51 main\n"), "train.py:51 main");
  EXPECT_EQ(own_frame("Thread 0x1 (most recent call first):\n  File \"/v/site-packages/torch/a.py\", line 3 in f\n"
                      "  File \"/data/torch/ddp.py\", line 40 in main\n"),
            "ddp.py:40 main");
  EXPECT_EQ(own_frame(""), "");
}

}  // namespace
}  // namespace seeksim::harness::torch
