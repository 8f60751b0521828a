// The reference has nothing to say of a run that is right, and names the first quantity of one that is not.
#include "harness/oracles/reference_steps.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "harness/run/side_runs.h"
#include "runtime/rules/mutants.h"
#include "tests/judge/configurations.h"
#include "tests/support/paths.h"

namespace seeksim::harness {
namespace {

using runtime::MutantInfo;
using testing::configuration;

TEST(ReferenceJudge, FindsNothingInWhatIsRight) {
  for (const std::string& name : testing::configuration_names()) {
    const Scenario scenario = configuration(name);
    const ReferenceVerdict verdict = reference_run(scenario, Judging::whole);
    ASSERT_EQ(verdict.unknown, "") << name;
    EXPECT_EQ(std::int64_t(verdict.steps.size()), scenario.train.definition.steps) << name;
    for (const ReferenceDifference& one : verdict.differences) ADD_FAILURE() << name << ": " << one.text();
    EXPECT_GE(verdict.share(), 0.999) << name << ", of " << verdict.values;
    EXPECT_LT(verdict.used, 1) << name;
    RecordProperty(name + "_used", fmt::format("{:.2f}", verdict.used));
  }
}

TEST(ReferenceJudge, OfTheEndsTheFirstTwoStepsAndTheLastAreJudged) {
  const ReferenceVerdict verdict = reference_run(configuration("gpt2"), Judging::ends);
  EXPECT_EQ(verdict.steps, (std::vector<std::int64_t>{0, 1, 5}));
  EXPECT_TRUE(verdict.differences.empty());
}

TEST(ReferenceJudge, AStepThatIsLeftOutOnPurposeIsExpected) {
  const std::vector<std::string> sets = {R"(golden={"skip_steps":[2]})"};
  const ReferenceVerdict verdict = reference_run(configuration("gpt2", sets), Judging::whole);
  for (const ReferenceDifference& one : verdict.differences) ADD_FAILURE() << one.text();
}

TEST(ReferenceJudge, SaysWhatItDoesNotKnow) {
  const ReferenceVerdict verdict = reference_run(configuration("gpt2", {"model.logit_scale=true"}), Judging::whole);
  EXPECT_NE(verdict.unknown, "");
  EXPECT_TRUE(verdict.steps.empty());
}

// ---- mutants -------------------------------------------------------------------------------------------------------

constexpr const char* kBegin = "<!-- table of mutants -->\n";
constexpr const char* kEnd = "<!-- end -->\n";

std::string page_file() { return seeksim::paths::source_dir() + "/docs/mutants.md"; }

std::string page() {
  std::ifstream in(page_file());
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// The table of the page with what was seen: the figure of a value depends on no machine, but says little.
void hold_page_to(const std::string& table) {
  const std::string now = page();
  const std::size_t begin = now.find(kBegin), end = now.find(kEnd, begin);
  ASSERT_NE(end, std::string::npos) << page_file() << " has no place for the table";
  const std::string want = now.substr(0, begin) + kBegin + '\n' + table + '\n' + now.substr(end);
  if (std::getenv("SEEKSIM_MEND") != nullptr)
    std::ofstream(page_file()) << want;
  else
    EXPECT_EQ(now, want) << "SEEKSIM_MEND=1 writes the table again";
}

TEST(ReferenceJudge, NamesTheStepAndTheQuantityOfEachMutant) {
  std::string table = "| mutant | configuration | step | first of what differs |\n|---|---|---|---|\n";
  std::size_t green = 0;
  for (const MutantInfo& mutant : runtime::mutant_catalogue()) {
    const std::vector<std::string> sets = {"bug=definition:" + std::string(mutant.name)};
    const ReferenceVerdict verdict = reference_run(configuration(std::string(mutant.shows), sets), Judging::whole);
    std::string seen = "| none | nothing: it is not seen |";
    if (verdict.differences.empty()) {
      ++green;
    } else {
      const ReferenceDifference& first = verdict.differences.front();
      const std::string of = first.parameter.empty() ? "" : fmt::format(" of `{}`", first.parameter);
      seen = fmt::format("| {} | {}{} |", first.step, first.quantity, of);
    }
    table += fmt::format("| `{}` | {} {}\n", mutant.name, mutant.shows, seen);
  }
  EXPECT_LE(green * 30, runtime::mutant_catalogue().size()) << "at least 58 of 60 are red\n" << table;
  hold_page_to(table);
}

}  // namespace
}  // namespace seeksim::harness
