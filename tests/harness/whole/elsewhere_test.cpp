// A failing run that was found, written down and shrunk on one machine fails alike on another: by its schedule string
// and as a shrunk scenario, to the bit, on each instruction set. data/elsewhere/recorded.json holds what `seeksim run
// --report` said on the machine that it names; each test run is on another machine, or should be.
//
// Where bits or schedules change for a reason (kernels, costs, decisions): make the file anew from the reports, and say
// why in the commit.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "kernels/isa.h"
#include "tests/support/paths.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;
using SortedJson = nlohmann::json;  // compares whatever the order of keys

std::string data(const std::string& name) { return paths::source_dir() + "/tests/harness/data/elsewhere/" + name; }

SortedJson recorded() { return SortedJson::parse(read_all(data("recorded.json"))); }

// What a process of its own says of one of the runs. before: what stands before the program's name in the command.
SortedJson said(const SortedJson& run, const std::string& before) {
  TemporaryFolder folder;
  const std::string report = folder.file("report.json");
  std::string command =
      before + " '" + paths::program() + "' run '" + data(run.at("file")) + "' --report '" + report + "' > /dev/null";
  if (run.contains("schedule")) command += " --schedule " + run.at("schedule").get<std::string>();
  const int status = std::system(command.c_str());
  if (!std::filesystem::exists(report)) return {{"no report from", command}};
  const SortedJson all = SortedJson::parse(read_all(report));
  SortedJson told = {{"file", run.at("file")}, {"exit_code", WEXITSTATUS(status)}, {"red", SortedJson::array()}};
  if (run.contains("schedule")) {
    told["schedule"] = all.at("schedule").at("string");
    told["decisions"] = all.at("schedule").at("decisions");
  }
  for (const SortedJson& check : all.at("checks")) {
    if (!check.at("ok").get<bool>()) told["red"].push_back(check.at("name"));
  }
  for (const char* key : {"fingerprint", "params_digest", "virtual_s", "loss", "grad_norm"}) told[key] = all.at(key);
  return told;
}

void replay_all(const std::string& before) {
  const SortedJson all = recorded();
  ASSERT_GE(all.at("runs").size(), 6u);
  for (const SortedJson& run : all.at("runs")) {
    EXPECT_EQ(said(run, before), run) << before << ", recorded on " << all.at("on");
    EXPECT_NE(run.at("exit_code"), 0) << "a run that fails is what this is about";
  }
}

class ElsewhereOn : public ::testing::TestWithParam<kernels::Isa> {};

TEST_P(ElsewhereOn, FailsAlike) {
  if (!kernels::cpu_has(GetParam())) GTEST_SKIP() << "this CPU has no " << kernels::name(GetParam());
  replay_all(std::string("SEEKSIM_ISA=") + kernels::name(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Sets, ElsewhereOn,
                         ::testing::Values(kernels::Isa::scalar, kernels::Isa::avx2, kernels::Isa::avx512),
                         [](const auto& one) { return std::string(kernels::name(one.param)); });

// Another machine, in a sense: QEMU computes with floating point of its own, in software.
TEST(Elsewhere, FailsAlikeOnAnEmulatedProcessor) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the address sanitizer does not run under QEMU";
#endif
  if (std::system("command -v qemu-x86_64 > /dev/null") != 0)
    GTEST_SKIP() << "there is no qemu-x86_64 (Debian: qemu-user)";
  replay_all("qemu-x86_64 -cpu max");
}

// The comparison can fail: another seed is another run.
TEST(Elsewhere, AnotherRunIsToldApart) {
  SortedJson run = recorded().at("runs").at(0);
  run.erase("schedule");
  run.erase("decisions");
  EXPECT_EQ(said(run, ""), run) << "the seed and the strategy stand in the file";
  EXPECT_NE(said(recorded().at("runs").at(2), "").at("fingerprint"), run.at("fingerprint"));
  run["file"] = "stale_copy_shrunk.json";
  EXPECT_NE(said(run, ""), run);
}

}  // namespace
}  // namespace seeksim::harness
