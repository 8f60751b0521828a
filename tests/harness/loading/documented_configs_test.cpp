// The configurations that DeepSpeed and Hugging Face document run as they are: by path, pasted, and in plan and doctor.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/paths.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

class Documented : public ::testing::TestWithParam<const char*> {
 protected:
  std::string file() const {
    return seeksim::paths::source_dir() + "/tests/harness/data/configs/" + GetParam() + ".json";
  }
  static void run_well(const std::string& text, const TemporaryFolder& folder) {
    const Ran ran = testing::seeksim({"run", folder.write("s.json", text), "--set", "steps=2", "--set", "faults=[]"});
    EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
    EXPECT_NE(ran.out.find("golden:bitwise"), std::string::npos) << ran.out;
  }
};

INSTANTIATE_TEST_SUITE_P(Configs, Documented,
                         ::testing::Values("deepspeed_getting_started", "deepspeed_zero2", "deepspeed_zero3_cpu",
                                           "deepspeed_zero3_nvme", "deepspeed_bf16", "megatron", "huggingface_zero2",
                                           "huggingface_zero3"));

std::string scenario_with(const std::string& section) {
  std::string text = small_text_with(6, "  \"deepspeed\": " + section + ",");
  const std::size_t checks = text.find("\"checks\"");
  const std::size_t end = text.find('\n', checks);
  return text.replace(checks, end - checks, "\"checks\": [\"golden:bitwise\"]");
}

TEST_P(Documented, RunsByItsPath) { run_well(scenario_with('"' + file() + '"'), TemporaryFolder()); }

TEST_P(Documented, RunsPasted) { run_well(scenario_with(read_all(file())), TemporaryFolder()); }

TEST_P(Documented, IsPlannedAndFoundWellByTheDoctor) {
  const Ran plan = testing::seeksim(
      {"plan", file(), "--model", "layers=2,width=16,heads=2,vocab=32,context=8", "--gpus", "4", "--memory", "80GB"});
  EXPECT_EQ(plan.status, 0) << plan.out << plan.err;
  const Ran doctor = testing::seeksim({"doctor", "--config", file(), "--gpus", "4"});
  EXPECT_EQ(doctor.out.find("\n  wrong "), std::string::npos) << doctor.out;
}

TEST_P(Documented, WithASlipInAFieldItDoesNot) {
  std::string text = read_all(file());
  text.replace(text.rfind('}'), 1, ", \"hybrid_engine\": {\"enabeld\": true}}");
  EXPECT_NE(problems_of(scenario_with(text)).find("Did you mean \"enabled\"?"), std::string::npos);
}

}  // namespace
}  // namespace seeksim::harness
