// Old releases of torch: each gets an environment of its own and a backend built for it, and holds what docs/pytorch.md
// says of the newest. .ci/run nightly runs these. Where a release cannot be had, its tests are skipped and say why.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "harness/releases/environment.h"
#include "tests/torch/script_runs.h"

namespace seeksim::harness::torch {
namespace {

using nlohmann::json;

class TorchVersionsNightly : public testing::ScriptRuns, public ::testing::WithParamInterface<std::string> {
 protected:
  void SetUp() override {
    ScriptRuns::SetUp();
    if (IsSkipped()) return;
    try {
      python_ = releases::make_environment({"torch==" + GetParam()}, "").python;
    } catch (const releases::CannotBeHad& why) {
      GTEST_SKIP() << why.what();
    }
  }
  // FSDP2 of torch 2.6 wants streams, which a CPU does not have there.
  bool has_fsdp2() const { return GetParam() != "2.6.0"; }
};

TEST_P(TorchVersionsNightly, UsesTheSameBitsInEachLayout) {
  const std::string layouts = example("layouts.py");
  EXPECT_STATUS(run("ddp", {"--np", "2"}, {layouts}), 0);
  EXPECT_EQ(report("ddp")["torch"].get<std::string>().rfind(GetParam(), 0), 0U) << report("ddp")["torch"];
  EXPECT_STATUS(run("fsdp1", {"--np", "2"}, {layouts, "--layout", "fsdp1"}), 0);
  EXPECT_EQ(compared("ddp", "fsdp1", 0)["grade"], "bits");
  if (!has_fsdp2()) return;
  EXPECT_STATUS(run("fsdp2", {"--np", "2"}, {layouts, "--layout", "fsdp2"}), 0);
  EXPECT_EQ(compared("ddp", "fsdp2", 0)["grade"], "bits");
}

TEST_P(TorchVersionsNightly, ShowsWhatIsPlanted) {
  EXPECT_STATUS(run("ddp", {"--np", "2"}, {example("ddp.py")}), 0);
  EXPECT_STATUS(run("flipped", {example("bit_flip.json")}, {example("ddp.py")}), 0);
  EXPECT_EQ(compared("ddp", "flipped", 1)["first"]["step"], 3);
  EXPECT_STATUS(run("drifts", {"--np", "2"}, {example("ddp_no_sync.py")}), 1);
  EXPECT_TRUE(is_red(report("drifts"), "replicas_equal"));
  EXPECT_STATUS(run("hangs", {example("never_joins.json")}, {example("ddp.py")}), 0);
  EXPECT_EQ(report("hangs")["culprits"]["ranks"], json::array({1}));
}

// Every operation of torch.distributed on 2, 3 and 4 ranks, and more.
TEST_P(TorchVersionsNightly, TheBackendHoldsItsClaims) {
  const Captured ran = capture({python_, paths::source_dir() + "/tests/pytorch/conformance.py"}, {}, 1500);
  EXPECT_FALSE(ran.out_of_time);
  EXPECT_STATUS(ran, 0);
}

INSTANTIATE_TEST_SUITE_P(Torch, TorchVersionsNightly, ::testing::Values("2.6.0", "2.9.1", "2.12.0"),
                         [](const auto& one) {
                           std::string name = one.param;
                           std::replace(name.begin(), name.end(), '.', '_');
                           return "Release" + name;
                         });

}  // namespace
}  // namespace seeksim::harness::torch
