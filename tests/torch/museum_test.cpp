// Released bugs, on the real releases; .ci/run nightly runs them. Releases are installed from PyPI: where that cannot
// be had, the tests are skipped and say why.

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "harness/torch/child.h"
#include "tests/support/paths.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness::torch {
namespace {

constexpr double kMuseumLimit_s = 7200;  // of all exhibits
constexpr int kCannotBeHad = 5;

class MuseumOfReleases : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::getenv("SEEKSIM_TORCH_PYTHON") == nullptr)
      GTEST_SKIP() << "takes torch: ./seeksim test torch makes an environment with it";
  }

  // seeksim torch ..., and what it printed.
  static Captured seeksim(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {paths::program(), "torch"});
    return capture(arguments, {{"COLUMNS", "0"}}, kMuseumLimit_s);
  }

  static void expect_red_and_green(const std::vector<std::string>& names) {
    std::vector<std::string> arguments = {"museum"};
    arguments.insert(arguments.end(), names.begin(), names.end());
    const Captured ran = seeksim(arguments);
    if (ran.ending.status == kCannotBeHad) GTEST_SKIP() << ran.out;
    EXPECT_EQ(ran.ending.status, 0) << ran.out << ran.err;
    EXPECT_EQ(ran.out.find("NOT AS EXPECTED"), std::string::npos) << ran.out;
  }
};

TEST_F(MuseumOfReleases, TheQuickOnesAreRedAndGreen) {
  expect_red_and_green({"torch_static_graph_no_sync", "torch_nadam_resume", "accelerate_resume_order"});
}

TEST_F(MuseumOfReleases, AllAreRedAndGreen) { expect_red_and_green({}); }

TEST_F(MuseumOfReleases, BisectNamesTheReleaseThatBroughtTheLostMicroBatches) {
  const Captured ran = seeksim({"bisect", "--exhibit", "deepspeed_zero2_last_micro_batch", "--good", "0.17.5"});
  if (ran.ending.status == kCannotBeHad) GTEST_SKIP() << ran.out;
  EXPECT_EQ(ran.ending.status, 0) << ran.out << ran.err;
  EXPECT_NE(ran.out.find("deepspeed 0.17.6 is the first release that is red; 0.17.5 is green"), std::string::npos)
      << ran.out;
}

TEST_F(MuseumOfReleases, ATableByReleaseHasAColumnForEach) {
  const harness::testing::TemporaryFolder folder;
  const std::string table = paths::source_dir() + "/examples/pytorch/layouts.table.json";
  const std::string file = folder.write("releases.json", R"({"table": ")" + table + R"(",
    "only": ["optimizer=sgd", "layout=zero1", "np=2", "accumulation=1", "clip=0", "precision=fp32"],
    "packages": [{"package": "deepspeed", "versions": ["0.18.9", "0.19.8"], "with": ["torch==2.15.0"]},
                 {"package": "no-such-package-of-anybody", "versions": ["1.0"]}]})");
  const Captured ran = seeksim({"releases", file, "--out", folder.file("out")});
  if (ran.out.find("deepspeed 0.19.8") == std::string::npos) GTEST_SKIP() << ran.out;
  EXPECT_EQ(ran.ending.status, kCannotBeHad) << ran.out << ran.err;
  EXPECT_NE(ran.out.find("| deepspeed 0.18.9 | deepspeed 0.19.8 | why |"), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("| bits | bits |  |"), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("no-such-package-of-anybody 1.0: "), std::string::npos) << ran.out;
}

TEST_F(MuseumOfReleases, AReleaseThatThereIsNotCannotBeHad) {
  const Captured ran = seeksim({"bisect", "--package", "no-such-package-of-anybody", "--good", "1", "--bad", "2", "--",
                                paths::source_dir() + "/examples/pytorch/ddp.py"});
  EXPECT_EQ(ran.ending.status, kCannotBeHad) << ran.out << ran.err;
}

}  // namespace
}  // namespace seeksim::harness::torch
