// Properties over random scenarios: whatever the model's sizes, the world, the ZeRO stage, the cut of the batch, the
// buckets, the precision and the schedule, the bits are those of one rank and every oracle is green. And the oracles
// see: a fault planted in the domain of each is found by the same random search, and shrunk to a file that shows it.
//
// The seed is fixed. SEEKSIM_PROPERTY_SEED=7 takes another, =random a new one each time; SEEKSIM_PROPERTY_CASES=1000
// more cases (of each stage).
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <random>

#include "harness/explore.h"

#include "harness/run.h"
#include "harness/shrink.h"
#include "tests/harness/scenario_gen.h"
#include "tests/harness/support.h"

namespace seeksim::harness {
namespace {

using namespace testing;

constexpr double kWallLimit_s = 30;  // of one case: they take milliseconds
constexpr int kCases = 40;           // of each property
constexpr int kSlowCases = 1000;     //   at night
constexpr int kSearch = 150;         // cases within which a planted fault has to be found
constexpr int kShrinkRuns = 400;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

rc::detail::TestParams parameters(int cases) {
  rc::detail::TestParams params;
  const std::string seed = environment("SEEKSIM_PROPERTY_SEED"), wanted = environment("SEEKSIM_PROPERTY_CASES");
  params.seed = seed == "random" ? std::random_device()() : seed.empty() ? 20240601 : std::stoull(seed);
  params.maxSuccess = wanted.empty() ? cases : std::stoi(wanted);
  params.disableShrinking = true;  // harness/shrink.h shrinks
  return params;
}

// How many cases there were of which world and precision.
class Tally {
 public:
  void count(const Drawn& drawn) { ++of_[drawn.precision][drawn.ranks]; }
  std::string text() const {
    std::string all = "  ranks     1    2    3    4    5    6    7    8\n";
    for (const auto& [precision, ranks] : of_) {
      all += "  " + precision + "  ";
      for (int n = 1; n <= 8; ++n) all += fmt::format("{:5}", ranks.contains(n) ? ranks.at(n) : 0);
      all += '\n';
    }
    return all;
  }

 private:
  std::map<std::string, std::map<int, int>> of_;
};

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
void keeps_the_bits(const char* what, const Wanted& wanted, int others, int cases = kCases) {
  const auto start = std::chrono::steady_clock::now();
  rc::detail::TestParams params = parameters(cases);
  params.seed += std::uint64_t(others);
  Tally tally;
  Json failing;
  Failure failure;
  std::string problems;
  const auto result = rc::detail::checkTestable(
      [&] {
        const Drawn drawn = *scenarios(wanted);
        const Trial trial = try_scenario(drawn.document, "drawn.json", kWallLimit_s);
        // Not every model can be cut in every way.
        if (wanted.parallel && trial.status == ExitStatus::bad_input) RC_DISCARD("refused");
        tally.count(drawn);
        if (trial.status == ExitStatus::as_expected) return;
        failing = drawn.document;
        failure = failure_of(trial);
        for (const std::string& problem : trial.problems) problems += problem + '\n';
        RC_FAIL("exit status " + std::to_string(code(trial.status)));
      },
      rc::detail::TestMetadata{}, params);
  const double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  fmt::print("{}: seed {}, {} cases in {:.1f} s\n{}", what, params.seed, params.maxSuccess, s, tally.text());
  if (result.is<rc::detail::SuccessResult>()) return;
  if (failing.is_null() || failure.status == ExitStatus::as_expected) {
    FAIL() << what << ": " << problems << '\n' << (failing.is_null() ? "" : scenario_text(failing));
  }
  const Shown shown = show(failing, failure);
  FAIL() << failure.text() << "; shrunk in " << shown.shrunk.runs << " runs to\n" << shown.text << problems;
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

// ---- faults and orders
// -----------------------------------------------------------------------------------------------

// Of each drawn scenario some cases of `seeksim explore`: other orders, faults at any place, as many as may be
// survived. After all of them the bits are those of one rank, or the run has stopped cleanly; and run again a case is
// the same.
void survives_faults(int scenarios_drawn, int cases_each) {
  const auto start = std::chrono::steady_clock::now();
  rc::detail::TestParams params = parameters(scenarios_drawn);
  params.seed += 100;
  int cases = 0, stops = 0;
  Json failing;
  std::string why;
  Failure failure;
  const auto result = rc::detail::checkTestable(
      [&] {
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
  const double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  fmt::print("faults: seed {}, {} cases of {} scenarios in {:.1f} s, {} of them stop cleanly\n", params.seed, cases,
             params.maxSuccess, s, stops);
  if (result.is<rc::detail::SuccessResult>()) return;
  if (failing.is_null() || failure.status == ExitStatus::as_expected)
    FAIL() << why << '\n' << (failing.is_null() ? "" : scenario_text(failing));
  const Shown shown = show(failing, failure);
  FAIL() << failure.text() << "; shrunk in " << shown.shrunk.runs << " runs to\n" << shown.text;
}

TEST(Property, FaultsAreSurvived) { survives_faults(20, 5); }

// The same with many cases.
class PropertyNightly : public ::testing::Test {};
TEST_F(PropertyNightly, StagesKeepTheBits) {
  for (const int stage : {0, 1, 2, 3}) keeps_the_bits("stage", at_stage(stage), 10 + stage, kSlowCases / 4);
}
TEST_F(PropertyNightly, SchedulesKeepTheBits) { keeps_the_bits("schedules", with(&Wanted::schedules), 14, kSlowCases); }
TEST_F(PropertyNightly, OffloadKeepsTheBits) { keeps_the_bits("offload", with(&Wanted::offload), 15, kSlowCases); }
TEST_F(PropertyNightly, StagesAndWaysKeepTheBits) {
  keeps_the_bits("pipeline and tensor", with(&Wanted::parallel), 16, kSlowCases);
}
TEST_F(PropertyNightly, RestartsKeepTheBits) { keeps_the_bits("restarts", with(&Wanted::restarts), 17, kSlowCases); }
TEST_F(PropertyNightly, FaultsAreSurvived) { survives_faults(kSlowCases / 5, 5); }

// ---- what the properties found
// ---------------------------------------------------------------------------------------

TEST(Property, WhatWasFoundStaysMended) {
  const char* const shrunk[] = {// A rank that owned nothing of the frozen parameters told others that they were fp32.
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
  return check == "no_races" || check == "no_poison" || check == "replicas_equal" || check == "partition" ||
         check == "collectives_match";
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
      rc::detail::TestMetadata{}, parameters(kSearch));
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
