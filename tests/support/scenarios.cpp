#include "tests/support/scenarios.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "harness/commands/cli.h"
#include "harness/input/problem.h"
#include "harness/loading/load.h"

namespace seeksim::harness::testing {
namespace {

const std::vector<std::string>& small_lines() {
  static const std::vector<std::string> lines = {
      R"({)",
      R"(  "name": "small",)",
      R"(  "model": { "family": "gpt2", "layers": 1, "width": 16, "heads": 2, "context": 8, "vocab": 256 },)",
      R"(  "data": { "synthetic": true },)",
      R"(  "world": { "nodes": 2, "ranks_per_node": 2, "network": "ib" },)",
      R"(  "deepspeed": { "train_batch_size": 8, "train_micro_batch_size_per_gpu": 1, "optimizer": { "type": "AdamW", "params": { "lr": 1e-3 } } },)",
      R"(  "steps": 4,)",
      R"(  "faults": [ { "kind": "collective_timeout", "rank": 2, "step": 1, "op": "all_reduce" } ],)",
      R"(  "recovery": { "policy": "rebuild_and_redo", "watchdog_s": 60 },)",
      R"(  "checks": [ "golden:bitwise", "ranks_agree", "culprit:2" ])",
      R"(})"};
  return lines;
}

}  // namespace

std::string small_text() { return small_text_with(0, ""); }

std::string small_text_with(int line, const std::string& text) {
  std::string all;
  const auto& lines = small_lines();
  for (int i = 0; i < int(lines.size()); ++i) all += (i + 1 == line ? text : lines[std::size_t(i)]) + '\n';
  return all;
}

Scenario small_scenario() { return load_scenario_text(small_text(), "s.json"); }

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "seeksim.XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string TemporaryFolder::write(const std::string& name, const std::string& content) const {
  std::ofstream(file(name), std::ios::binary) << content;
  return file(name);
}

std::string read_all(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

Ran seeksim(const std::vector<std::string>& arguments) {
  Ran ran;
  ::setenv("COLUMNS", "0", 1);  // what a test looks for must not be folded
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  ran.status = main_of(arguments);
  ran.out = ::testing::internal::GetCapturedStdout();
  ran.err = ::testing::internal::GetCapturedStderr();
  return ran;
}

std::string problems_of(const std::string& text, const std::vector<std::string>& sets, const std::string& file) {
  try {
    LoadOptions options;
    options.sets = sets;
    load_scenario_text(text, file, options);
    return "";
  } catch (const BadInput& bad) {
    return bad.what();
  }
}

std::function<void(RunRecord&)> applied_late(const std::vector<std::vector<std::int64_t>>& by_clock) {
  return [by_clock](RunRecord& run) {
    for (std::size_t clock = 0; clock < by_clock.size(); ++clock)
      run.agreement.late.push_back(
          {.step = std::int64_t(clock), .clock = std::int64_t(clock), .made = by_clock[clock]});
  };
}

void make_a_set(Scenario& scenario) {
  scenario.train.definition.data.sampler = {runtime::SampleOrder::sequential, -1, 20, false};
  scenario.train.definition.global_batch = 8;
}

void use_in_order(RunRecord& run) {
  for (std::int64_t step = 0; step < 4; ++step) {
    run.steps[std::size_t(step)].data_position = 8 * (step + 1);
    run.training.samples.push_back({});
    for (std::int64_t i = 0; i < 8; ++i) run.training.samples.back().rows.push_back((8 * step + i) % 20);
  }
}

RunRecord good_run(int ranks) {
  RunRecord run;
  run.virtual_ns = 10 * runtime::kSecond;
  run.fingerprint = 42;
  run.ranks.resize(std::size_t(ranks));
  for (RankRecord& rank : run.ranks) {
    rank.how = RankRecord::How::finished;
    rank.steps_committed = 4;
    rank.state.params = 0x1111;
    rank.state.optimizer = 0x2222;
    rank.state.data_position = 32;
    rank.state.optimizer_steps = 4;
    rank.state.by_tensor = {{"wte.weight", 0x3333}, {"ln_f.bias", 0x4444}};
  }
  for (int step = 0; step < 4; ++step) {
    runtime::StepRecord record;
    record.step = step;
    record.loss = 5.5f - float(step);
    record.grad_norm = 1.0f + float(step);
    record.lr = 1e-3;
    record.committed_ns = (step + 1) * runtime::kSecond;
    run.steps.push_back(record);
  }
  run.training.step_comparisons = std::uint64_t(4 * (ranks - 1));
  run.traffic.comm.resize(std::size_t(runtime::OpKind::count_));
  run.memory.peak_by_tag.resize(std::size_t(runtime::MemoryTag::count_));
  return run;
}

Recovery recovery_naming(std::vector<int> culprits, std::vector<std::pair<int, int>> links) {
  Recovery recovery;
  recovery.step = 1;
  recovery.first_rank = 0;
  recovery.error = runtime::ErrorKind::timeout;
  recovery.diagnosis.verdict = links.empty() ? runtime::Verdict::never_joined : runtime::Verdict::link;
  recovery.diagnosis.culprits = std::move(culprits);
  recovery.diagnosis.links = std::move(links);
  recovery.diagnosis.text = "somebody did something";
  recovery.detected_ns = 2 * runtime::kSecond;
  recovery.agreed_ns = 3 * runtime::kSecond;
  recovery.rebuilt_ns = 4 * runtime::kSecond;
  recovery.resumed_ns = 5 * runtime::kSecond;
  recovery.survivors = {0, 1, 3};
  return recovery;
}

}  // namespace seeksim::harness::testing
