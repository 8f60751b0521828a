// What DeepSpeed's own configuration classes take and refuse, drawn by tests/harness/loading/ds_configs.py, against
// what seeksim says of the same file. Needs a Python with DeepSpeed (SEEKSIM_TORCH_PYTHON); without it the test is
// skipped.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include <nlohmann/json.hpp>

#include "harness/loading/deepspeed/config_alone.h"
#include "harness/loading/deepspeed/not_built.h"
#include "tests/support/paths.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

// A difference that is meant, by what the side that refuses says.
struct Reason {
  bool by_seeksim;  // else by DeepSpeed
  const char* says;
  const char* why;
};

constexpr Reason kReasons[] = {
    {true, "0 to 127, since the loss is fp32",
     "DeepSpeed takes any power, and fails on its first step: the loss is fp32"},
    {true, "needs nvme_path", "DeepSpeed's classes take it, and its swapper fails"},
    {true, "0 buffers", "DeepSpeed's classes take it, and its swapper fails"},
    {true, "allgather_bucket_size: 0 at stage", "DeepSpeed's classes take it, and its first step divides by it"},
    {false, "\nzenflow.", "seeksim has not built ZenFlow, and does not look into the section"},
    {true, "legacy_stage1: DeepSpeed refuses", "refused by DeepSpeed's engine, not by its classes"},
    {true, "gradient_predivide_factor != 1.0", "refused by DeepSpeed's engine, not by its classes"},
    {true, "pre-scale gradients", "refused by DeepSpeed's engine, not by its classes"},
    {true, "is more than any machine has", "no machine has as many samples"},
    {true, "more samples than any machine has", "no machine has as many samples"},
};

bool is_meant(bool by_seeksim, const std::string& text) {
  for (const Reason& reason : kReasons) {
    if (reason.by_seeksim == by_seeksim && text.find(reason.says) != std::string::npos) return true;
  }
  return false;
}

struct Verdict {
  bool taken = true;
  std::string why;
};

Verdict of_seeksim(const Json& config) {
  const Document document = Document::from_text(Json({{"deepspeed", config}}).dump(), "ds.json");
  Verdict verdict;
  for (const Problem& problem : read_config_alone(document, 1).problems) {
    if (is_not_built(problem)) continue;
    verdict.taken = false;
    verdict.why += problem.text() + '\n';
  }
  return verdict;
}

// Counts the configurations, and tells each difference that has no reason.
int compare(std::istream& lines, std::vector<std::string>& differences) {
  int count = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] != '{') continue;
    const Json drawn = Json::parse(line);
    const Verdict ours = of_seeksim(drawn["config"]);
    const bool theirs = drawn["taken"];
    const std::string why = theirs ? ours.why : drawn.value("why", "");
    ++count;
    if (ours.taken != theirs && !is_meant(theirs, why))
      differences.push_back(
          fmt::format("{} takes {}\n  the other: {}", theirs ? "DeepSpeed" : "seeksim", drawn["config"].dump(), why));
  }
  return count;
}

TEST(DsDifferential, NightlyNoConfigurationIsJudgedOtherwise) {
  const char* python = std::getenv("SEEKSIM_TORCH_PYTHON");
  if (python == nullptr) GTEST_SKIP() << "SEEKSIM_TORCH_PYTHON is not set: `./seeksim test torch` makes one";
  const testing::TemporaryFolder folder;
  const std::string out = folder.file("drawn.jsonl");
  const std::string command = fmt::format(
      "DS_ACCELERATOR=cpu '{}' '{}/tests/harness/loading/ds_configs.py' 2500 > '{}'", python, paths::source_dir(), out);
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  std::ifstream lines(out);
  std::vector<std::string> differences;
  EXPECT_GE(compare(lines, differences), 2000);
  for (const std::string& difference : differences) ADD_FAILURE() << difference;
}

// The comparison sees what differs, in both directions.
TEST(DsDifferential, ADifferenceIsSeen) {
  std::istringstream lines(R"(a line of a logger
{"config": {"train_batch_size": 8}, "taken": false, "why": "TypeError: planted"}
{"config": {"train_batch_size": 8, "fp16": {"opt_level": "O1"}}, "taken": true}
{"config": {"train_batch_size": 8}, "taken": true}
{"config": {"train_batch_size": 8, "zero_optimization": {"stage": 4}}, "taken": false, "why": "stage"}
)");
  std::vector<std::string> differences;
  EXPECT_EQ(compare(lines, differences), 4);
  ASSERT_EQ(differences.size(), 2u) << fmt::format("{}", fmt::join(differences, "\n"));
  EXPECT_NE(differences[0].find("seeksim takes"), std::string::npos);
  EXPECT_NE(differences[1].find("DeepSpeed takes"), std::string::npos);
}

}  // namespace
}  // namespace seeksim::harness
