// One script run several times, each run in a folder of its own: undisturbed, broken off, resumed. And how one ended.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/torch/check/kept_folder.h"
#include "harness/torch/check/warm.h"
#include "harness/torch/run.h"

namespace seeksim::harness::torch {

class FolderOfRuns {
 public:
  // command: a script or a launcher, in whose arguments {dir} stands for a folder of checkpoints. out: --out, empty: a
  // temporary folder with `word` in its name. Builds the backend; throws BadInput where that cannot be done.
  FolderOfRuns(std::vector<std::string> command, const std::string& python, const std::string& out,
               const std::string& word);
  FolderOfRuns(const FolderOfRuns&) = delete;
  FolderOfRuns& operator=(const FolderOfRuns&) = delete;

  // From now on ranks start from a process that has imported torch, where the command is a script.
  void warm_up();
  // A folder of this name with nothing in it.
  std::string empty_folder(const std::string& name) const;
  // Runs the command with its records in the folder `name`. more: arguments behind its own. attempt: how often it was
  // started before. Throws as run_script().
  TorchRun run(const std::string& name, const TorchScenario& scenario, const std::string& checkpoints,
               const std::string& more = "", int attempt = 0) const;

  const std::string& torch() const { return start_.built.torch; }
  const std::string& path() const { return folder_.path(); }
  bool temporary() const { return folder_.temporary(); }
  void keep() { folder_.keep(); }

 private:
  std::vector<std::string> command_;
  Start start_;
  KeptFolder folder_;
  std::optional<WarmStart> warm_;
};

// The scenario of a command, called by its script where it has no name. timeout_s: how long a rank waits for another,
// where neither a scenario nor a setting says it. Throws as load_torch_scenario().
TorchScenario scenario_for(const std::vector<std::string>& command, const std::string& file,
                           const std::vector<std::string>& sets, const std::optional<int>& np, double timeout_s);
// The scenario with those of its rules that can strike in this start of the job. A launcher starts it again by itself:
// its first start gets all rules, and no later one any.
TorchScenario of_attempt(const TorchScenario& scenario, const std::vector<std::string>& command, int attempt);
// Steps of the rank that made most.
std::int64_t steps_of(const TorchRun& run);
// Whether a launcher started the ranks again.
bool was_restarted(const TorchRun& run);
bool ended_well(const TorchRun& run);
// How a run ended that ought to have ended well; empty: it did.
std::string failure(const TorchRun& run);
// Whether some word of the command has {dir} in it.
bool names_a_folder(const std::vector<std::string>& command);

}  // namespace seeksim::harness::torch
