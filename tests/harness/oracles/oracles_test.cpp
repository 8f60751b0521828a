// Each planted bug of a distributed step on a real run: the check that answers for it turns red and says what is wrong;
// without the bug it is green at every stage.
#include <algorithm>
#include <map>

#include <nlohmann/json.hpp>

#include "harness/oracles/formulas.h"
#include "harness/oracles/inside_a_step.h"
#include "harness/run/run.h"
#include "harness/run/side_runs.h"
#include "harness/simulate/simulate.h"
#include "harness/verdict/checks.h"
#include "runtime/rules/bugs.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;
using runtime::Bug;

// 4 ranks on 2 nodes, two micro-steps, each parameter a bucket of its own.
Scenario scenario_at(int stage, Bug bug = Bug::none) {
  Scenario scenario = small_scenario();
  scenario.faults.clear();
  scenario.checks.clear();
  scenario.train.layout.zero = runtime::zero_plan(stage);
  scenario.train.layout.zero.reduce_bucket_elements = 1;
  scenario.train.layout.zero.allgather_bucket_elements = 3000;
  scenario.train.layout.zero.persistence_threshold_elements = 100;
  scenario.train.layout.zero.max_reuse_distance = 0;
  scenario.train.bug.bug = bug;
  return scenario;
}

CheckResult judged(const char* check, const Scenario& scenario) {
  const RunRecord run = Simulation(scenario, {}).run();
  return judge(CheckSpec{check, ""}, Evidence{scenario, run, nullptr, {}, {}});
}

TEST(Oracles, AreGreenAtEveryStage) {
  for (int stage = 0; stage <= 3; ++stage) {
    const Scenario scenario = scenario_at(stage);
    const RunRecord run = Simulation(scenario, {}).run();
    const Evidence evidence{scenario, run, nullptr, {}, {}};
    std::vector<std::string> checks = {"memory_formula", "traffic_formula"};
    for (const CheckInfo* row : judged_unasked(evidence)) checks.emplace_back(row->name);
    for (const char* check : {"collectives_match", "replicas_equal", "one_history"})
      EXPECT_EQ(std::count(checks.begin(), checks.end(), check), 1) << check;
    EXPECT_EQ(std::count(checks.begin(), checks.end(), "partition"), stage == 0 ? 0 : 1);
    for (const std::string& check : checks) {
      const CheckResult result = judge(CheckSpec{check, ""}, evidence);
      EXPECT_TRUE(result.ok) << "stage " << stage << ", " << check << ": " << result.detail;
    }
  }
}

TEST(Oracles, AreGreenAfterARecovery) {
  for (int stage = 1; stage <= 3; ++stage) {
    Scenario scenario = scenario_at(stage);
    scenario.faults = small_scenario().faults;
    scenario.faults[0].when.op = {};
    scenario.faults[0].kind = faults::FaultKind::rank_crash;
    const RunRecord run = Simulation(scenario, {}).run();
    const Evidence evidence{scenario, run, nullptr, {}, {}};
    EXPECT_EQ(run.detection.recoveries.size(), 1u);
    for (const CheckInfo* row : judged_unasked(evidence)) {
      const CheckResult result = judge(CheckSpec{row->name, ""}, evidence);
      EXPECT_TRUE(result.ok) << "stage " << stage << ", " << row->name << ": " << result.detail;
    }
  }
}

struct Planted {
  Bug bug;
  int stage;
  const char* check;
  const char* detail;
};

TEST(Oracles, EachPlantedBugTurnsItsCheckRed) {
  const Planted all[] = {
      {Bug::drifting_replica, 0, "replicas_equal", "their parameter wte.weight"},
      {Bug::drifting_replica, 1, "replicas_equal", "step 1: "},
      {Bug::drifting_replica, 2, "replicas_equal", "step 1: "},
      {Bug::drifting_lr, 0, "replicas_equal", "the learning rate"},
      {Bug::drifting_lr, 3, "replicas_equal", "the learning rate"},
      {Bug::stale_publish, 1, "replicas_equal", "their parameter wte.weight"},
      {Bug::stale_publish, 2, "replicas_equal", "their parameter wte.weight"},
      {Bug::overlapping_shards, 1, "partition", "have two owners: rank 0 and rank 1"},
      {Bug::overlapping_shards, 2, "partition", "have two owners: rank 0 and rank 1"},
      {Bug::overlapping_shards, 3, "partition", "have two owners: rank 0 and rank 1"},
      {Bug::gap_in_shards, 1, "partition", "have no owner"},
      {Bug::gap_in_shards, 2, "partition", "have no owner"},
      {Bug::swapped_buckets, 1, "collectives_match", "at gradient_reducer.cpp:"},
      {Bug::wrong_count, 0, "collectives_match", "elements over 8 leaves"},
      {Bug::wrong_count, 1, "collectives_match", "bytes of fp32"},
      {Bug::wrong_count, 2, "collectives_match", "bytes of fp32"},
      {Bug::skipped_collective, 0, "collectives_match", "waited without success in all_reduce"},
      {Bug::skipped_collective, 1, "collectives_match", "rank 1 brought reduce_scatter"},
      {Bug::kept_gathered, 3, "memory_formula", "gathered: "},
      {Bug::full_optimizer_state, 1, "memory_formula", "optimizer: "},
      {Bug::full_optimizer_state, 3, "memory_formula", "optimizer: "},
      {Bug::gather_twice, 3, "traffic_formula", "param_gather: "},
  };
  for (const Planted& planted : all) {
    const CheckResult result = judged(planted.check, scenario_at(planted.stage, planted.bug));
    EXPECT_FALSE(result.ok) << runtime::name(planted.bug) << " at stage " << planted.stage;
    EXPECT_NE(result.detail.find(planted.detail), std::string::npos)
        << runtime::name(planted.bug) << " at stage " << planted.stage << ": " << result.detail;
  }
}

// Shards of uneven sizes: between matrices, and no larger than that takes.
TEST(Oracles, WithMuonShardsInsideOfMatricesAndTooMuchStateAreSeen) {
  for (int stage = 1; stage <= 3; ++stage) {
    const auto with_muon = [&](Bug bug) {
      Scenario scenario = scenario_at(stage, bug);
      scenario.train.definition.optimizer.type = "Muon";
      return scenario;
    };
    for (const char* check : {"partition", "memory_formula", "traffic_formula"})
      EXPECT_TRUE(judged(check, with_muon(Bug::none)).ok)
          << check << " at stage " << stage << ": " << judged(check, with_muon(Bug::none)).detail;
    const CheckResult cut = judged("partition", with_muon(Bug::muon_cuts_matrices));
    EXPECT_FALSE(cut.ok) << "stage " << stage;
    EXPECT_NE(cut.detail.find("cuts a matrix of "), std::string::npos) << cut.detail;
    EXPECT_FALSE(judged("memory_formula", with_muon(Bug::full_optimizer_state)).ok) << "stage " << stage;
  }
}

// The run heeds another setting than it was given: its bits are right all the same.
CheckResult judged_as(const char* check, const Scenario& given, const Scenario& heeded) {
  const RunRecord run = Simulation(heeded, {}).run();
  return judge(CheckSpec{check, ""}, Evidence{given, run, nullptr, {}, {}});
}

TEST(Oracles, ParametersThatTravelOneByOneAreTooManyCalls) {
  for (int stage = 1; stage <= 3; ++stage) {
    const Scenario alone = scenario_at(stage);
    Scenario together = alone;
    together.train.layout.zero.reduce_bucket_elements = 1'000'000;
    EXPECT_TRUE(judged_as("traffic_formula", alone, alone).ok) << "stage " << stage;
    EXPECT_TRUE(judged_as("traffic_formula", together, together).ok) << "stage " << stage;
    const CheckResult result = judged_as("traffic_formula", together, alone);
    EXPECT_FALSE(result.ok) << "stage " << stage;
    EXPECT_TRUE(result.detail.starts_with("reduce_scatter: ")) << result.detail;
    EXPECT_NE(result.detail.find(" calls instead of at most "), std::string::npos) << result.detail;
  }
}

TEST(Oracles, MoreParametersAliveThanMayBeAreTooMuchMemory) {
  Scenario limited = scenario_at(3);
  limited.train.definition.model.layers = 4;
  runtime::ZeroPlan& zero = limited.train.layout.zero;
  zero.prefetch_elements = zero.max_reuse_distance = 1'000'000'000;
  Scenario unlimited = limited;
  zero.max_live_parameters = 100;
  EXPECT_TRUE(judged_as("memory_formula", limited, limited).ok);
  EXPECT_TRUE(judged_as("memory_formula", unlimited, unlimited).ok);
  const CheckResult result = judged_as("memory_formula", limited, unlimited);
  EXPECT_FALSE(result.ok) << result.detail;
  EXPECT_TRUE(result.detail.starts_with("gathered: ")) << result.detail;
}

TEST(Oracles, ActivationsThatAreComputedAgainAndKeptAllTheSameAreTooMany) {
  for (const bool planted : {false, true}) {
    Scenario scenario = scenario_at(0, planted ? Bug::kept_activations : Bug::none);
    scenario.train.definition.model.layers = 3;
    scenario.train.layout.checkpointing.every = 1;
    const CheckResult result = judged("memory_formula", scenario);
    EXPECT_EQ(result.ok, !planted) << result.detail;
    if (planted) {
      EXPECT_NE(result.detail.find("activations: "), std::string::npos) << result.detail;
    }
  }
}

TEST(Oracles, EverySampleEntersOnce) {
  for (int stage = 0; stage <= 3; ++stage) {
    for (const bool crash : {false, true}) {
      Scenario scenario = scenario_at(stage);
      scenario.train.definition.global_batch = 7;  // no rank has what another has
      if (crash) {
        scenario.faults = small_scenario().faults;
        scenario.faults[0].when.op = {};
        scenario.faults[0].kind = faults::FaultKind::rank_crash;
      }
      const Conservation result = tagged_run(scenario);
      EXPECT_EQ(result.wrong, "") << "stage " << stage;
      EXPECT_GT(result.elements, 0u);
    }
  }
}

TEST(Oracles, ASampleThatIsLostTwiceThereOrWeighedDifferentlyIsNamed) {
  const std::pair<Bug, const char*> bugs[] = {{Bug::sample_twice, "as if sample 2 were counted twice"},
                                              {Bug::sample_lost, "as if sample 2 were missing"},
                                              {Bug::wrong_weight, "no single sample"}};
  for (int stage = 0; stage <= 3; ++stage) {
    for (const auto& [bug, detail] : bugs) {
      Scenario scenario = scenario_at(stage, bug);
      std::string said = tagged_run(scenario).wrong;
      if (stage >= 2) {  // a micro-step's samples are contiguous, so the first one of rank 1 is another
        const std::size_t at = said.find("sample 1");
        if (at != std::string::npos) said.replace(at, 8, "sample 2");
      }
      EXPECT_NE(said.find(detail), std::string::npos) << runtime::name(bug) << " at stage " << stage << ": " << said;
    }
  }
}

// Where every first element is wrong, none was seen to be right: that is a finding, and not a lack of one.
TEST(Oracles, ConservationSaysWhatIsWrongWhereEverythingIs) {
  Scenario scenario = scenario_at(0, Bug::sample_twice);
  scenario.checks = {{"conservation", ""}};
  const Outcome outcome = run_scenario(scenario, {}, [](std::string_view) {});
  const Json& checks = outcome.report["checks"];
  const auto found =
      std::find_if(checks.begin(), checks.end(), [](const Json& check) { return check["name"] == "conservation"; });
  ASSERT_NE(found, checks.end());
  EXPECT_FALSE((*found)["ok"].get<bool>());
  EXPECT_TRUE(found->value("looked", true)) << *found;
  EXPECT_NE((*found)["detail"].get<std::string>().find("not every sample entered once"), std::string::npos) << *found;
}

// A rank whose queue the schedule slows down beyond the watchdog comes too late, and brings what it should.
TEST(Oracles, AQueueThatIsSlowByScheduleIsNoMismatch) {
  Json json = Json::parse(testing::small_text());
  json["faults"] = Json::array();
  json["checks"] = Json::array();
  json["recovery"] = {{"policy", "rebuild_and_redo"}, {"watchdog_s", 1}};
  json["schedule"] = {{"slow",
                       {{{"rank", 1}, {"queue", "compute"}, {"doublings", 10}},
                        {{"rank", 1}, {"queue", "compute"}, {"doublings", 10}}}}};
  const Outcome outcome = run_text(json.dump(), "s.json");
  ASSERT_GT(outcome.report["recoveries"].size(), 0u) << "it is too late";
  bool judged = false;
  for (const Json& check : outcome.report["checks"]) {
    if (check["name"] != "collectives_match") continue;
    judged = true;
    EXPECT_TRUE(check["ok"].get<bool>()) << check;
  }
  EXPECT_TRUE(judged);
}

TEST(Oracles, TheCatalogueNamesTheCheckThatCatches) {
  for (const runtime::BugInfo& info : runtime::bug_catalogue()) {
    const auto& all = check_catalogue();
    EXPECT_TRUE(std::any_of(all.begin(), all.end(),
                            [&](const CheckInfo& check) { return std::string(check.name) == info.caught; }))
        << info.name << " is said to be caught by " << info.caught;
  }
}

TEST(Formulas, AreThePapersWhereNothingPersistsAndNothingIsTied) {
  for (int stage = 0; stage <= 3; ++stage) {
    Scenario scenario = scenario_at(stage);
    scenario.train.definition.model.tied = false;
    scenario.train.layout.zero.persistence_threshold_elements = 0;
    const double P = double(runtime::Parameters(scenario.train.definition.model, false).size()), N = 4;
    double sum = 0;
    for (const BudgetLine& line : memory_budget(scenario)) {
      if (line.name == "parameters" || line.name == "gradients" || line.name == "optimizer") sum += line.bytes;
    }
    const double paper[] = {16 * P, (4 + 4 + 8 / N) * P, (4 + 4 / N + 8 / N) * P, 16 * P / N};
    EXPECT_NEAR(sum, paper[stage], 8) << "stage " << stage;
    scenario.train.definition.global_batch = 4;  // one sample a rank: one root, one micro-step
    double elements = 0;
    for (const BudgetLine& line : traffic_budget(scenario, 1, 1)) {
      if (line.name != "peer_copy") elements += line.bytes / 4;
    }
    EXPECT_NEAR(elements, (stage == 3 ? 3 : 2) * P * (N - 1) / N, 8) << "stage " << stage;
  }
}

}  // namespace
}  // namespace seeksim::harness
