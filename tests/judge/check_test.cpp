// The check itself: green, red for a mistake that run and golden share, red for a run that is not its golden, and red
// where there was nothing to look at.
#include <gtest/gtest.h>

#include "harness/run/side_runs.h"
#include "harness/simulate/simulate.h"
#include "harness/verdict/checks.h"
#include "tests/judge/configurations.h"

namespace seeksim::harness {
namespace {

using testing::configuration;

CheckResult judged(const Scenario& scenario, const ReferenceVerdict* verdict) {
  const RunRecord run = Simulation(scenario, {}).run();
  Evidence evidence{scenario, run, nullptr, std::nullopt, {}};
  evidence.reference = verdict;
  CheckSpec check;
  check.name = "reference";
  return judge(check, evidence);
}

TEST(ReferenceCheck, IsGreenForARightRunOfTwoRanks) {
  const Scenario scenario = configuration("gpt2");
  const ReferenceVerdict verdict = reference_run(scenario, Judging::whole);
  const CheckResult result = judged(scenario, &verdict);
  EXPECT_TRUE(result.ok) << result.detail;
  EXPECT_NE(result.detail.find("6 steps"), std::string::npos) << result.detail;
}

TEST(ReferenceCheck, IsRedForAMistakeThatRunAndGoldenShareAndNamesIt) {
  const Scenario scenario = configuration("gpt2", {"bug=definition:decay_on_all"});
  const ReferenceVerdict verdict = reference_run(scenario, Judging::whole);
  const CheckResult result = judged(scenario, &verdict);
  EXPECT_FALSE(result.ok);
  EXPECT_TRUE(result.looked);
  EXPECT_EQ(result.detail.find("step 0: weight of h.0.ln_1.weight[0] is "), 0U) << result.detail;
}

TEST(ReferenceCheck, IsRedForARunThatIsNotItsGolden) {
  const Scenario right = configuration("gpt2"), wrong = configuration("gpt2", {"bug=tied_added_twice"});
  const ReferenceVerdict verdict = reference_run(right, Judging::whole);
  const CheckResult result = judged(wrong, &verdict);
  EXPECT_FALSE(result.ok);
  EXPECT_NE(result.detail.find("as the reference has it, but "), std::string::npos) << result.detail;
}

TEST(ReferenceCheck, IsRedWhereThereWasNothingToLookAt) {
  const Scenario scenario = configuration("gpt2");
  EXPECT_FALSE(judged(scenario, nullptr).looked);
  ReferenceVerdict verdict;
  EXPECT_FALSE(judged(scenario, &verdict).looked) << "no step was judged";
  verdict.unknown = "the reference knows no such model";
  EXPECT_FALSE(judged(scenario, &verdict).looked);
  verdict = reference_run(scenario, Judging::whole);
  verdict.tight = verdict.values / 2;
  EXPECT_FALSE(judged(scenario, &verdict).looked) << "half of the bounds say nothing";
}

TEST(ReferenceCheck, TakesEndsAndNothingElse) {
  CheckSpec check;
  EXPECT_EQ(read_check(Json("reference"), 2, check).what, "");
  EXPECT_EQ(read_check(Json("reference:ends"), 2, check).what, "");
  EXPECT_NE(read_check(Json("reference:bitwise"), 2, check).what, "");
}

}  // namespace
}  // namespace seeksim::harness
