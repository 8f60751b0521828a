// Properties over random scenarios: whatever the model's sizes, the world, the ZeRO stage, the cut of the batch, the
// buckets, the precision and the schedule, the bits are those of one rank and every oracle is green. And the oracles
// see: a fault planted in the domain of each is found by the same random search, and shrunk to a file that shows it.
//
// SEEKSIM_PROPERTY_SEED=WORD draws other cases (CI gives the commit's hash), =random others each time;
// SEEKSIM_PROPERTY_CASES=N so many of each property, SEEKSIM_PROPERTY_SECONDS=S for so long each. Without: the same
// ones always, a few in the fast set, 5,000 in the slow one, and an hour of them at night.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "harness/run/run.h"
#include "harness/search/explore.h"
#include "harness/search/shrink.h"
#include "harness/testing/property.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;
using namespace property;

constexpr double kWallLimit_s = 300;  // of one case: they take milliseconds, but a busy machine may leave them waiting
constexpr std::uint64_t kSeed = 20240601;
constexpr int kCases = 40;                // of each property, in the fast set
constexpr int kSlowCases = 600;           //   in the slow one: nine properties, and one about faults
constexpr int kNightlyCases = 1'000'000;  //   at night as many as there is time for: ten times 720 s, an hour on
constexpr double kNightly_s = 720;        //   two cores
constexpr int kSearch = 150;              // cases within which a planted fault has to be found
constexpr int kShrinkRuns = 400;

// Shrinks it, writes it to a file, runs the file: what a person gets of a failure.
struct Shown {
  Shrunk shrunk;
  std::string text;
  Trial again;
};
Shown show(const Json& document, const Failure& failure) {
  Shown shown;
  shown.shrunk = shrink(document, "drawn.json", failure, kShrinkRuns, kWallLimit_s);
  shown.text = scenario_text(shown.shrunk.scenario);
  TemporaryFolder folder;
  const std::string file = folder.write("shrunk.json", shown.text);
  shown.again = try_scenario(Json::parse(read_all(file)), file, kWallLimit_s);
  return shown;
}

// others: the property's number, so that each draws cases of its own.
void keeps_the_bits(const char* what, const Wanted& wanted, int others, int cases = kCases, double budget_s = 0) {
  const Result result = check({.name = what,
                               .wanted = wanted,
                               .cases = cases,
                               .budget_s = budget_s,
                               .seed = kSeed + std::uint64_t(others),
                               .discard_refused = wanted.parallel || wanted.experts || wanted.slabs || wanted.context,
                               .wall_limit_s = kWallLimit_s});
  fmt::print("{}", result.summary);
  EXPECT_TRUE(result.held) << result.failure;
}

Wanted at_stage(int stage) {
  Wanted wanted;
  wanted.stage = stage;
  wanted.formulas = true;
  return wanted;
}
Wanted with(bool Wanted::*what) {
  Wanted wanted;
  wanted.*what = true;
  return wanted;
}

TEST(Property, StageZeroKeepsTheBits) { keeps_the_bits("stage 0", at_stage(0), 0); }
TEST(Property, StageOneKeepsTheBits) { keeps_the_bits("stage 1", at_stage(1), 1); }
TEST(Property, StageTwoKeepsTheBits) { keeps_the_bits("stage 2", at_stage(2), 2); }
TEST(Property, StageThreeKeepsTheBits) { keeps_the_bits("stage 3", at_stage(3), 3); }
TEST(Property, SchedulesKeepTheBits) { keeps_the_bits("schedules", with(&Wanted::schedules), 4); }
TEST(Property, OffloadKeepsTheBits) { keeps_the_bits("offload", with(&Wanted::offload), 5); }
TEST(Property, StagesAndWaysKeepTheBits) { keeps_the_bits("pipeline and tensor", with(&Wanted::parallel), 6); }
TEST(Property, RestartsKeepTheBits) { keeps_the_bits("restarts", with(&Wanted::restarts), 7); }
TEST(Property, CompressionKeepsTheBits) { keeps_the_bits("compression", with(&Wanted::compression), 8); }
TEST(Property, RestartsKeepTheResiduals) {
  Wanted wanted = with(&Wanted::compression);
  wanted.restarts = true;
  keeps_the_bits("compression with restarts", wanted, 9);
}

Wanted with_formulas(bool Wanted::*what) {
  Wanted wanted = with(what);
  wanted.formulas = true;
  return wanted;
}
TEST(Property, CompressedMomentumKeepsTheBits) {
  keeps_the_bits("compressed momentum", with_formulas(&Wanted::momentum), 19);
}
TEST(Property, RestartsKeepBothResiduals) {
  Wanted wanted = with(&Wanted::momentum);
  wanted.restarts = true;
  keeps_the_bits("compressed momentum with restarts", wanted, 20);
}

TEST(Property, FactorsKeepTheBits) { keeps_the_bits("factors of gradients", with_formulas(&Wanted::factors), 21); }
TEST(Property, RestartsKeepTheFactors) {
  Wanted wanted = with(&Wanted::factors);
  wanted.restarts = true;
  keeps_the_bits("factors of gradients with restarts", wanted, 22);
}

TEST(Property, LocalSgdKeepsTheBits) { keeps_the_bits("local SGD", with(&Wanted::local_sgd), 13); }
TEST(Property, RestartsKeepTheWorkers) {
  Wanted wanted = with(&Wanted::local_sgd);
  wanted.restarts = true;
  keeps_the_bits("local SGD with restarts", wanted, 14);
}

TEST(Property, LateGradientsKeepTheBits) { keeps_the_bits("late gradients", with(&Wanted::staleness), 21); }
TEST(Property, RestartsKeepLateGradients) {
  Wanted wanted = with(&Wanted::staleness);
  wanted.restarts = true;
  keeps_the_bits("late gradients with restarts", wanted, 22);
}

TEST(Property, DividedExpertsKeepTheBits) {
  Wanted wanted = with(&Wanted::experts);
  wanted.formulas = true;
  keeps_the_bits("divided experts", wanted, 10);
}
TEST(Property, ExpertsOnStagesKeepTheBits) {
  Wanted wanted = with(&Wanted::experts);
  wanted.parallel = true;
  keeps_the_bits("experts on stages", wanted, 23);
}
TEST(Property, SlabsOfExpertsKeepTheBits) { keeps_the_bits("slabs of experts", with(&Wanted::slabs), 41); }
TEST(Property, ShardGroupsKeepTheBits) {
  Wanted wanted = with(&Wanted::groups);
  wanted.formulas = true;
  keeps_the_bits("shard groups", wanted, 11);
}

TEST(Property, ContextGroupsKeepTheBits) {
  Wanted wanted = with(&Wanted::context);
  wanted.formulas = true;
  keeps_the_bits("context groups", wanted, 12);
}

Wanted quantised() {
  Wanted wanted = with(&Wanted::quantised);
  wanted.stage = 3;
  return wanted;
}
TEST(Property, QuantisedWeightsKeepTheBits) {
  Wanted wanted = quantised();
  wanted.formulas = true;
  keeps_the_bits("quantised weights", wanted, 16);
}
TEST(Property, QuantisedWeightsKeepTheBitsInModelsThatAreCut) {
  Wanted wanted = quantised();
  wanted.parallel = true;
  keeps_the_bits("quantised weights in stages and ways", wanted, 17);
}
TEST(Property, RestartsKeepWeightsExact) {
  Wanted wanted = quantised();
  wanted.restarts = true;
  keeps_the_bits("quantised weights with restarts", wanted, 18);
}

Wanted quantised_gradients(int stage) {
  Wanted wanted = with(&Wanted::quantised_gradients);
  wanted.stage = stage;
  return wanted;
}
TEST(Property, QuantisedGradientsKeepTheBits) {
  for (const int stage : {2, 3}) {
    Wanted wanted = quantised_gradients(stage);
    wanted.formulas = true;
    keeps_the_bits("quantised gradients", wanted, 19);
  }
}
TEST(Property, QuantisedGradientsKeepTheBitsInModelsThatAreCut) {
  Wanted wanted = quantised_gradients(3);
  wanted.parallel = true;
  keeps_the_bits("quantised gradients in stages and ways", wanted, 20);
}
TEST(Property, RestartsKeepTheGroups) {
  Wanted wanted = quantised_gradients(3);
  wanted.restarts = wanted.quantised = true;
  keeps_the_bits("quantised gradients with restarts", wanted, 21);
}

TEST(Property, Fp8KeepsTheBits) {
  Wanted wanted = with(&Wanted::fp8);
  wanted.formulas = true;
  keeps_the_bits("fp8", wanted, 13);
}
TEST(Property, Fp8KeepsTheBitsInModelsThatAreCut) {
  Wanted wanted = with(&Wanted::fp8);
  wanted.parallel = true;
  keeps_the_bits("fp8 in stages and ways", wanted, 14);
}
TEST(Property, RestartsKeepTheScalesOfFp8) {
  Wanted wanted = with(&Wanted::fp8);
  wanted.restarts = true;
  keeps_the_bits("fp8 with restarts", wanted, 15);
}

// ---- faults and orders
// -----------------------------------------------------------------------------------------------

// Runs some cases of `seeksim explore` for each drawn scenario: other orders, faults at any place, as many as can be
// survived. After each the bits are those of one rank, or the run has stopped cleanly; and a case that is run again is
// the same.
void survives_faults(int scenarios_drawn, int cases_each, double budget_s = 0) {
  const Budget budget(budget_s);
  const rc::detail::TestParams params = search_parameters(kSeed + 100, scenarios_drawn);
  int scenarios_run = 0, cases = 0, stops = 0;
  Json failing;
  std::string why;
  Failure failure;
  const auto result = rc::detail::checkTestable(
      [&] {
        if (budget.is_over()) return;
        ++scenarios_run;
        Wanted wanted;
        wanted.schedules = true;
        Json document = (*scenarios(wanted)).document;
        document["recovery"] = {{"policy", "rebuild_and_redo"}, {"watchdog_s", 60}};
        document["checks"] = {"golden:bitwise"};
        TemporaryFolder folder;
        ExploreOptions options;
        options.seed = document["seed"];
        options.wall_limit_s = kWallLimit_s;
        const Explored explored = load_explored(folder.write("drawn.json", document.dump()), {}, options);
        const Golden golden = run_golden(explored.scenario, "", kWallLimit_s);
        Explorer explorer(explored, &golden, options, 0);
        for (int i = 0; i < cases_each; ++i, ++cases) {
          const Explorer::Ran ran = explorer.run(*explorer.draw());
          stops += ran.end.how == PlannedEnd::How::stopped;
          const std::uint64_t fingerprint = explorer.record().fingerprint;
          if (ran.end.how == PlannedEnd::How::red) {
            failing = case_document(explored, ran.one, &explorer.record());
            failure = failure_of(try_scenario(failing, "drawn.json", kWallLimit_s));
            why = ran.end.why;
            RC_FAIL(ran.end.why);
          }
          if (i > 0) continue;
          explorer.run(ran.one);
          RC_ASSERT(explorer.record().fingerprint == fingerprint);
        }
      },
      rc::detail::TestMetadata{}, params);
  fmt::print("faults: seed {}, {} cases of {} scenarios in {:.1f} s, {} of them stop cleanly\n", params.seed, cases,
             scenarios_run, budget.elapsed_s(), stops);
  EXPECT_GT(cases, 0);
  if (result.is<rc::detail::SuccessResult>()) return;
  if (failing.is_null() || failure.status == ExitStatus::as_expected)
    FAIL() << why << '\n' << (failing.is_null() ? "" : scenario_text(failing));
  const Shown shown = show(failing, failure);
  FAIL() << failure.text() << "; shrunk in " << shown.shrunk.runs << " runs to\n" << shown.text;
}

TEST(Property, FaultsAreSurvived) { survives_faults(20, 5); }

// The same with more cases, and with many.
void keep_the_bits(int property, int cases, double budget_s = 0) {
  const int others = 10 + property;
  switch (property) {
    case 0:
    case 1:
    case 2:
    case 3:
      return keeps_the_bits(fmt::format("stage {}", property).c_str(), at_stage(property), others, cases, budget_s);
    case 4:
      return keeps_the_bits("schedules", with(&Wanted::schedules), others, cases, budget_s);
    case 5:
      return keeps_the_bits("offload", with(&Wanted::offload), others, cases, budget_s);
    case 6:
      return keeps_the_bits("pipeline and tensor", with(&Wanted::parallel), others, cases, budget_s);
    case 7:
      return keeps_the_bits("shard groups", with(&Wanted::groups), others, cases, budget_s);
    default:
      return keeps_the_bits("restarts", with(&Wanted::restarts), others, cases, budget_s);
  }
}
constexpr int kProperties = 9;

class PropertySlow : public ::testing::TestWithParam<int> {};
TEST_P(PropertySlow, KeepsTheBits) { keep_the_bits(GetParam(), kSlowCases); }
INSTANTIATE_TEST_SUITE_P(All, PropertySlow, ::testing::Range(0, kProperties));

class PropertyNightly : public ::testing::TestWithParam<int> {};
TEST_P(PropertyNightly, KeepsTheBits) { keep_the_bits(GetParam(), kNightlyCases, kNightly_s); }
INSTANTIATE_TEST_SUITE_P(All, PropertyNightly, ::testing::Range(0, kProperties));

class FaultPropertySlow : public ::testing::Test {};
TEST_F(FaultPropertySlow, FaultsAreSurvived) { survives_faults(60, 5); }
class FaultPropertyNightly : public ::testing::Test {};
TEST_F(FaultPropertyNightly, FaultsAreSurvived) { survives_faults(kNightlyCases, 5, kNightly_s); }

// ---- what the properties found
// ---------------------------------------------------------------------------------------

TEST(Property, EndsWhenItsTimeIsOver) {
  const Result result = check({.name = "short", .wanted = at_stage(1), .cases = 20'000, .budget_s = 0.2, .seed = 3});
  EXPECT_TRUE(result.held) << result.failure;
  EXPECT_GT(result.cases, 0);
  EXPECT_LT(result.cases, 20'000);
}

TEST(Property, WhatWasFoundStaysMended) {
  const char* const shrunk[] = {// A rank that was to die after a launch waited for its end for ever: a gather before it
                                // had lost a message, and the others had gone on.
                                R"({ "name": "dies_after_what_never_ends",
           "model": { "layers": 1, "width": 1, "heads": 1, "context": 1, "vocab": 1 },
           "data": { "synthetic": true }, "world": { "nodes": 1, "ranks_per_node": 2 },
           "deepspeed": { "train_micro_batch_size_per_gpu": 1,
                          "zero_optimization": { "stage": 3, "stage3_param_persistence_threshold": 0 } },
           "steps": 1, "recovery": { "policy": "rebuild_and_redo" },
           "faults": [ { "kind": "rank_crash", "op": "compute", "phase": "backward", "mode": "after" },
                       { "kind": "message_drop" } ],
           "checks": [ "golden:bitwise" ] })",
                                // A rank that owned none of the frozen parameters reported that they were fp32.
                                R"({ "name": "empty_frozen_shard",
           "model": { "layers": 1, "width": 1, "heads": 1, "context": 1, "vocab": 1, "frozen": [ "wpe.weight" ] },
           "data": { "synthetic": true }, "world": { "nodes": 1, "ranks_per_node": 2 },
           "deepspeed": { "train_micro_batch_size_per_gpu": 1, "zero_optimization": { "stage": 3 },
                          "bf16": { "enabled": true } },
           "steps": 1 })",
                                // A device whose context was lost in the update committed what it had computed.
                                R"({ "name": "lost_in_the_update",
           "model": { "layers": 1, "width": 1, "heads": 1, "context": 1, "vocab": 2 },
           "data": { "synthetic": true }, "world": { "nodes": 1, "ranks_per_node": 2 },
           "deepspeed": { "train_batch_size": 8 }, "steps": 2, "checks": [ "golden:bitwise" ],
           "faults": [ { "kind": "device_error", "phase": "optimizer" } ] })"};
  for (const char* text : shrunk) {
    const Trial trial = try_scenario(Json::parse(text), "found.json");
    EXPECT_EQ(trial.status, ExitStatus::as_expected) << failure_of(trial).text() << '\n' << text;
  }
}

// ---- planted faults ------------------------------------------------------------------------------------------------

struct Domain {
  const char* name;
  const char* check;
  const char* bug = "";
  bool corrupt = false;
  const char* precision = "";  // where the formulas know no other
};

const Domain kDomains[] = {
    {"races", "no_races", "skip_wait:*"},
    {"lifetime", "no_races", "early_release"},
    {"poison", "no_poison", "unwritten_memory"},
    {"replicas", "replicas_equal", "drifting_replica"},
    {"partition", "partition", "overlapping_shards"},
    {"conservation", "conservation", "sample_twice"},
    {"collectives", "collectives_match", "swapped_buckets"},
    {"memory", "memory_formula", "kept_gathered", false, "fp32"},
    {"traffic", "traffic_formula", "gather_twice", false, "fp32"},
    {"bits", "golden:bitwise", "", true},
};

bool is_always_made(const std::string& check) {
  return std::any_of(check_catalogue().begin(), check_catalogue().end(),
                     [&check](const CheckInfo& row) { return row.unasked && check == row.name; });
}

class PlantedFault : public ::testing::TestWithParam<Domain> {};

TEST_P(PlantedFault, IsFoundAndShrunkToAFile) {
  const Domain& domain = GetParam();
  Wanted wanted;
  wanted.bug = domain.bug;
  wanted.corrupt = domain.corrupt;
  wanted.precision = domain.precision;
  if (!is_always_made(domain.check)) wanted.check = domain.check;
  Json found;
  Failure failure;
  int cases = 0;
  rc::detail::TestParams always;  // whatever the environment says: how soon it is found is part of the test
  always.seed = kSeed;
  always.maxSuccess = kSearch;
  always.disableShrinking = true;
  rc::detail::checkTestable(
      [&] {
        const Drawn drawn = *scenarios(wanted);
        ++cases;
        const Trial trial = try_scenario(drawn.document, "drawn.json", kWallLimit_s);
        failure = failure_of(trial, domain.check);
        if (failure.status == ExitStatus::as_expected) return;
        found = drawn.document;
        RC_FAIL("found");
      },
      rc::detail::TestMetadata{}, always);
  ASSERT_FALSE(found.is_null()) << domain.name << ": not found in " << cases << " cases";

  const Shown shown = show(found, failure);
  fmt::print("{}: found after {} cases; {} bytes shrunk to {} in {} runs ({} edits, {} refused)\n{}", domain.name,
             cases, scenario_text(found).size(), shown.text.size(), shown.shrunk.runs, shown.shrunk.edits.size(),
             shown.shrunk.refused, shown.text);
  EXPECT_TRUE(shown.shrunk.smallest) << kShrinkRuns << " runs were too few";
  EXPECT_TRUE(failure.in(shown.again)) << "the file does not show it";
  EXPECT_EQ(shown.again.status, ExitStatus::check_failed) << "seeksim run FILE would not exit with 1";
  EXPECT_LE(std::count(shown.text.begin(), shown.text.end(), '\n'), 20) << "more than a screen";

  Json repaired = shown.shrunk.scenario;
  repaired.erase("bug");
  repaired.erase("faults");
  const Trial fine = try_scenario(repaired, "drawn.json", kWallLimit_s);
  EXPECT_EQ(fine.status, ExitStatus::as_expected) << "it fails without what was planted: " << shown.text;
}

INSTANTIATE_TEST_SUITE_P(Domains, PlantedFault, ::testing::ValuesIn(kDomains),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace seeksim::harness
