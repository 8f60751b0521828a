// run --check-only: what is wrong with scenarios, without running one.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/paths.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

TEST(CheckOnly, AllScenariosOfTheProjectCanBeRun) {
  const Ran ran = seeksim({"run", "--check-only", paths::source_dir() + "/scenarios/faults"});
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_NE(ran.out.find("scenarios can be run"), std::string::npos) << ran.out;
  EXPECT_EQ(ran.out.find("PASS"), std::string::npos) << "nothing runs";
}

TEST(CheckOnly, EachProblemOfEachFileIsNamed) {
  TemporaryFolder folder;
  const std::string good = folder.write("good.json", small_text());
  const std::string bad = folder.write("bad.json", R"({ "name": "bad", "stepz": 3, "world": { "nodes": "two" } })");
  const std::string worse = folder.write("worse.json", "{ \"name\": ");
  const Ran ran = seeksim({"run", "--check-only", good, bad, worse});
  EXPECT_EQ(ran.status, 2);
  EXPECT_NE(ran.out.find("1 of 3 scenarios can be run"), std::string::npos) << ran.out;
  for (const char* words : {"stepz", "nodes", "worse.json"})
    EXPECT_NE(ran.err.find(words), std::string::npos) << words << "\n" << ran.err;
  EXPECT_FALSE(std::filesystem::exists(folder.file("runs")));
}

}  // namespace
}  // namespace seeksim::harness
