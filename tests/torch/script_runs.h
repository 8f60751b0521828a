// Runs of real scripts with a real torch, for tests: the command, its reports and its comparisons. ./seeksim test torch
// makes the environment and sets SEEKSIM_TORCH_PYTHON; without it all tests on this fixture are skipped.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "harness/torch/child.h"
#include "tests/support/paths.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness::torch::testing {

using nlohmann::json;

inline constexpr double kLimit_s = 1200;  // the first call builds the backend

class ScriptRuns : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* python = std::getenv("SEEKSIM_TORCH_PYTHON");
    if (python == nullptr) GTEST_SKIP() << "takes torch: ./seeksim test torch makes an environment with it";
    python_ = python;
  }

  static std::string example(const std::string& name) { return paths::source_dir() + "/examples/pytorch/" + name; }

  // seeksim torch ..., and what it printed.
  Captured seeksim(const std::vector<std::string>& arguments) {
    std::vector<std::string> command = {paths::program(), "torch"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return capture(command, {{"COLUMNS", "0"}}, kLimit_s);
  }

  // A run with its records in a folder of this name.
  Captured run(const std::string& name, std::vector<std::string> options, const std::vector<std::string>& script) {
    std::vector<std::string> arguments = {"run", "--python", python_, "--out", folder_.file(name)};
    arguments.insert(arguments.end(), options.begin(), options.end());
    arguments.emplace_back("--");
    arguments.insert(arguments.end(), script.begin(), script.end());
    return seeksim(arguments);
  }
  json report(const std::string& name) const {
    const json report = json::parse(harness::testing::read_all(folder_.file(name + "/report.json")), nullptr, false);
    if (!report.is_object()) throw std::runtime_error(name + " left no report");
    return report;
  }
  json compared(const std::string& a, const std::string& b, int status) {
    const Captured ran = seeksim({"compare", folder_.file(a), folder_.file(b), "--json"});
    EXPECT_EQ(ran.ending.status, status) << ran.out << ran.err;
    return json::parse(ran.out, nullptr, false);
  }
  bool has(const std::string& package) const {
    return capture({python_, "-c", "import " + package}, {}, kLimit_s).ending.good();
  }
  static bool is_red(const json& report, const std::string& check) {
    for (const json& one : report["checks"])
      if (one["name"] == check) return !one["ok"].get<bool>();
    return false;
  }
  static std::string detail(const json& report, const std::string& check) {
    for (const json& one : report["checks"])
      if (one["name"] == check) return one["detail"];
    return "";
  }

  std::string python_;
  harness::testing::TemporaryFolder folder_;
};

// How a run ended, before all that it printed: who shows a failure may cut it in the middle.
inline std::string verdict_first(const Captured& ran) {
  std::string text = "how it ended:\n";
  std::istringstream lines(ran.out + ran.err);
  std::deque<std::string> last;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("  FAIL", 0) == 0) text += line + '\n';
    last.push_back(line);
    if (last.size() > 12) last.pop_front();
  }
  for (const std::string& line : last) text += line + '\n';
  return text + "all of it:\n" + ran.out + ran.err;
}

#define EXPECT_STATUS(ran, wanted)                                                                              \
  do {                                                                                                          \
    const Captured& status_of = (ran);                                                                          \
    EXPECT_EQ(status_of.ending.signal, 0) << ::seeksim::harness::torch::testing::verdict_first(status_of);      \
    EXPECT_EQ(status_of.ending.status, wanted) << ::seeksim::harness::torch::testing::verdict_first(status_of); \
  } while (false)

}  // namespace seeksim::harness::torch::testing
