// Tables by release: what a file may say, and what a reader sees of cells that differ, fail, or are red.
#include "harness/releases/by_release.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "harness/input/problem.h"

namespace seeksim::harness::releases {
namespace {

constexpr const char* kFile = R"({
  "table": "layouts.table.json", "only": ["optimizer=adamw"],
  "packages": [ { "package": "deepspeed", "last": 8, "with": ["torch==2.15.0"], "only": ["np=2"] },
                { "package": "torch", "versions": ["2.7.0", "2.15.0"] } ] })";

std::vector<std::string> problems_of(const std::string& text) {
  std::vector<std::string> all;
  try {
    read_by_release(text, "releases.json");
  } catch (const BadInput& bad) {
    for (const Problem& one : bad.problems()) all.push_back(one.path + ": " + one.what);
  }
  return all;
}

bool has(const std::vector<std::string>& all, const std::string& words) {
  return std::any_of(all.begin(), all.end(), [&](const auto& one) { return one.find(words) != std::string::npos; });
}

Json cell(const std::string& layout, const std::string& clip, const std::string& state, const std::string& grade,
          Json more = Json::object()) {
  Json one = {{"cell", {{"layout", layout}, {"clip", clip}, {"np", "2"}}},
              {"state", state},
              {"expected", "reassociated"},
              {"why", clip == "0" ? "" : "The norm is summed over other pieces."},
              {"problem", ""}};
  if (!grade.empty()) one["grade"] = grade;
  one.update(more);
  return one;
}

ReleaseColumn column(const std::string& version, const Json& cells) { return {version, {{"cells", cells}}, ""}; }

TEST(ByRelease, AFileSaysWhichReleasesAndWhatOfTheTable) {
  const ByRelease what = read_by_release(kFile, "examples/pytorch/releases.json");
  EXPECT_EQ(what.table, "examples/pytorch/layouts.table.json");
  EXPECT_EQ(what.only, std::vector<std::string>{"optimizer=adamw"});
  ASSERT_EQ(what.packages.size(), 2u);
  EXPECT_EQ(what.packages[0].last, 8);
  EXPECT_EQ(what.packages[0].pins, std::vector<std::string>{"torch==2.15.0"});
  EXPECT_EQ(what.packages[1].versions, (std::vector<std::string>{"2.7.0", "2.15.0"}));
}

TEST(ByRelease, AllThatIsWrongInAFileIsToldAtOnce) {
  const std::vector<std::string> shape = problems_of(
      R"({"only": "np=2", "packages": [{"package": "torch", "onyl": []}, {"last": 8}, {"package": "torch", "last": 0}]})");
  for (const char* path : {"table", "only", "packages.0", "packages.1", "packages.2"})
    EXPECT_TRUE(has(shape, path)) << path;
  EXPECT_TRUE(has(shape, "onyl"));
  const std::vector<std::string> sense = problems_of(
      R"({"table": "t.json", "packages": [{"package": "torch"}, {"package": "deepspeed", "last": 2, "versions": ["1"]},
          {"package": "torch", "last": 2}]})");
  for (const char* words : {"packages.0: which releases?", "packages.1: which releases?", "torch has a row already"})
    EXPECT_TRUE(has(sense, words)) << words;
  EXPECT_TRUE(has(problems_of(R"({"table": "t.json", "packages": []})"), "there are no packages"));
  EXPECT_FALSE(problems_of("[1]").empty());
}

TEST(ByRelease, EachCellIsARowAndEachReleaseAColumn) {
  const std::string text = by_release_text(
      "deepspeed",
      {column("0.19.7", Json::array({cell("zero1", "0", "as_expected", "bits"),
                                     cell("zero1", "1", "as_expected", "reassociated", {{"of_allowed", 0.31}})})),
       column("0.19.8", Json::array({cell("zero1", "0", "red", "different",
                                          {{"weight_distance", 0.02}, {"first", "step 1: weight a; the optimizer"}}),
                                     cell("zero1", "1", "red", "", {{"problem", "it ended by signal 6"}})})),
       {"0.19.9", nullptr, "there is no such release"}});
  EXPECT_EQ(text,
            "| clip | deepspeed 0.19.7 | deepspeed 0.19.8 | deepspeed 0.19.9 | why |\n"
            "| --- | --- | --- | --- | --- |\n"
            "| 0 | bits | **2.0e-02 away** | not had |  |\n"
            "| 1 | 0.31 | **failed** | not had | 1 |\n"
            "\n1. The norm is summed over other pieces.\n"
            "\n- clip 0, red in 0.19.8: step 1: weight a; the optimizer\n"
            "- clip 1, red in 0.19.8: it ended by signal 6\n"
            "\ndeepspeed 0.19.9: there is no such release\n");
}

TEST(ByRelease, ReleasesThatAreAlikeStandInOneColumn) {
  const Json green = Json::array({cell("zero1", "0", "as_expected", "bits")});
  const Json red = Json::array({cell("zero1", "0", "red", "different", {{"of_allowed", 2.5}, {"first", "step 1: a"}})});
  EXPECT_EQ(by_release_text("torch", {column("2.6", red), column("2.7", green), column("2.8", green),
                                      column("2.9", red), column("2.10", red)}),
            "| torch 2.6 | torch 2.7 to 2.8 | torch 2.9 to 2.10 | why |\n"
            "| --- | --- | --- | --- |\n"
            "| **2.50** | bits | **2.50** |  |\n"
            "\n- red in 2.6, 2.9 to 2.10: step 1: a\n");
}

}  // namespace
}  // namespace seeksim::harness::releases
