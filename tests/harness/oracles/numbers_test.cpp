// What a run reports about its numbers: the birth of a value that is not finite and the range log in the report, the
// loss scale of each step, what rounding loses; and that looking changes no bit.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/paths.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

class Numbers : public ::testing::Test {
 protected:
  Json report_of(const std::string& scenario, std::vector<std::string> arguments, int status = 0) {
    const std::string file = folder.file("report.json");
    const std::string path = seeksim::paths::source_dir() + "/scenarios/" + scenario + ".json";
    arguments.insert(arguments.begin(), {"run", path, "--report", file});
    const Ran ran = seeksim(arguments);
    EXPECT_EQ(ran.status, status) << ran.out << ran.err;
    return Json::parse(read_all(file));
  }
  TemporaryFolder folder;
};

TEST_F(Numbers, ABirthIsInTheReportWithWhatWasRead) {
  const Json born = report_of("numbers/inf_in_fp16_overflow", {})["born"];
  EXPECT_EQ(born["rank"], 1);
  EXPECT_EQ(born["step"], 4);
  EXPECT_EQ(born["layer"], 0);
  EXPECT_EQ(born["tensor"], "gelu");
  EXPECT_EQ(born["element"], 5);
  ASSERT_EQ(born["operands"].size(), 2u);
  const Json &read = born["operands"][0], &written = born["operands"][1];
  EXPECT_FALSE(read["written"]);
  EXPECT_EQ(read["infinities"].get<int>() + read["nans"].get<int>(), 0) << "its inputs were fine";
  EXPECT_EQ(read["type"], "fp16");
  EXPECT_TRUE(written["written"]);
  EXPECT_EQ(written["infinities"], 1);
}

TEST_F(Numbers, NothingIsBornInACalmRun) {
  EXPECT_TRUE(report_of("baseline", {"--set", "provenance=true"})["born"].is_null());
}

TEST_F(Numbers, TheRangeLogHoldsWhatEveryOperationOfTheStepWrote) {
  const Json ranges = report_of("numbers/inf_in_fp16_overflow", {"--set", "range_log=4"})["ranges"];
  std::size_t not_finite = 0, forward = 0;
  for (const Json& one : ranges) {
    EXPECT_EQ(one["step"], 4);
    EXPECT_TRUE(one["written"]);
    not_finite += one["infinities"].get<int>() + one["nans"].get<int>() > 0;
    forward += one["phase"] == "forward";
  }
  EXPECT_GT(not_finite, 0u);
  EXPECT_LT(not_finite, ranges.size());
  EXPECT_GT(forward, 50u);
}

TEST_F(Numbers, LookingChangesNoBit) {
  const Json plain = report_of("baseline", {});
  const Json watched = report_of("baseline", {"--set", "provenance=true", "--set", "range_log=2"});
  EXPECT_EQ(plain["params_digest"], watched["params_digest"]);
  EXPECT_EQ(plain["loss"], watched["loss"]);
}

TEST_F(Numbers, WithoutMastersLostUpdatesAreCountedByStep) {
  const Json report = report_of("numbers/bf16_stagnation", {});
  ASSERT_EQ(report["stagnation"].size(), 8u);
  for (const Json& step : report["stagnation"]) {
    EXPECT_GT(step["lost"].get<std::int64_t>(), 0);
    EXPECT_LE(step["lost"], step["changes"]);
  }
  EXPECT_FALSE(report_of("numbers/bf16_tracks_fp32", {}).contains("stagnation")) << "masters lose nothing";
}

TEST_F(Numbers, ASkippedStepMovesTheScaleAndNothingElse) {
  const Json report = report_of("numbers/inf_in_fp16_overflow", {});
  EXPECT_EQ(report["skipped"], Json({false, false, false, false, true, false, true, false}));
  EXPECT_EQ(report["loss_scale"][4], 1024);
  EXPECT_EQ(report["loss_scale"][5], 512);
}

}  // namespace
}  // namespace seeksim::harness
