#include "harness/torch/check/folder_of_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "harness/input/files.h"
#include "harness/torch/check/command_words.h"
#include "harness/torch/job.h"
#include "harness/torch/scenario.h"

namespace seeksim::harness::torch {
namespace {

namespace fs = std::filesystem;

constexpr double kOneRun_s = 1800;  // of one run

Start start_with(const std::string& python) {
  Start start;
  start.python = find_python(python);
  start.built = build_backend(start.python);
  start.wall_limit_s = kOneRun_s;
  start.quiet = true;
  start.turns = {"states"};
  return start;
}

}  // namespace

FolderOfRuns::FolderOfRuns(std::vector<std::string> command, const std::string& python, const std::string& out,
                           const std::string& word)
    : command_(std::move(command)), start_(start_with(python)), folder_(out, word) {}

void FolderOfRuns::warm_up() {
  if (is_script(command_.front())) warm_.emplace(start_);
}

std::string FolderOfRuns::empty_folder(const std::string& name) const {
  std::string folder = path() + '/' + name;
  fs::remove_all(folder);
  make_folder(folder, "--out");
  return folder;
}

TorchRun FolderOfRuns::run(const std::string& name, const TorchScenario& scenario, const std::string& checkpoints,
                           const std::string& more, int attempt) const {
  const std::string folder = empty_folder(name);
  std::vector<std::string> command = command_;
  for (const std::string& word : words_of(more)) command.push_back(word);
  for (std::string& word : command) word = with_folder(word, checkpoints);
  Start start = start_;
  start.attempt = attempt;
  if (warm_) start.ranks_with = warm_->ranks_with();
  return run_in(folder, scenario, command, start);
}

TorchScenario scenario_for(const std::vector<std::string>& command, const std::string& file,
                           const std::vector<std::string>& sets, const std::optional<int>& np, double timeout_s) {
  TorchScenario scenario = load_torch_scenario(file, sets, np);
  if (scenario.name.empty()) scenario.name = script_name(command);
  const auto says_it = [](const std::string& set) {
    return set.starts_with("torch.timeout_s") || set.starts_with("torch=");
  };
  if (file.empty() && std::none_of(sets.begin(), sets.end(), says_it)) scenario.torch.timeout_s = timeout_s;
  return scenario;
}

TorchScenario of_attempt(const TorchScenario& scenario, const std::vector<std::string>& command, int attempt) {
  TorchScenario one = scenario;
  const bool all = !is_script(command.front());
  std::erase_if(one.faults,
                [&](const faults::Rule& rule) { return all ? attempt > 0 : rule.when.attempt.value_or(0) != attempt; });
  return one;
}

std::int64_t steps_of(const TorchRun& run) {
  std::int64_t steps = 0;
  for (const RankRun& rank : run.ranks)
    if (rank.record) steps = std::max(steps, std::int64_t(rank.record->steps.size()));
  return steps;
}

bool was_restarted(const TorchRun& run) {
  return std::any_of(run.ranks.begin(), run.ranks.end(),
                     [](const RankRun& rank) { return rank.record && rank.record->now.attempt > 0; });
}

bool ended_well(const TorchRun& run) {
  return run.job.stopped == Stopped::no && std::all_of(run.job.processes.begin(), run.job.processes.end(),
                                                       [](const ProcessRun& one) { return one.ending.good(); });
}

std::string failure(const TorchRun& run) {
  if (ended_well(run)) return "";
  const ProcessRun* first = nullptr;
  for (const ProcessRun& one : run.job.processes) {
    if (one.ending.good() || one.ended_by_us) continue;
    if (first == nullptr || one.after_s < first->after_s) first = &one;
  }
  if (first == nullptr) return run.job.why;
  return fmt::format("{} ended {}{}", first->rank < 0 ? "the launcher" : fmt::format("rank {}", first->rank),
                     how(first->ending), first->last_words.empty() ? "" : ": " + first->last_words);
}

bool names_a_folder(const std::vector<std::string>& command) {
  return std::any_of(command.begin(), command.end(),
                     [](const std::string& word) { return word.find(kFolderWord) != std::string::npos; });
}

}  // namespace seeksim::harness::torch
