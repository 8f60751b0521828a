// Which of many scenarios and rows run: -k, --shard and --list.
#include "harness/commands/choice.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <set>

#include <nlohmann/json.hpp>

#include "harness/input/problem.h"
#include "tests/support/paths.h"
#include "tests/support/processes.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

const char* const kLight = R"(  "checks": [ "ranks_agree" ])";

class Choice : public ::testing::Test {
 protected:
  Choice() {
    for (const char* name : {"apple.json", "banana.json", "cherry.json"})
      folder.write(name, small_text_with(10, kLight));
    sweep = folder.write(
        "sweep.json",
        small_text_with(10, R"(  "checks": [ "ranks_agree" ], "sweep": [ { "training_seed": [1, 2, 3, 4, 5] } ])"));
  }
  std::string listed(std::vector<std::string> more) {
    more.insert(more.begin(), {"run", "--list", folder.path()});
    const Ran ran = seeksim(more);
    EXPECT_EQ(ran.status, 0) << ran.err;
    return ran.out;
  }
  TemporaryFolder folder;
  std::string sweep;
};

TEST_F(Choice, APatternLeavesTheScenariosThatHaveItInTheirPath) {
  EXPECT_EQ(listed({"-k", "rry"}), folder.file("cherry.json") + '\n');
  const Ran ran = seeksim({"run", folder.path(), "-k", "banana", "--report", folder.file("r.report")});
  EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
  EXPECT_EQ(Json::parse(read_all(folder.file("r.report")))["verdict"], "pass");
  const Ran none = seeksim({"run", folder.path(), "-k", "no such"});
  EXPECT_EQ(none.status, 2);
  EXPECT_NE(none.err.find("none of 4 scenarios has this in its path"), std::string::npos) << none.err;
}

TEST_F(Choice, ShardsHaveEachScenarioOnce) {
  std::string together;
  for (int i = 1; i <= 3; ++i) together += listed({"--shard", fmt::format("{}/3", i)});
  for (const char* name : {"apple.json", "banana.json", "cherry.json", "sweep.json"}) {
    const std::string line = folder.file(name) + '\n';
    const std::size_t at = together.find(line);
    EXPECT_NE(at, std::string::npos) << name;
    EXPECT_EQ(together.find(line, at + 1), std::string::npos) << name;
  }
  EXPECT_EQ(listed({"--shard", "9/9"}), "");
  EXPECT_EQ(seeksim({"run", folder.path(), "--shard", "9/9"}).status, 0);
}

TEST_F(Choice, ShardsHaveEachRowOfASweepOnce) {
  std::multiset<int> rows;
  for (int i = 1; i <= 2; ++i) {
    const Ran ran = seeksim({"run", sweep, "--shard", fmt::format("{}/2", i), "--report", folder.file("r.report")});
    EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
    EXPECT_NE(ran.out.find(fmt::format("shard     {} of 2: {} of 5 rows", i, 4 - i)), std::string::npos) << ran.out;
    const Json report = Json::parse(read_all(folder.file("r.report")));
    for (const Json& row : report["rows"]) rows.insert(row["row"].get<int>());
  }
  EXPECT_EQ(rows, (std::multiset<int>{0, 1, 2, 3, 4}));
  EXPECT_EQ(seeksim({"run", sweep, "--shard", "6/6"}).status, 2);
  EXPECT_EQ(seeksim({"run", folder.file("apple.json"), "--shard", "1/2"}).status, 2);
}

TEST_F(Choice, WhatIsNoShardIsRefused) {
  for (const char* text : {"0/3", "4/3", "1", "1/", "/3", "a/b", "1/2x", "-1/3", "1/99999999999999999999", "1/100001"})
    EXPECT_THROW(shard_of(text), BadInput) << text;
  EXPECT_EQ(shard_of("2/5").part, 1u);
  EXPECT_EQ(seeksim({"run", sweep, "--shard", "1/2", "--row", "1"}).status, 2);
}

TEST_F(Choice, LastFailedRunsWhatWasRedAndNothingElse) {
  ::setenv("XDG_CACHE_HOME", folder.path().c_str(), 1);
  const std::string apple = folder.file("apple.json"), banana = folder.file("banana.json");
  EXPECT_EQ(seeksim({"run", "--last-failed"}).status, 2) << "nothing was run yet";
  const std::string red = folder.write("red.json", small_text_with(10, R"(  "checks": [ "no_recovery" ])"));
  const Ran first = seeksim({"run", apple, red, banana});
  EXPECT_EQ(first.status, 1);
  EXPECT_NE(first.out.find(
                "2 of 3 scenarios as expected\n  small  exit status 1: failed: no_recovery\n      seeksim run " + red),
            std::string::npos)
      << first.out;
  EXPECT_EQ(seeksim({"run", "--last-failed", "--list"}).out, red + '\n');
  EXPECT_EQ(seeksim({"run", apple, "--last-failed", "--list"}).out, "") << "it did not fail";
  EXPECT_EQ(seeksim({"run", "--last-failed"}).status, 1) << "it still does";
  folder.write("red.json", small_text_with(10, kLight));
  EXPECT_EQ(seeksim({"run", "--last-failed"}).status, 0);
  EXPECT_NE(seeksim({"run", "--last-failed"}).out.find("nothing failed the last time"), std::string::npos);
  ::unsetenv("XDG_CACHE_HOME");
}

TEST_F(Choice, ADashIsStandardInput) {
  const std::string program = seeksim::paths::program();
  const auto piped = [&](const std::string& file) {
    return shell("(" + program + " run - --report " + folder.file("r") + " < " + folder.file(file) + ")");
  };
  const seeksim::Ran one = piped("apple.json");
  EXPECT_EQ(one.status, 0) << one.text;
  EXPECT_EQ(Json::parse(read_all(folder.file("r")))["scenario"], "small");
  const seeksim::Ran rows = piped("sweep.json");
  EXPECT_EQ(rows.status, 0) << rows.text;
  EXPECT_EQ(Json::parse(read_all(folder.file("r")))["rows"].size(), 5u) << "each row reads it again";
  folder.write("broken.json", "{");
  EXPECT_EQ(piped("broken.json").status, 2);
}

}  // namespace
}  // namespace seeksim::harness
