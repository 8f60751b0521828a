// The museum: every exhibit is caught by the check that it names and passes without its mistake; the table of its
// README is complete; and an exhibit that nothing catches, or that is wrong by itself, is red.
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>

#include "harness/explain/museum.h"
#include "harness/input/files.h"
#include "tests/support/paths.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

std::string museum_folder() { return seeksim::paths::source_dir() + "/scenarios/museum"; }

std::vector<std::string> exhibits() {
  std::vector<std::string> names;
  for (const std::string& file : list_folder(museum_folder())) {
    if (file.ends_with(".json")) names.push_back(file.substr(0, file.size() - 5));
  }
  return names;
}

class Museum : public ::testing::TestWithParam<std::string> {};

TEST_P(Museum, IsCaughtAndPassesWithoutTheMistake) {
  const Ran ran = seeksim({"museum", GetParam(), "-j", "1"});
  EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
}

INSTANTIATE_TEST_SUITE_P(All, Museum, ::testing::ValuesIn(exhibits()), [](const auto& name) { return name.param; });

Json exhibit_named(const std::string& name) { return Json::parse(read_all(museum_folder() + '/' + name + ".json")); }

TEST(MuseumTable, HasARowForEachExhibitOverAllGroups) {
  const std::string readme = read_all(museum_folder() + "/README.md");
  std::map<std::string, int> groups;
  std::size_t rows = 0;
  for (const std::string& name : exhibits()) {
    const Json exhibit = exhibit_named(name);
    EXPECT_EQ(exhibit.at("name"), name) << "a file is called as its scenario";
    const std::string group = exhibit.at("museum").at("group");
    ++groups[group];
    EXPECT_NE(readme.find("| " + group + " | `" + name + "` | "), std::string::npos)
        << name << " is not in the table: seeksim museum --markdown writes it";
  }
  for (std::size_t at = readme.find("\n| "); at != std::string::npos; at = readme.find("\n| ", at + 1)) ++rows;
  EXPECT_EQ(rows, exhibits().size() + 1) << "with the table's head";
  for (const std::string& group : museum_groups()) EXPECT_GT(groups[group], 0) << group;
  EXPECT_GE(exhibits().size(), 80u);
}

// With SEEKSIM_MEND=1 in the environment the README's table is written again.
TEST(MuseumTable, IsWhatTheMuseumPrints) {
  const std::string path = museum_folder() + "/README.md";
  const std::string readme = read_all(path), head = "| group | exhibit | ";
  const Ran ran = seeksim({"museum", "--markdown"});
  ASSERT_EQ(ran.status, 0) << ran.out << ran.err;
  const std::string table = ran.out.substr(ran.out.find(head), ran.out.rfind("|\n") + 2 - ran.out.find(head));
  const std::size_t begin = readme.find(head), end = readme.find("\n\n", begin) + 1;
  EXPECT_EQ(readme.substr(begin, end - begin), table) << "SEEKSIM_MEND=1 in the environment writes it again.";
  if (std::getenv("SEEKSIM_MEND") != nullptr)
    std::ofstream(path) << readme.substr(0, begin) << table << readme.substr(end);
}

TEST(MuseumCurves, AreHeldAgainstEachOther) {
  EXPECT_EQ(compare_curves({2.0, 1.0}, {2.0, 1.0}).text, "no: the same bits");
  EXPECT_FALSE(compare_curves({2.0, 1.001}, {2.0, 1.0}).seen);
  EXPECT_EQ(compare_curves({2.0, 1.5}, {2.0, 1.0}).text, "yes: up to 50 % away");
  EXPECT_TRUE(compare_curves({2.0, "NaN"}, {2.0, 1.0}).seen);
  EXPECT_FALSE(compare_curves({2.0, "NaN"}, {2.0, "NaN"}).seen) << "what is in both shows no mistake";
  EXPECT_EQ(compare_curves({2.0}, {2.0, 1.0}).text, "it ends after 1 of 2 steps");
}

Json report(const std::vector<std::pair<std::string, bool>>& checks) {
  Json json = {{"loss", {2.0}}, {"sentence", "so it was"}, {"checks", Json::array()}};
  for (const auto& [name, ok] : checks) json["checks"].push_back({{"name", name}, {"ok", ok}});
  return json;
}

TEST(MuseumJudgement, WantsTheFirstRunRedAndTheSecondGreen) {
  const Json exhibit = exhibit_named("clip_by_max");
  const Json red = report({{"finished", true}, {"golden:bitwise", false}}), green = report({{"golden:bitwise", true}});
  const auto judged = [&](ExitStatus with, const Json& first, ExitStatus without) {
    return judge_exhibit(exhibit, with, first, without, green).problem;
  };
  EXPECT_EQ(judged(ExitStatus::as_expected, red, ExitStatus::as_expected), "");
  EXPECT_NE(judged(ExitStatus::check_failed, green, ExitStatus::as_expected), "") << "nothing caught it";
  EXPECT_NE(judged(ExitStatus::as_expected, green, ExitStatus::as_expected), "") << "it expects nothing";
  EXPECT_NE(judged(ExitStatus::as_expected, red, ExitStatus::check_failed), "") << "it is wrong by itself";
}

TEST(MuseumJudgement, NamesFirstWhatWasExpected) {
  const Json exhibit = exhibit_named("zero_grad_forgotten");
  const Json red = report({{"ranks_agree", false}, {"golden:bitwise", false}});
  const Shown shown = judge_exhibit(exhibit, ExitStatus::as_expected, red, ExitStatus::as_expected, red);
  EXPECT_EQ(shown.caught, (std::vector<std::string>{"golden:bitwise", "ranks_agree"}));
}

// What is taken away is the mistake and nothing else.
TEST(MuseumWithout, TakesAwayBugOrQuirkOrFaults) {
  const Json clean = without_the_mistake(exhibit_named("scaler_not_saved"));
  EXPECT_FALSE(clean.contains("bug"));
  EXPECT_TRUE(clean.contains("faults")) << "the crash is no mistake";
  EXPECT_FALSE(clean.contains("expect"));
  EXPECT_FALSE(without_the_mistake(exhibit_named("link_corrupts")).contains("faults"));
}

TEST(MuseumCommand, RefusesWhatIsNotThere) {
  const Ran ran = seeksim({"museum", "clip_by_mox"});
  EXPECT_EQ(ran.status, 2);
  EXPECT_NE(ran.err.find("clip_by_max"), std::string::npos) << ran.err;
}

}  // namespace
}  // namespace seeksim::harness
