// An exhibit is as it should be where the bad release is red, says what it has to say, and the good one is green.
#include "harness/releases/museum.h"

#include <gtest/gtest.h>

#include "tests/support/scenarios.h"

namespace seeksim::harness::releases {
namespace {

Exhibit exhibit() {
  Exhibit one;
  one.name = "x";
  one.group = "data";
  one.package = "p";
  one.bad = "1.0";
  one.good = "1.1";
  one.arguments = {"--asked"};
  return one;
}

AskRelease answers(Verdict bad, Verdict good) {
  return [=](const Exhibit& shown, const std::string& version, const std::vector<std::string>& arguments,
             const std::string&) {
    EXPECT_EQ(arguments, std::vector<std::string>{"--asked"});
    Answer answer;
    answer.verdict = version == shown.bad ? bad : good;
    answer.caught_by = "replicas_equal";
    answer.names = "step 4: head.weight";
    return answer;
  };
}

std::string problem(Exhibit shown, Verdict bad, Verdict good) {
  const harness::testing::TemporaryFolder folder;
  return show(shown, answers(bad, good), folder.path()).problem;
}

TEST(ReleaseMuseum, RedOnTheOneAndGreenOnTheOtherIsAsItShouldBe) {
  EXPECT_EQ(problem(exhibit(), Verdict::red, Verdict::green), "");
}

TEST(ReleaseMuseum, AnythingElseIsAProblemThatNamesTheRelease) {
  EXPECT_NE(problem(exhibit(), Verdict::green, Verdict::green).find("p 1.0 is not red but green"), std::string::npos);
  EXPECT_NE(problem(exhibit(), Verdict::red, Verdict::red).find("p 1.1 is not green but red"), std::string::npos);
  EXPECT_NE(problem(exhibit(), Verdict::none, Verdict::green).find("no verdict"), std::string::npos);
  EXPECT_NE(problem(exhibit(), Verdict::red, Verdict::none).find("no verdict"), std::string::npos);
}

TEST(ReleaseMuseum, AVerdictThatDoesNotSayWhatItHasToIsAProblem) {
  Exhibit shown = exhibit();
  shown.says = "step 4";
  EXPECT_EQ(problem(shown, Verdict::red, Verdict::green), "");
  shown.says = "step 5";
  EXPECT_NE(problem(shown, Verdict::red, Verdict::green).find("does not say"), std::string::npos);
}

TEST(ReleaseMuseum, PackagesThatCannotBeHadAreToldAndAreNoVerdict) {
  const AskRelease none = [](const Exhibit&, const std::string&, const std::vector<std::string>&,
                             const std::string&) -> Answer { throw CannotBeHad("no network"); };
  const ShownRelease shown = show(exhibit(), none, "nowhere");
  EXPECT_TRUE(shown.unavailable);
  EXPECT_EQ(shown.problem, "no network");
}

TEST(ReleaseMuseum, TheTableIsInTheOrderOfTheGroups) {
  ShownRelease data, normalisation;
  data.exhibit = exhibit();
  normalisation.exhibit = exhibit();
  normalisation.exhibit.group = "normalisation";
  normalisation.exhibit.name = "y";
  const std::string table = release_table({data, normalisation});
  EXPECT_LT(table.find("`y`"), table.find("`x`")) << table;
}

}  // namespace
}  // namespace seeksim::harness::releases
