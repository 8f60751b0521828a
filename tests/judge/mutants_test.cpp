// Each mutant of the definition changes what its configuration trains, and does so on one rank too: the golden makes
// the same mistake.
#include "runtime/rules/mutants.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <set>
#include <tuple>
#include <vector>

#include "harness/scenario/variants.h"
#include "harness/simulate/simulate.h"
#include "tests/judge/configurations.h"

namespace seeksim::harness {
namespace {

using runtime::MutantInfo;
using testing::configuration;

// All that a run of one rank says of itself: its steps and where they led.
using Step = std::tuple<std::uint32_t, std::uint32_t, double, double, bool>;
struct Told {
  std::vector<Step> steps;
  std::uint64_t weights = 0;
  friend bool operator==(const Told&, const Told&) = default;
};

Told told_by(const Scenario& scenario) {
  const RunRecord run = Simulation(scenario, {}).run();
  Told told;
  for (const runtime::StepRecord& s : run.steps) {
    told.steps.emplace_back(std::bit_cast<std::uint32_t>(s.loss), std::bit_cast<std::uint32_t>(s.grad_norm), s.lr,
                            s.loss_scale, s.skipped);
  }
  if (run.state()) told.weights = run.state()->params;
  return told;
}

Scenario with(const MutantInfo& mutant) {
  return configuration(std::string(mutant.shows), {"bug=definition:" + std::string(mutant.name)});
}

TEST(Mutants, TheCatalogueStandsInTheOrderOfTheEnumAndNamesEachOnce) {
  std::set<std::string_view> names;
  int told_elsewhere = 0;
  for (const MutantInfo& row : runtime::mutant_catalogue()) {
    EXPECT_EQ(&row, &runtime::info(row.mutant));
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    told_elsewhere += row.source != "contract" ? 1 : 0;
  }
  EXPECT_GE(names.size(), 60u);
  EXPECT_GE(told_elsewhere, 42) << "half of the list that stood before the reference was made elsewhere";
}

TEST(Mutants, EachChangesWhatItsConfigurationTrainsOnOneRank) {
  for (const std::string& name : testing::configuration_names()) {
    const Told right = told_by(one_rank(configuration(name)));
    ASSERT_EQ(right.steps.size(), std::size_t(configuration(name).train.definition.steps)) << name;
    for (const MutantInfo& mutant : runtime::mutant_catalogue()) {
      if (mutant.shows != name) continue;
      EXPECT_FALSE(told_by(one_rank(with(mutant))) == right) << mutant.name << " changes nothing in " << name;
    }
  }
}

TEST(Mutants, EachNamesAConfiguration) {
  const std::vector<std::string> names = testing::configuration_names();
  for (const MutantInfo& mutant : runtime::mutant_catalogue())
    EXPECT_NE(std::find(names.begin(), names.end(), mutant.shows), names.end()) << mutant.name;
}

// Micro-batches are the layout's, and so what counts them is no mistake of definition alone; nor is a weight of a loss
// that is no power of two, which rounds in each micro-batch.
bool depends_on_the_cut(const MutantInfo& mutant) {
  const std::set<std::string_view> those = {"divided_by_tokens_but_one",
                                            "mean_of_micro_batch_means",
                                            "division_lost",
                                            "divided_twice",
                                            "tail_divided_by_full_window",
                                            "tail_dropped",
                                            "steps_on_last_micro_batch",
                                            "same_sample_in_micro_batch",
                                            "dropout_counts_in_micro_batch"};
  return those.contains(mutant.name);
}

TEST(Mutants, ARunOnTwoRanksAndItsGoldenMakeTheSameMistake) {
  for (const MutantInfo& mutant : runtime::mutant_catalogue()) {
    if (depends_on_the_cut(mutant)) continue;
    EXPECT_TRUE(told_by(with(mutant)) == told_by(one_rank(with(mutant)))) << mutant.name;
  }
}

}  // namespace
}  // namespace seeksim::harness
