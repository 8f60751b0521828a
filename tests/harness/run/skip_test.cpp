// Checks that the ranks of a run cannot be judged by: skipped, counted, and never all of them.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "harness/processes/refusals.h"
#include "harness/report/report.h"
#include "harness/run/run.h"
#include "harness/simulate/simulate.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

// As processes run it, but on simulated ranks.
RunOptions as_processes() {
  RunOptions options;
  options.ranks.backend = "mpi";
  options.ranks.launch = [](const Scenario& scenario, const SimulationOptions& how, bool) {
    return Simulation(scenario, how).run();
  };
  options.ranks.why_skipped = [](std::string_view check) { return why_not_judged(check, false); };
  return options;
}

struct Said {
  Outcome outcome;
  std::string text;
};

Said run_with_checks(const std::string& checks, const std::string& more = "") {
  Said said;
  TemporaryFolder folder;
  const std::string file = folder.write("s.json", small_text_with(10, "  \"checks\": [" + checks + "]" + more));
  said.outcome = run_file(file, {}, as_processes(), [&](std::string_view part) { said.text += part; });
  return said;
}

TEST(Skipped, IsWhatOnlyVirtualTimeCanJudge) {
  const Said said = run_with_checks(R"("ranks_agree", {"finishes_within_virtual_s": 1e-9}, "slowdown_at_least:1e9")");
  EXPECT_EQ(said.outcome.status, ExitStatus::as_expected) << said.text;
  EXPECT_NE(
      said.text.find("  skip      finishes_within_virtual_s:1e-09: it judges virtual time, and processes run in "),
      std::string::npos)
      << said.text;
  EXPECT_NE(said.text.find(" checks hold, 2 skipped"), std::string::npos) << said.text;
  int skipped = 0;
  for (const Json& check : said.outcome.report["checks"]) skipped += check.value("skipped", false);
  EXPECT_EQ(skipped, 2);
  const std::string junit = junit_xml({said.outcome.report});
  EXPECT_NE(junit.find("failures=\"0\" errors=\"0\" skipped=\"2\""), std::string::npos) << junit;
  EXPECT_NE(junit.find("<skipped message=\"it judges virtual time"), std::string::npos) << junit;
}

TEST(Skipped, HidesNoCheckThatIsRed) {
  const Said said = run_with_checks(R"("no_recovery", "overlap_at_least:1")");
  EXPECT_EQ(said.outcome.status, ExitStatus::check_failed) << said.text;
  EXPECT_NE(said.text.find("failed: no_recovery"), std::string::npos) << said.text;
}

TEST(Skipped, IsNeverAllThatWasAsked) {
  const Said said = run_with_checks(R"("finishes_within_virtual_s:1", "young_daly:10")");
  EXPECT_EQ(said.outcome.status, ExitStatus::bad_input);
  ASSERT_EQ(said.outcome.problems.size(), 1u);
  EXPECT_NE(said.outcome.problems[0].find("each of its checks would be skipped, finishes_within_virtual_s:1 for one"),
            std::string::npos)
      << said.outcome.problems[0];
}

// A check that has to fail cannot be skipped: what it is there for would not be seen.
TEST(Skipped, IsNothingThatIsExpectedToFail) {
  LoadOptions options;
  options.sets = {"checks=[\"ranks_agree\",\"slowdown_at_least:2\"]", "expect={\"check_fails\":\"slowdown_at_least\"}"};
  const Scenario scenario = load_scenario_text(small_text(), "s.json", options);
  std::string all;
  for (const Problem& problem : problems_on_mpi(scenario, "mpi")) all += problem.text() + '\n';
  EXPECT_NE(all.find("expect.check_fails"), std::string::npos) << all;
}

}  // namespace
}  // namespace seeksim::harness
