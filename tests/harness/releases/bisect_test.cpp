// The first red release, by halving; releases that cannot be judged are stepped over.
#include "harness/releases/bisect.h"

#include <gtest/gtest.h>

#include <set>

#include "harness/input/problem.h"

namespace seeksim::harness::releases {
namespace {

const std::vector<std::string> kReleases = {"1", "2", "3", "4", "5", "6", "7", "8", "9"};

// Releases from `first_red` on are red; those of `lost` cannot be judged.
struct World {
  int first_red;
  std::set<std::string> lost;
  int asked = 0;
  Narrowed narrowed() {
    return narrow(kReleases, [&](const std::string& version) {
      ++asked;
      if (lost.contains(version)) return Verdict::none;
      return std::stoi(version) >= first_red ? Verdict::red : Verdict::green;
    });
  }
};

TEST(ReleaseBisect, NamesEachFirstRedReleaseInAFewTries) {
  for (int first = 2; first <= 9; ++first) {
    World world{first, {}};
    const Narrowed found = world.narrowed();
    EXPECT_EQ(found.first_bad, std::to_string(first));
    EXPECT_EQ(found.last_good, std::to_string(first - 1));
    EXPECT_TRUE(found.skipped.empty());
    EXPECT_LE(world.asked, 3);
  }
}

TEST(ReleaseBisect, StepsOverWhatCannotBeJudgedAndSaysWhatThatLeavesOpen) {
  World world{7, {"5", "4"}};
  EXPECT_EQ(world.narrowed().first_bad, "7");
  EXPECT_TRUE(world.narrowed().skipped.empty());
  World hidden{5, {"5", "4"}};
  const Narrowed found = hidden.narrowed();
  EXPECT_EQ(found.last_good, "3");
  EXPECT_EQ(found.first_bad, "6");
  EXPECT_EQ(found.skipped, (std::vector<std::string>{"4", "5"}));
}

TEST(ReleaseBisect, NothingIsAskedBetweenNeighbours) {
  const Narrowed found = narrow({"1", "2"}, [](const std::string&) {
    ADD_FAILURE() << "it was asked";
    return Verdict::none;
  });
  EXPECT_EQ(found.first_bad, "2");
}

TEST(ReleaseBisect, TheReleasesBetweenAreThoseOfTheIndexBothEndsIncluded) {
  EXPECT_EQ(releases_between(kReleases, "p", "3", "5"), (std::vector<std::string>{"3", "4", "5"}));
  EXPECT_THROW(releases_between(kReleases, "p", "5", "3"), BadInput);
  EXPECT_THROW(releases_between(kReleases, "p", "3", "3"), BadInput);
  EXPECT_THROW(releases_between(kReleases, "p", "3", "55"), BadInput);
}

TEST(ReleaseBisect, WithoutAScriptOrAnEndItIsBadInput) {
  const Print quiet = [](std::string_view) {};
  BisectArguments arguments;
  EXPECT_THROW(bisect(arguments, "seeksim", quiet), BadInput);
  arguments.command = {"train.py"};
  arguments.package = "p";
  EXPECT_THROW(bisect(arguments, "seeksim", quiet), BadInput);
}

}  // namespace
}  // namespace seeksim::harness::releases
