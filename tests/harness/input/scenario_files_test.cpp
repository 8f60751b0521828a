// Folders of scenarios, and what is said of a scenario that has moved.

#include "harness/input/scenario_files.h"

#include <filesystem>

#include "harness/input/problem.h"
#include "tests/support/paths.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

struct FolderOfScenarios : TemporaryFolder, ::testing::Test {
  FolderOfScenarios() {
    std::filesystem::create_directories(file("deaths/late"));
    write("one.json", small_text());
    write("deaths/late/two.json", small_text());
    write("schema.json", R"({"type": "object", "properties": {"steps": {}}})");
    write("ds_config.json", R"({"train_batch_size": 8, "zero_optimization": {"stage": 2}})");
    write("report.json", R"({"schema": 3, "exit_code": 0, "steps": 4})");
    write("notes.txt", "no scenario");
  }
};

TEST_F(FolderOfScenarios, AreFoundBelowItAndOtherFilesAreNot) {
  EXPECT_EQ(scenarios_below(path()), (std::vector<std::string>{file("deaths/late/two.json"), file("one.json")}));
}

TEST_F(FolderOfScenarios, KeepsAFileThatIsNoJsonSoThatItIsReported) {
  write("half.json", "{");
  EXPECT_EQ(scenarios_below(path()).size(), 3u);
  const Ran ran = seeksim({"run", path()});
  EXPECT_EQ(ran.status, 2) << ran.out;
  EXPECT_NE(ran.out.find("half.json"), std::string::npos) << ran.out;  // several scenarios: its process reports
  EXPECT_NE(ran.out.find("2 of 3 scenarios as expected"), std::string::npos) << ran.out;
}

TEST_F(FolderOfScenarios, AreRunWithOneSummary) {
  const Ran ran = seeksim({"run", path() + "/", "--report", file("all.json")});
  EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
  EXPECT_NE(ran.out.find("2 of 2 scenarios as expected"), std::string::npos) << ran.out;
  EXPECT_TRUE(std::filesystem::exists(file("all.json")));
}

TEST_F(FolderOfScenarios, GiveTheirGoldensToo) {
  const Ran ran = seeksim({"golden", path()});
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_NE(ran.out.find("small  key "), ran.out.rfind("small  key ")) << "one line each: " << ran.out;
}

TEST_F(FolderOfScenarios, WithoutAnyIsRefused) {
  std::filesystem::create_directory(file("empty"));
  const Ran ran = seeksim({"run", file("empty")});
  EXPECT_EQ(ran.status, 2);
  EXPECT_NE(ran.err.find("empty: there is no scenario in this folder"), std::string::npos) << ran.err;
}

TEST_F(FolderOfScenarios, OfOptionsForOneScenarioCountsAsMany) {
  const Ran ran = seeksim({"run", path(), "--trace", file("trace.json")});
  EXPECT_EQ(ran.status, 2);
  EXPECT_NE(ran.err.find("several scenarios would write the same file"), std::string::npos) << ran.err;
}

struct Moved {
  const char* asked;
  const char* answer;  // from the repository's top
};

TEST(AScenarioThatMoved, IsToldWithItsNewPlace) {
  const std::string top = seeksim::paths::source_dir() + "/scenarios/";
  const std::vector<Moved> moves = {
      {"rank_returns.json", "deaths/rank_returns.json"},          // the same name
      {"quirk_mean_of_means.json", "quirks/mean_of_means.json"},  // the name inside the file
      {"numbers/nan_anwhere.json", "numbers/nan_anywhere.json"},  // misspelt
      {"network/rank_crash.json", "rank_crash.json"},             // another folder
      {"no/such/folder/quorum.json", "deaths/quorum.json"},       // folders that are not there
  };
  for (const Moved& moved : moves) {
    const Ran ran = seeksim({"run", top + moved.asked});
    EXPECT_EQ(ran.status, 2) << moved.asked;
    const std::string answer = "No such file or directory. Did you mean " + top + moved.answer + "?";
    EXPECT_NE(ran.err.find(answer), std::string::npos) << ran.err;
  }
}

TEST(AScenarioThatMoved, IsFoundByItsBareName) {
  const std::string answer = where_it_may_be("spare_takes_over");
  EXPECT_NE(answer.find("scenarios/deaths/spare_takes_over.json?"), std::string::npos) << answer;
}

TEST(AScenarioThatMoved, IsNoGuessWhereNothingIsNear) {
  EXPECT_EQ(where_it_may_be("/nowhere/entirely_unheard_of_words.json"), "");
}

// ---- by name -------------------------------------------------------------------------------------------------------

TEST(ScenarioNamed, IsFoundAmongThoseThatComeWithSeeksim) {
  EXPECT_EQ(scenario_named("nccl_timeout"), scenarios_folder() + "/nccl_timeout.json");
  EXPECT_EQ(scenario_named("rank_returns"), scenarios_folder() + "/deaths/rank_returns.json");
  const Ran ran = seeksim({"golden", "baseline", "--explain"});
  EXPECT_EQ(ran.status, 0) << ran.err;
}

// Somebody else's project may have scenarios/ and golden/ of its own.
TEST(ScenarioNamed, IsFoundWhereTheWorkingFolderHasScenariosToo) {
  TemporaryFolder project;
  std::filesystem::create_directory(project.file("scenarios"));
  std::filesystem::create_directory(project.file("golden"));
  project.write("scenarios/mine.json", small_text());
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(project.path());
  const std::string mine = scenario_named("mine"), ours = scenario_named("nccl_timeout");
  const Ran museum = seeksim({"museum", "experts_norm_averaged"});
  std::filesystem::current_path(before);
  EXPECT_EQ(mine, "scenarios/mine.json");
  EXPECT_TRUE(ours.ends_with("/scenarios/nccl_timeout.json")) << ours;
  EXPECT_EQ(museum.status, 0) << museum.err;
}

TEST(ScenarioNamed, LeavesEveryOtherNameAlone) {
  for (const char* name : {"", "no_such_scenario", "nccl_timeout.json", "./nccl_timeout", "deaths", "scenarios", "-"})
    EXPECT_EQ(scenario_named(name), name);
  EXPECT_NE(seeksim({"run", "nccl_timeot"}).err.find("Did you mean "), std::string::npos);
}

}  // namespace
}  // namespace seeksim::harness
