// Exhibits of released bugs: what a file may say, and what each file in examples/pytorch/museum/ does say.
#include "harness/releases/exhibit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "harness/input/problem.h"

namespace seeksim::harness::releases {
namespace {

using nlohmann::json;

json valid() {
  return json{{"group", "data"},    {"symptom", "s"}, {"cause", "c"},  {"fix", "f"},      {"source", "x #1"},
              {"package", "torch"}, {"bad", "2.0"},   {"good", "2.1"}, {"script", "a.py"}};
}

std::string problems(const json& file) {
  try {
    read_exhibit(file.dump(), "folder/name.json");
    return "";
  } catch (const BadInput& bad) {
    return bad.what();
  }
}

TEST(ReleaseExhibit, IsNamedByItsFile) {
  const Exhibit read = read_exhibit(valid().dump(), "folder/name.json");
  EXPECT_EQ(read.name, "name");
  EXPECT_EQ(read.folder, "folder");
  EXPECT_FALSE(read.open());
  EXPECT_EQ(pins_with(read, "2.0"), std::vector<std::string>{"torch==2.0"});
}

TEST(ReleaseExhibit, AnUnknownKeyAMissingOneAndAWrongGroupAreRefusedTogether) {
  json file = valid();
  file.erase("cause");
  file["colour"] = "red";
  const std::string said = problems(file);
  EXPECT_NE(said.find("cause"), std::string::npos) << said;
  EXPECT_NE(said.find("colour"), std::string::npos) << said;
  file = valid();
  file["group"] = "dada";
  EXPECT_NE(problems(file).find("data"), std::string::npos) << problems(file);
}

TEST(ReleaseExhibit, HasEitherASecondRunOrACheck) {
  json file = valid();
  file["check"] = "replicas_equal";
  EXPECT_EQ(problems(file), "");
  file["against"] = json::array({"--x"});
  EXPECT_NE(problems(file).find("either"), std::string::npos);
}

TEST(ReleaseExhibit, AnOpenBugHasAWayRoundIt) {
  json file = valid();
  file["good"] = "2.0";
  EXPECT_NE(problems(file).find("way round"), std::string::npos);
  file["way_round"] = json::array({"--plain"});
  EXPECT_EQ(problems(file), "");
  EXPECT_EQ(read_exhibit(file.dump(), "n.json").good_arguments(), std::vector<std::string>{"--plain"});
}

TEST(ReleaseExhibit, AScriptThatFailsHasToSayWhy) {
  json file = valid();
  file["check"] = "finished";
  EXPECT_NE(problems(file).find("many reasons"), std::string::npos);
}

TEST(ReleaseExhibit, EveryFileOfTheMuseumLoadsAndItsScriptIsThere) {
  const std::vector<Exhibit> all = exhibits({});
  ASSERT_FALSE(all.empty());
  for (const Exhibit& one : all) EXPECT_TRUE(std::filesystem::exists(one.folder + '/' + one.script)) << one.name;
  EXPECT_LE(std::count_if(all.begin(), all.end(), [](const Exhibit& one) { return one.open(); }), 8);
}

TEST(ReleaseExhibit, ANameThatThereIsNotIsRefusedWithANearOne) {
  const std::string name = exhibits({}).front().name;
  try {
    exhibits({name + "x"});
    ADD_FAILURE() << "it was accepted";
  } catch (const BadInput& bad) {
    EXPECT_NE(std::string(bad.what()).find(name), std::string::npos) << bad.what();
  }
}

}  // namespace
}  // namespace seeksim::harness::releases
