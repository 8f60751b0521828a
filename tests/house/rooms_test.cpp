// Rooms, floors and sizes, checked on every source of the tree; and each rule seen to fail on a planted violation.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "runtime/rules/bugs.h"
#include "tests/house/floors.h"
#include "tests/house/lexer.h"
#include "tests/house/sizes.h"
#include "tests/house/tree.h"

namespace seeksim::house {
namespace {

std::vector<std::pair<std::string, std::string>> sources_of_the_tree() {
  std::vector<std::pair<std::string, std::string>> sources;
  for (File& file : files_of_the_tree()) {
    if (is_source(file.path)) sources.emplace_back(std::move(file.path), std::move(file.text));
  }
  return sources;
}

TEST(Rooms, EveryIncludePointsToALowerFloor) {
  std::vector<Violation> found;
  int in_rooms = 0;
  for (const auto& [path, text] : sources_of_the_tree()) {
    in_rooms += room_of(path).empty() ? 0 : 1;
    for (Violation& violation : check_floors(path, text)) found.push_back(std::move(violation));
  }
  EXPECT_GT(in_rooms, 300);
  EXPECT_TRUE(found.empty()) << listing(found);
}

TEST(Rooms, NoUnitsOfARoomIncludeEachOtherInACircle) {
  const std::vector<Violation> found = check_circles(sources_of_the_tree());
  EXPECT_TRUE(found.empty()) << listing(found);
}

TEST(Rooms, NoneIsTooLarge) {
  std::vector<std::string> paths;
  for (const auto& [path, text] : sources_of_the_tree()) paths.push_back(path);
  const std::vector<Violation> found = check_room_sizes(paths);
  EXPECT_TRUE(found.empty()) << listing(found);
}

TEST(Sizes, FilesFunctionsAndClassesKeepTheirLimits) {
  std::vector<Violation> found;
  for (const auto& [path, text] : sources_of_the_tree()) {
    for (Violation& violation : check_sizes(path, text)) found.push_back(std::move(violation));
  }
  EXPECT_TRUE(found.empty()) << listing(found);
}

// The body of Trainer::train_step; empty where there is none.
std::string page_of_the_step(const std::string& text) {
  const std::size_t begin = text.find("void Trainer::train_step() {");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find("\n}", begin) - begin);
}

std::vector<std::string> bugs_named(const std::string& page) {
  std::vector<std::string> named;
  for (const Token& token : lex(page).tokens) {
    if (token.text == "Bug" || token.text == "bug" || token.text == "plants") named.push_back(token.text);
  }
  return named;
}

TEST(TrainingStep, HasNoPlantedBugOnItsPage) {
  std::string page;
  for (const auto& [path, text] : sources_of_the_tree()) page += page_of_the_step(text);
  ASSERT_FALSE(page.empty()) << "Trainer::train_step has another name now: change this test";
  EXPECT_EQ(bugs_named(page), std::vector<std::string>());
}

TEST(TrainingStep, APlantedBugOnItsPageIsSeen) {
  EXPECT_EQ(
      bugs_named(page_of_the_step("void Trainer::train_step() {\n  if (plan_.bug.is(Bug::x)) return;\n}\n")).size(),
      2U);
}

// ---- planted violations --------------------------------------------------------------------------------------------

struct PlantedInclude {
  const char* path;
  const char* text;
  bool is_wrong;
};

class PlantedFloors : public testing::TestWithParam<PlantedInclude> {};

TEST_P(PlantedFloors, AreJudgedRightly) {
  const PlantedInclude& planted = GetParam();
  EXPECT_EQ(!check_floors(planted.path, planted.text).empty(), planted.is_wrong) << planted.path << ' ' << planted.text;
}

INSTANTIATE_TEST_SUITE_P(
    Includes, PlantedFloors,
    testing::Values(
        // down, inside the room, and into another wing
        PlantedInclude{"runtime/trainer/a.cpp", "#include \"runtime/zero/b.h\"", false},
        PlantedInclude{"runtime/trainer/a.cpp", "#include \"runtime/trainer/b.h\"", false},
        PlantedInclude{"harness/run/a.cpp", "#include \"runtime/recovery/train.h\"", false},
        PlantedInclude{"harness/loading/a.cpp", "#include \"harness/loading/deepspeed/b.h\"", false},
        PlantedInclude{"runtime/backend/real_rank.h", "#include \"runtime/backend/machine/b.h\"", false},
        PlantedInclude{"runtime/backend/wire/a.cpp", "#include \"runtime/trainer/b.h\"", false},  // another rule's
        // up
        PlantedInclude{"runtime/zero/a.cpp", "#include \"runtime/trainer/b.h\"", true},
        PlantedInclude{"harness/input/a.h", "#include \"harness/scenario/b.h\"", true},
        PlantedInclude{"harness/loading/deepspeed/a.h", "#include \"harness/loading/b.h\"", true},
        PlantedInclude{"harness/run/a.cpp", "\n#include \"harness/explain/b.h\"", true},
        PlantedInclude{"runtime/backend/wire/a.cpp", "#include \"runtime/backend/messages/b.h\"", true},
        PlantedInclude{"harness/run/a.cpp", "#include \"harness/seeksim.h\"", true},
        // sideways
        PlantedInclude{"runtime/detect/a.cpp", "#include \"runtime/model/b.h\"", true},
        PlantedInclude{"harness/search/a.cpp", "#include \"harness/doctor/b.h\"", true},
        // outside every room
        PlantedInclude{"harness/a.cpp", "", true}, PlantedInclude{"harness/attic/a.cpp", "", true},
        PlantedInclude{"runtime/a.h", "", true},
        PlantedInclude{"harness/run/a.cpp", "#include \"harness/attic/b.h\"", true}));

TEST(PlantedRooms, AUnitTooManyIsSeen) {
  std::vector<std::string> paths;
  for (int i = 0; i < 20; ++i) {
    paths.push_back("harness/run/u" + std::to_string(i) + ".h");
    paths.push_back("harness/run/u" + std::to_string(i) + ".cpp");
  }
  EXPECT_TRUE(check_room_sizes(paths).empty());
  paths.push_back("harness/run/one_more.cpp");
  EXPECT_EQ(check_room_sizes(paths).size(), 1U);
}

TEST(PlantedRooms, ACircleThroughSourcesIsSeen) {
  const std::pair<std::string, std::string> a = {"harness/run/a.cpp", "#include \"harness/run/b.h\""};
  const std::pair<std::string, std::string> b = {"harness/run/b.h", "#include \"harness/run/c.h\""};
  EXPECT_TRUE(check_circles({a, b}).empty());
  EXPECT_EQ(check_circles({a, b, {"harness/run/c.cpp", "#include \"harness/run/a.h\""}}).size(), 1U);
}

std::string lines(int count, const std::string& line) {
  std::string text;
  for (int i = 0; i < count; ++i) text += line + "\n";
  return text;
}

TEST(PlantedSizes, ALongFileIsSeen) {
  EXPECT_TRUE(check_sizes("sim/a.cpp", lines(450, "int x;")).empty());
  EXPECT_EQ(check_sizes("sim/a.cpp", lines(451, "int x;")).size(), 1U);
  EXPECT_EQ(check_sizes("tests/sim/a.cpp", lines(601, "int x;")).size(), 1U);
  EXPECT_TRUE(check_sizes("sim/a.cpp", lines(300, "int x;") + "Row rows[] = {\n" + lines(300, "{1},") + "};").empty());
}

TEST(PlantedSizes, ALongFunctionIsSeen) {
  const std::string body = lines(68, "  f();");
  EXPECT_TRUE(check_sizes("sim/a.cpp", "void A::g() {\n" + body + "}\n").empty());
  EXPECT_EQ(check_sizes("sim/a.cpp", "void A::g() const {\n  f();\n" + body + "}\n").size(), 1U);
  EXPECT_EQ(check_sizes("sim/a.cpp", "A::A(int x) : x_{x} {\n  f();\n" + body + "}\n").size(), 1U);
  const std::string table = "  const Row rows[] = {\n" + lines(90, "      {1, 2},") + "  };\n";
  EXPECT_TRUE(check_sizes("sim/a.cpp", "int rows() {\n" + table + "  return 0;\n}\n").empty());
}

TEST(PlantedSizes, ALongStepIsSeen) {
  const std::string body = lines(49, "  f();");
  EXPECT_TRUE(check_sizes("runtime/trainer/a.cpp", "void Trainer::other() {\n" + body + "}\n").empty());
  EXPECT_EQ(check_sizes("runtime/trainer/a.cpp", "void Trainer::train_step() {\n" + body + "}\n").size(), 1U);
}

TEST(PlantedSizes, AClassWithTooManyMembersIsSeen) {
  const std::string members = lines(24, "  std::map<int, int> m = {{1, 2}};");
  const auto judged = [&](const std::string& more) {
    return check_sizes("sim/a.h", "struct A : B {\n" + members + more + "};\n").size();
  };
  EXPECT_EQ(judged("  int one_more;\n"), 0U);
  EXPECT_EQ(judged("  int f(int x, int y) const { return x; }\n  static int s;\n  using T = int;\n  enum { e };\n"),
            0U);
  EXPECT_EQ(judged("  int two, more = 0;\n"), 1U);
  EXPECT_EQ(judged("  std::function<void(int, int)> call;\n  int x{0};\n"), 1U);
}

}  // namespace
}  // namespace seeksim::house
