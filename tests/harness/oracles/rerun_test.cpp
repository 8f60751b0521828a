// Micro-batches run twice: a transient flip is found at every stage and precision and leaves no trace, the same flip
// without the policy is silent, a value that is genuine is not blamed on anybody, and looking changes no bit.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/paths.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

struct Setting {
  int stage;
  bool bf16;
};

class RunTwice : public ::testing::TestWithParam<Setting> {
 protected:
  Ran run(const std::string& scenario, std::vector<std::string> sets) {
    const std::string path = seeksim::paths::source_dir() + "/scenarios/" + scenario + ".json";
    std::vector<std::string> arguments = {"run", path, "--report", file};
    sets.push_back("deepspeed.zero_optimization.stage=" + std::to_string(GetParam().stage));
    if (GetParam().bf16) sets.push_back("deepspeed.bf16={\"enabled\":true}");
    for (const std::string& set : sets) arguments.insert(arguments.end(), {"--set", set});
    return seeksim(arguments);
  }
  Json report() { return Json::parse(read_all(file)); }
  TemporaryFolder folder;
  std::string file = folder.file("report.json");
};

TEST_P(RunTwice, AFlipIsFoundAndTheStepRedone) {
  const Ran ran = run("numbers/rerun_bit_flip", {});
  ASSERT_EQ(ran.status, 0) << ran.out << ran.err;
  const Json found = report()["rerun"];
  EXPECT_EQ(found["mismatches"].size(), 1u);
  // 4 ranks, 2 micro-batches, 6 steps and the one that was redone.
  EXPECT_EQ(found["micro_batches"], 4 * 2 * 7);
}

TEST_P(RunTwice, WithoutItTheSameFlipIsSilentAndStays) {
  const Ran ran =
      run("numbers/rerun_bit_flip", {"recovery.rerun_and_compare=false",
                                     "checks=[\"golden:bitwise\",\"ranks_agree\",\"faults_fired\",\"no_recovery\"]",
                                     "expect={\"check_fails\":\"golden:bitwise\"}"});
  EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
  EXPECT_FALSE(report().contains("rerun"));
}

// A flip of an activation, which later operations spread.
std::string activation_flip(int times) {
  return "faults=[{\"kind\":\"bit_flip\",\"site\":\"activation\",\"rank\":3,\"step\":4,\"micro_batch\":1,\"layer\":1,"
         "\"tensor\":\"gelu\",\"element\":5,\"bit\":26,\"count\":" +
         std::to_string(times) + "}]";
}

TEST_P(RunTwice, AFlippedActivationIsFoundToo) {
  const Ran ran =
      run("numbers/rerun_bit_flip",
          {activation_flip(1),
           "checks=[\"golden:bitwise\",\"faults_fired\",\"culprit:3\",{\"rerun_found\":{\"rank\":3,\"step\":4,"
           "\"micro_batch\":1}}]"});
  EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
}

TEST_P(RunTwice, AnErrorThatComesTwiceAlikeCannotBeSeen) {
  const Ran ran = run("numbers/rerun_bit_flip",
                      {activation_flip(2), "checks=[\"golden:bitwise\",\"faults_fired\",\"rerun_found:none\"]",
                       "expect={\"check_fails\":\"golden:bitwise\"}"});
  EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
}

TEST_P(RunTwice, WhoErrsAgainIsEvicted) {
  if (GetParam().stage == 3 && GetParam().bf16) return;  // the scenario itself
  const Ran ran =
      run("numbers/rerun_bad_rank",
          GetParam().bf16 ? std::vector<std::string>{} : std::vector<std::string>{"deepspeed.bf16.enabled=false"});
  EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
}

TEST_P(RunTwice, WithRetryStepAllStay) {
  const Ran ran =
      run("numbers/rerun_bad_rank", {"recovery.policy=retry_step",
                                     "checks=[\"golden:bitwise\",\"faults_fired\",\"culprit:1\",\"evicted:none\","
                                     "{\"recoveries\":2},{\"rerun_found\":{\"rank\":1}}]"});
  EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
}

TEST_P(RunTwice, LookingChangesNoBit) {
  const std::vector<std::string> calm = {"faults=[]", "checks=[\"golden:bitwise\",\"no_recovery\"]"};
  std::vector<std::string> off = calm;
  off.push_back("recovery.rerun_and_compare=false");
  ASSERT_EQ(run("numbers/rerun_bit_flip", off).status, 0);
  const Json plain = report();
  const Ran ran = run("numbers/rerun_bit_flip", calm);
  ASSERT_EQ(ran.status, 0) << ran.out << ran.err;
  const Json twice = report();
  EXPECT_EQ(plain["params_digest"], twice["params_digest"]);
  EXPECT_EQ(plain["loss"], twice["loss"]);
  EXPECT_EQ(plain["grad_norm"], twice["grad_norm"]);
  EXPECT_GT(twice["rerun"]["ranges"], 0);
  EXPECT_EQ(twice["rerun"]["mismatches"].size(), 0u);
}

std::string name_of(const ::testing::TestParamInfo<Setting>& at) {
  return "stage" + std::to_string(at.param.stage) + (at.param.bf16 ? "_bf16" : "_fp32");
}

// Two in the fast set and under the sanitizers, the others where slow tests run.
INSTANTIATE_TEST_SUITE_P(Stages, RunTwice, ::testing::Values(Setting{0, false}, Setting{3, true}), name_of);
INSTANTIATE_TEST_SUITE_P(SlowStages, RunTwice,
                         ::testing::Values(Setting{0, true}, Setting{1, false}, Setting{2, false}, Setting{2, true},
                                           Setting{3, false}),
                         name_of);

// What damages a reduced gradient is no access of the program's: a copy that is under way to a peer beside it is no
// race.
TEST(StrikeBesideAPeerCopy, MakesNoRace) {
  const std::string path = seeksim::paths::source_dir() + "/scenarios/numbers/bit_flip_gradient.json";
  for (const char* stage : {"1", "2", "3"}) {
    const Ran ran = seeksim({"run", path, "--set", std::string("deepspeed.zero_optimization.stage=") + stage, "--set",
                             "faults=[{\"kind\":\"bit_flip\",\"site\":\"reduced_gradient\",\"rank\":1,\"step\":2}]",
                             "--set", "checks=[\"faults_fired\",\"no_races\"]", "--set", "expect=pass"});
    EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
  }
}

}  // namespace
}  // namespace seeksim::harness
