// Properties over random scenarios: whatever the model's sizes, the world, the ZeRO stage, the cut of the batch, the
// buckets, the precision and the schedule, the bits are those of one rank and every oracle is green. And the oracles
// see: a fault planted in the domain of each is found by the same random search, and shrunk to a file that shows it.
//
// The seed is fixed. SEEKSIM_PROPERTY_SEED=7 takes another, =random a new one each time; SEEKSIM_PROPERTY_CASES=1000
// more cases (of each stage).
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>

#include "harness/run.h"
#include "harness/shrink.h"
#include "tests/harness/scenario_gen.h"
#include "tests/harness/support.h"

namespace seeksim::harness {
namespace {

using namespace testing;

constexpr double kWallLimit_s = 30;  // of one case: they take milliseconds
constexpr int kCases = 100;          // of each stage
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

void keeps_the_bits_at(int stage) {
  Wanted wanted;
  wanted.stage = stage;
  wanted.formulas = true;
  rc::detail::TestParams params = parameters(kCases);
  params.seed += std::uint64_t(stage);  // other cases at each
  Tally tally;
  Json failing;
  Failure failure;
  std::string problems;
  const auto result = rc::detail::checkTestable(
      [&] {
        const Drawn drawn = *scenarios(wanted);
        tally.count(drawn);
        const Trial trial = try_scenario(drawn.document, "drawn.json", kWallLimit_s);
        if (trial.status == ExitStatus::as_expected) return;
        failing = drawn.document;
        failure = failure_of(trial);
        for (const std::string& problem : trial.problems) problems += problem + '\n';
        RC_FAIL("exit status " + std::to_string(code(trial.status)));
      },
      rc::detail::TestMetadata{}, params);
  fmt::print("stage {}: seed {}, {} cases\n{}", stage, params.seed, params.maxSuccess, tally.text());
  if (result.is<rc::detail::SuccessResult>()) return;
  if (failing.is_null() || failure.status == ExitStatus::as_expected) {
    FAIL() << "stage " << stage << ": " << problems << '\n' << (failing.is_null() ? "" : scenario_text(failing));
  }
  const Shown shown = show(failing, failure);
  FAIL() << failure.text() << "; shrunk in " << shown.shrunk.runs << " runs to\n" << shown.text << problems;
}

TEST(Property, StageZeroKeepsTheBits) { keeps_the_bits_at(0); }
TEST(Property, StageOneKeepsTheBits) { keeps_the_bits_at(1); }
TEST(Property, StageTwoKeepsTheBits) { keeps_the_bits_at(2); }
TEST(Property, StageThreeKeepsTheBits) { keeps_the_bits_at(3); }

// ---- what the properties found
// ---------------------------------------------------------------------------------------

TEST(Property, WhatWasFoundStaysMended) {
  const char* const shrunk[] = {// A rank that owned nothing of the frozen parameters told others that they were fp32.
                                R"({ "name": "empty_frozen_shard",
           "model": { "layers": 1, "width": 1, "heads": 1, "context": 1, "vocab": 1, "frozen": [ "wpe.weight" ] },
           "data": { "synthetic": true }, "world": { "nodes": 1, "ranks_per_node": 2 },
           "deepspeed": { "train_micro_batch_size_per_gpu": 1, "zero_optimization": { "stage": 3 },
                          "bf16": { "enabled": true } },
           "steps": 1 })"};
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
