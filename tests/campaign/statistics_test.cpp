// How long runs last: classes of lengths, what the end of a campaign cut off, and the curve of a known distribution.
#include "harness/campaign/statistics.h"

#include <gtest/gtest.h>

#include <cmath>

#include <nlohmann/json.hpp>

#include "tests/campaign/studies.h"

namespace seeksim::harness::campaign {
namespace {

constexpr runtime::TimeNs kMinute = 60'000'000'000;

TEST(RunLengths, ALengthIsInTheClassThatEndsBehindIt) {
  EXPECT_EQ(RunLengths::edge(0), kMinute);
  EXPECT_EQ(RunLengths::edge(2), 2 * kMinute);
  RunLengths runs;
  runs.ended(kMinute);
  runs.ended(kMinute + 1);
  runs.went_on(runtime::kForever);
  EXPECT_EQ(runs.ended()[0], 1);
  EXPECT_EQ(runs.ended()[1], 1);
  EXPECT_EQ(runs.went_on().back(), 1);
  EXPECT_EQ(RunLengths::from({1, 1}, {}).ended(), runs.ended());
}

TEST(RunLengths, WithoutCutRunsTheCurveIsTheShareThatLasts) {
  RunLengths runs;
  for (int i = 0; i < 3; ++i) runs.ended(kMinute / 2);
  runs.ended(2 * kMinute);
  EXPECT_EQ(runs.survival(), (std::vector<double>{0.25, 0.25, 0.0}));
  EXPECT_TRUE(RunLengths().survival().empty());
}

// Two end in the first class, two are cut off in the second, one of two ends in the third, the other in the fifth.
TEST(RunLengths, RunsThatWereCutOffCountAsLongAsTheyWereSeen) {
  RunLengths runs;
  runs.ended(kMinute);
  runs.ended(kMinute);
  runs.went_on(kMinute * 13 / 10);
  runs.went_on(kMinute * 13 / 10);
  runs.ended(2 * kMinute);
  runs.ended(3 * kMinute);
  const std::vector<double> curve = runs.survival();
  ASSERT_EQ(curve.size(), 5u);
  EXPECT_DOUBLE_EQ(curve[0], 4.0 / 6);
  EXPECT_DOUBLE_EQ(curve[1], 4.0 / 6);
  EXPECT_DOUBLE_EQ(curve[2], 4.0 / 6 / 2);
  EXPECT_DOUBLE_EQ(curve[3], 4.0 / 6 / 2);
  EXPECT_DOUBLE_EQ(curve[4], 0);
  RunLengths twice;
  twice.add(runs);
  twice.add(runs);
  EXPECT_EQ(twice.survival(), curve);
}

// Failures without memory, one each ten hours, seen for twelve hours each.
TEST(RunLengths, TheCurveIsTheOneOfTheDistributionThoughManyAreCutOff) {
  RunLengths runs;
  constexpr int kRuns = 20'000;
  for (int i = 0; i < kRuns; ++i) {
    const double hours = -10 * std::log(1 - (i + 0.5) / kRuns);
    if (hours < 12)
      runs.ended(runtime::TimeNs(hours * 3600e9));
    else
      runs.went_on(runtime::TimeNs(12 * 3600e9));
  }
  const std::vector<double> curve = runs.survival();
  for (std::size_t i = 0; i + 1 < curve.size(); ++i) {
    const double hours = double(RunLengths::edge(i)) / 3600e9;
    if (hours < 12) {
      EXPECT_NEAR(curve[i], std::exp(-hours / 10), 0.002) << hours;
    }
  }
}

// Up from 4 s to 100 s, then down for 35 s, and up to the end at 1000 s; without a failure up from 4 s to the end.
TEST(RunLengths, OfACampaignAreBetweenItsStops) {
  Study study = testing::by_hand();
  EXPECT_EQ(testing::run(study).runs, RunLengths::from({}, {0, 0, 0, 0, 0, 0, 0, 0, 0, 1}));
  study.incidents = {testing::incident(100, 3)};
  const CampaignResult result = testing::run(study);
  EXPECT_EQ(result.runs, RunLengths::from({0, 0, 1}, {0, 0, 0, 0, 0, 0, 0, 0, 1}));
  EXPECT_EQ(campaign_from(to_json(result)).runs, result.runs);
}

}  // namespace
}  // namespace seeksim::harness::campaign
