// What stays of each run of an --out folder: the configuration that ran, the program, the golden and the result, beside
// the checkpoints that it wrote.
#pragma once

#include <string>
#include <vector>

#include "harness/input/json.h"

#include <nlohmann/json.hpp>

namespace seeksim::harness {

inline constexpr const char* kKeptRunSchema = "seeksim-run-1";

// Writes the record of one run. The folder is held by the run alone (FolderLock).
class RunKeeper {
 public:
  // out: --out; empty: nothing is kept. Throws BadInput.
  RunKeeper(const std::string& out, const Json& scenario, const std::string& name);
  void ended(const Json& report) const;

 private:
  std::string folder_, name_;
};

struct KeptRun {
  std::string folder;  // out/runs/0001
  Json run, scenario;  // run.json, scenario.json
};

// Whether a path is the record of a run.
bool is_kept_run(const std::string& path);
// Throws BadInput: not there, not JSON, of another version of the format.
KeptRun read_kept_run(const std::string& path);
// Those of a folder and of the folders below it, in order of their paths. What cannot be read is named in `problems`.
std::vector<KeptRun> kept_runs(const std::string& folder, std::vector<std::string>& problems);

}  // namespace seeksim::harness
