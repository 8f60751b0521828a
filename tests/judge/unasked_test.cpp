// A golden that is made for a run is judged by the reference, though nobody asks for it.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "harness/oracles/reference_steps.h"
#include "harness/record/golden.h"
#include "harness/run/one_run.h"
#include "harness/scenario/variants.h"
#include "harness/simulate/simulate.h"
#include "harness/verdict/checks.h"
#include "runtime/rules/mutants.h"
#include "tests/judge/configurations.h"

namespace seeksim::harness {
namespace {

using testing::configuration;

Golden made(const Scenario& scenario) {
  return run_golden(scenario, golden_key(one_rank(scenario).train.definition), 0, false);
}

// The row of a run that is judged beside this golden; empty name: there is none.
CheckResult row(const Scenario& scenario, const Golden& golden) {
  const RunRecord run = Simulation(scenario, {}).run();
  const Evidence evidence{scenario, run, &golden, std::nullopt, {}};
  for (const CheckResult& check : judge(evidence).checks) {
    if (check.name == "reference") return check;
  }
  return {};
}

TEST(Unasked, AGoldenThatIsMadeIsJudgedAtItsEnds) {
  const Scenario scenario = configuration("gpt2");
  const Golden golden = made(scenario);
  ASSERT_NE(golden.judged, nullptr);
  EXPECT_EQ(golden.judged->steps, (std::vector<std::int64_t>{0, 1, 5}));
  EXPECT_TRUE(golden.judged->passes.empty()) << "six steps do not pay for one pass";
  EXPECT_TRUE(golden.judged->differences.empty()) << contradiction(*golden.judged);
  const CheckResult result = row(scenario, golden);
  EXPECT_TRUE(result.ok) << result.detail;
  EXPECT_NE(result.detail.find("steps 0, 1, 5"), std::string::npos) << result.detail;
}

TEST(Unasked, ALongerRunPaysForOnePassAndALongOneForThree) {
  EXPECT_EQ(made(configuration("gpt2", {"steps=12"})).judged->passes, (std::vector<std::int64_t>{11}));
  const Golden golden = made(configuration("gpt2", {"steps=36"}));
  ASSERT_NE(golden.judged, nullptr);
  EXPECT_EQ(golden.judged->passes, (std::vector<std::int64_t>{0, 1, 35}));
}

TEST(Unasked, AMistakeThatRunAndGoldenShareIsRed) {
  const Scenario scenario = configuration("gpt2", {"bug=definition:decay_on_all"});
  const CheckResult result = row(scenario, made(scenario));
  EXPECT_FALSE(result.ok);
  EXPECT_TRUE(result.looked);
  EXPECT_EQ(result.detail.find("the golden is wrong: step 0: weight of h.0.ln_1.weight[0] is "), 0U) << result.detail;
}

TEST(Unasked, NothingIsSaidWhereTheReferenceKnowsNoSuchTrainingOrWasAskedAnyway) {
  const Scenario unknown = configuration("gpt2", {"model.logit_scale=true"});
  EXPECT_EQ(made(unknown).judged, nullptr);
  EXPECT_EQ(row(unknown, made(unknown)).name, "");
  EXPECT_EQ(made(configuration("gpt2", {R"(checks=["reference"])"})).judged, nullptr) << "it has a run of its own";
}

TEST(Unasked, MostMistakesOfDefinitionAreSeenInALongerRun) {
  std::size_t seen = 0, all = 0;
  std::string green;
  for (const runtime::MutantInfo& mutant : runtime::mutant_catalogue()) {
    const Golden golden =
        made(configuration(std::string(mutant.shows), {"bug=definition:" + std::string(mutant.name), "steps=24"}));
    ASSERT_NE(golden.judged, nullptr) << mutant.name;
    ++all;
    if (golden.judged->differences.empty())
      green += ' ' + std::string(mutant.name);
    else
      ++seen;
  }
  RecordProperty("seen", int(seen));
  EXPECT_GE(seen * 100, all * 94) << seen << " of " << all << "; green:" << green;
}

}  // namespace
}  // namespace seeksim::harness
