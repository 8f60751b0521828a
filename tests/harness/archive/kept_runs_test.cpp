// The runs that a folder keeps: what is written when, what differs between two, and records that are no records.
#include "harness/archive/kept_runs.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "harness/archive/kept_diff.h"
#include "harness/input/problem.h"
#include "tests/support/paths.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

const std::string kBaseline = paths::source_dir() + "/scenarios/baseline.json";

std::vector<std::string> with_out(const std::string& out, std::vector<std::string> more = {}) {
  std::vector<std::string> words = {"run", kBaseline, "--out", out, "--set", "steps=4", "--set", "checks=[]"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(KeptRuns, EachRunOfAFolderIsKeptAndListedWithWhatChanged) {
  TemporaryFolder folder;
  const std::string out = folder.path() + "/out";
  ASSERT_EQ(seeksim(with_out(out)).status, 0);
  ASSERT_EQ(seeksim(with_out(out, {"--set", "deepspeed.optimizer.params.lr=0.5"})).status, 0);
  const Ran listed = seeksim({"runs", out});
  EXPECT_EQ(listed.status, 0) << listed.err;
  EXPECT_NE(listed.out.find("/runs/0001"), std::string::npos) << listed.out;
  EXPECT_NE(listed.out.find("deepspeed.optimizer.params.lr: 0.001 -> 0.5"), std::string::npos) << listed.out;
  const Json json = Json::parse(seeksim({"runs", folder.path(), "--json"}).out);
  ASSERT_EQ(json.at("runs").size(), 2u);
  EXPECT_EQ(json["runs"][1]["state"], "ended");
  EXPECT_EQ(json["runs"][1]["steps_committed"], 4);
  EXPECT_EQ(json["runs"][1]["configuration"]["deepspeed"]["optimizer"]["params"]["lr"], 0.5);
  const Json report = Json::parse(read_all(out + "/report.json"));
  EXPECT_EQ(json["runs"][1]["params_digest"], report["params_digest"]);

  const Ran diff = seeksim({"diff", out + "/runs/0001", out + "/runs/0002", "--report", folder.path() + "/d.json"});
  EXPECT_EQ(diff.status, 1) << diff.out << diff.err;
  EXPECT_NE(diff.out.find("loss, from step 1 on"), std::string::npos) << diff.out;
  const Json written = Json::parse(read_all(folder.path() + "/d.json"));
  EXPECT_EQ(written["configuration"].size(), 1u);
  EXPECT_EQ(written["configuration"][0]["b"], 0.5);
}

TEST(KeptRuns, TheSameRunTwiceHasTheSameResult) {
  TemporaryFolder folder;
  const std::string out = folder.path() + "/out";
  ASSERT_EQ(seeksim(with_out(out)).status, 0);
  ASSERT_EQ(seeksim(with_out(out)).status, 0);
  const Ran diff = seeksim({"diff", out + "/runs/0001", out + "/runs/0002"});
  EXPECT_EQ(diff.status, 0) << diff.out;
  EXPECT_EQ(diff.out.find("DIFFERENT"), std::string::npos);
}

TEST(KeptRuns, ARunThatIsKilledKeepsItsConfiguration) {
  TemporaryFolder folder;
  const Json scenario = {{"name", "s"}, {"steps", 3}};
  { const RunKeeper keeper(folder.path(), scenario, "s"); }
  std::vector<std::string> problems;
  const std::vector<KeptRun> runs = kept_runs(folder.path(), problems);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].run["state"], "running");
  EXPECT_EQ(runs[0].scenario, scenario);
}

TEST(KeptRuns, DifferencesAreThoseOfConfigurationProgramAndResult) {
  KeptRun a{"a", {{"program", "1"}, {"verdict", "pass"}, {"loss", {5, 4, 3}}}, {{"steps", 3}, {"why", "x"}}};
  KeptRun b = a;
  EXPECT_TRUE(kept_diff(a, b).same_result());
  b.scenario["why"] = "another sentence";
  EXPECT_TRUE(kept_diff(a, b).configuration.empty());
  b.scenario["faults"] = Json::array({{{"kind", "oom"}}});
  b.run["program"] = "2";
  b.run["loss"][2] = "NaN";
  const KeptDiff diff = kept_diff(a, b);
  ASSERT_EQ(diff.configuration.size(), 1u);
  EXPECT_EQ(diff.configuration[0].what, "faults.0.kind");
  EXPECT_EQ(diff.configuration[0].a, "");
  EXPECT_EQ(diff.program.size(), 1u);
  ASSERT_EQ(diff.result.size(), 1u);
  EXPECT_EQ(diff.result[0].what, "loss, from step 2 on");
}

TEST(KeptRuns, WhatIsNoRecordIsNamedAndTheOthersAreListed) {
  TemporaryFolder folder;
  { const RunKeeper keeper(folder.path(), {{"name", "s"}}, "s"); }
  const auto broken = [&](const std::string& number, const std::string& text) {
    std::filesystem::create_directories(folder.path() + "/runs/" + number);
    std::ofstream(folder.path() + "/runs/" + number + "/run.json") << text;
    std::ofstream(folder.path() + "/runs/" + number + "/scenario.json") << "{}";
  };
  broken("0002", "{ \"schema\": \"seeksim-run-9\", \"program\": \"of tomorrow\" }");
  broken("0003", "no JSON");
  broken("0004", "[1, 2]");
  broken("0005", "{ \"schema\": 7 }");
  std::filesystem::create_directory_symlink(folder.path(), folder.path() + "/runs/loop");
  const Ran ran = seeksim({"runs", folder.path()});
  EXPECT_EQ(ran.status, 2);
  EXPECT_NE(ran.out.find("0001"), std::string::npos);
  EXPECT_NE(ran.err.find("seeksim-run-9"), std::string::npos) << ran.err;
  for (const char* number : {"0003", "0004", "0005"}) EXPECT_NE(ran.err.find(number), std::string::npos) << ran.err;
  EXPECT_EQ(seeksim({"runs", folder.path() + "/none"}).status, 2);
  { const RunKeeper next(folder.path(), {{"name", "s"}}, "s"); }
  EXPECT_TRUE(is_kept_run(folder.path() + "/runs/0006")) << "the next number, whatever the others are";
}

}  // namespace
}  // namespace seeksim::harness
