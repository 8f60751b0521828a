// Shrinking ends, in the smallest scenario that still fails alike; it never takes a check that has nothing left to look
// at for the failure; and the verb leaves a file that fails when it is run.
#include "harness/search/shrink.h"

#include <algorithm>

#include "harness/run/run.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

Json large() {
  return Json::parse(R"({
    "name": "large", "why": "Much that does not matter.", "seed": 77, "training_seed": 9,
    "model": { "layers": 3, "width": 24, "heads": 3, "context": 9, "vocab": 260, "tied": false, "frozen": ["wpe.weight", "h.0.*"] },
    "data": { "text": "golden/corpus.txt" },
    "world": { "nodes": 2, "ranks_per_node": 3, "network": "tcp", "noise": 0.5 },
    "deepspeed": { "train_batch_size": 12, "train_micro_batch_size_per_gpu": 2, "gradient_clipping": 0.5,
                   "zero_optimization": { "stage": 2, "reduce_bucket_size": 300, "overlap_comm": true },
                   "optimizer": { "type": "AdamW", "params": { "lr": 1e-2 } } },
    "steps": 3,
    "faults": [ { "kind": "straggler", "rank": 1, "factor": 2 },
                { "kind": "message_corrupt", "rank": 4, "step": 1, "op": "publish", "bit": 17, "checksum": false } ],
    "checks": [ "golden:bitwise", "ranks_agree", "loss_falls" ],
    "expect": { "check_fails": "golden:bitwise" } })");
}

Verdict alike(bool fails) { return fails ? Verdict::fails_alike : Verdict::differs; }

// As the loader does with scenarios that lack what they need.
bool lacks_something(const Json& s) {
  for (const char* place : {"/model/width", "/world/nodes", "/world/ranks_per_node", "/deepspeed", "/steps"}) {
    if (!s.contains(Json::json_pointer(place))) return true;
  }
  return false;
}

TEST(Shrink, EndsWhereNothingSimplerFails) {
  const auto judge = [](const Json& s) {
    if (lacks_something(s)) return Verdict::refused;
    const int ranks = s["world"]["nodes"].get<int>() * s["world"]["ranks_per_node"].get<int>();
    return alike(ranks >= 3 && s["steps"] >= 2 && s.contains("faults") && !s["faults"].empty() &&
                 s["faults"].back().value("bit", 0) >= 5 &&
                 s["deepspeed"].value("zero_optimization", Json::object()).value("stage", 0) >= 1);
  };
  const Shrunk shrunk = shrink(large(), judge, 1000);
  EXPECT_TRUE(shrunk.smallest);
  EXPECT_EQ(shrunk.scenario["world"], Json::parse(R"({ "nodes": 1, "ranks_per_node": 3 })"));
  EXPECT_EQ(shrunk.scenario["steps"], 2);
  EXPECT_EQ(shrunk.scenario["faults"], Json::parse(R"([ { "bit": 5 } ])"));
  EXPECT_EQ(shrunk.scenario["deepspeed"], Json::parse(R"({ "zero_optimization": { "stage": 1 } })"));
  EXPECT_EQ(shrunk.scenario["expect"], "pass");
  EXPECT_FALSE(shrunk.scenario.contains("checks"));
}

TEST(Shrink, IsTheSameEachTimeAndKeepsItsBound) {
  int asked = 0;
  const auto judge = [&asked](const Json& s) {
    if (lacks_something(s)) return Verdict::refused;
    ++asked;
    return alike(s["model"]["width"] >= 7);
  };
  const Shrunk first = shrink(large(), judge, 1000);
  EXPECT_EQ(asked, first.runs);
  const Shrunk second = shrink(large(), judge, 1000);
  EXPECT_EQ(first.scenario, second.scenario);
  EXPECT_EQ(first.edits, second.edits);
  EXPECT_EQ(first.runs, second.runs);
  asked = 0;
  const Shrunk few = shrink(large(), judge, 3);
  EXPECT_EQ(asked, 3);
  EXPECT_FALSE(few.smallest);
  EXPECT_EQ(few.edits.size(), 3u);
}

TEST(Shrink, WhatIsRefusedIsNoRun) {
  const Shrunk shrunk = shrink(
      large(), [](const Json&) { return Verdict::refused; }, 2);
  EXPECT_EQ(shrunk.runs, 0);
  EXPECT_GT(shrunk.refused, 20);
  EXPECT_TRUE(shrunk.smallest);
  EXPECT_TRUE(shrunk.edits.empty());
}

// Each table row proposes only what is simpler: taken again and again, it comes to an end.
TEST(Shrink, EverythingFailingComesToAnEnd) {
  const Shrunk shrunk = shrink(
      large(), [](const Json&) { return Verdict::fails_alike; }, 1000);
  EXPECT_TRUE(shrunk.smallest);
  EXPECT_EQ(shrunk.scenario.size(), 3u) << "name, why and expect are left: " << shrunk.scenario;
}

TEST(Shrink, AnEmptyLookIsNotTheFailure) {
  // The culprit is another than the check wants. Without the fault there is none: red as well, but for another reason.
  Json wrong = Json::parse(small_text());
  wrong["checks"] = {"culprit:1"};
  const Failure failure = failure_of(try_scenario(wrong, "s.json"));
  EXPECT_EQ(failure.check, "culprit:1");
  const Shrunk shrunk = shrink(wrong, "s.json", failure, 500);
  ASSERT_TRUE(shrunk.scenario.contains("faults")) << scenario_text(shrunk.scenario);
  EXPECT_EQ(shrunk.scenario["faults"].size(), 1u);
  wrong["faults"] = Json::array();
  EXPECT_FALSE(failure.in(try_scenario(wrong, "s.json")));
}

TEST(Shrink, ARealFailureBecomesOneScreen) {
  const Trial trial = try_scenario(large(), "s.json");
  ASSERT_EQ(trial.status, ExitStatus::check_failed);
  const Failure failure = failure_of(trial, "golden");
  const Shrunk shrunk = shrink(large(), "s.json", failure, 500);
  const std::string text = scenario_text(shrunk.scenario);
  EXPECT_TRUE(shrunk.smallest);
  EXPECT_LT(text.size(), 700u) << text;
  EXPECT_EQ(Json::parse(text), shrunk.scenario);
  EXPECT_EQ(shrunk.scenario["checks"], Json({"golden:bitwise"})) << text;
  EXPECT_EQ(shrunk.scenario["faults"].size(), 1u) << text;
  EXPECT_TRUE(failure.in(try_scenario(shrunk.scenario, "s.json")));
}

TEST(ShrinkVerb, WritesAFileThatFails) {
  TemporaryFolder folder;
  const std::string file = folder.write("large.json", large().dump(2)), out = folder.file("small.json");
  const Ran ran = seeksim({"shrink", file, "--out", out});
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_NE(ran.out.find("golden:bitwise is red"), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("nothing simpler fails the same way"), std::string::npos) << ran.out;
  EXPECT_EQ(seeksim({"run", out}).status, 1);
  const Ran printed = seeksim({"shrink", file});
  EXPECT_EQ(printed.out, read_all(out));
  const Ran few = seeksim({"shrink", file, "--runs", "2"});
  EXPECT_NE(few.err.find("stopped by --runs"), std::string::npos) << few.err;
}

TEST(ShrinkVerb, SaysWhyItCannot) {
  TemporaryFolder folder;
  const std::string good = folder.write("good.json", small_text()), bad = folder.write("bad.json", large().dump());
  Json sweep = large();
  sweep["sweep"] = {{"steps", {1, 2}}};
  const std::pair<std::vector<std::string>, std::string> table[] = {
      {{"shrink", good}, "it does not fail. Every check holds"},
      {{"shrink", good, "--set", "steps=0"}, "steps: 0 is out of range"},
      {{"shrink", bad, "--check", "partition"}, "its check partition is not red. Red are: golden:bitwise"},
      {{"shrink", folder.write("sweep.json", sweep.dump())}, "it is a sweep"},
      {{"shrink", folder.file("none.json")}, "No such file"},
      {{"shrink", bad, "--out", folder.file("no/such/x.json")}, "--out"},
      {{"shrink"}, "scenario is required"},
  };
  for (const auto& [arguments, said] : table) {
    const Ran ran = seeksim(arguments);
    EXPECT_EQ(ran.status, 2) << said;
    EXPECT_NE(ran.err.find(said), std::string::npos) << ran.err;
  }
}

}  // namespace
}  // namespace seeksim::harness
