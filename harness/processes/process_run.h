// One run on processes: what the leader asks all of them for, and what one of them does then as a rank of the run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "harness/processes/told.h"
#include "harness/scenario/scenario.h"
#include "kernels/fast_way.h"
#include "runtime/backend/machine/interrupts.h"
#include "runtime/backend/wire/wire.h"
#include "runtime/seams/time.h"

namespace seeksim::harness {

// What the leader asks all for. Scenarios travel as the JSON that they can be written back to.
struct RunRequest {
  bool over = false;
  std::string scenario, file;
  std::string folder;      // of the run's files; of a temporary one the name, which each host has in a place of its own
  bool temporary = false;  // it goes when the run is over
  std::string endpoint, token;
  std::int64_t gradients_of = -1;
  bool digest_gradients = false, keep_final_weights = false;
  bool nccl = false;                      // each process has a GPU, and NCCL carries what ranks send
  std::optional<kernels::FastWay> audit;  // fast arithmetic of this kind is compared with the contract's
};
std::string text_of(const RunRequest& request);
// Throws BadInput where it is none.
RunRequest request_from(const std::string& text);

// A scenario as it travels: only what training needs. What is judged, and against what, is the leader's business.
std::string to_travel(const Scenario& scenario);

// What `seeksim launch` gave this process; empty: it has no supervisor.
struct Supervision {
  std::string endpoint, token;
  runtime::TimeNs heartbeat_ns = 0;
};
std::optional<Supervision> supervision();

// Files of a run. A temporary folder lies in this process's place for temporary files. The process that makes it on a
// host removes it, and no process removes anything else, whatever the request says.
class RunFolder {
 public:
  // Throws BadInput.
  explicit RunFolder(const RunRequest& request);
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;
  ~RunFolder();

  static std::string new_name();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::optional<runtime::RemovedAtSignal> made_;  // it is this process's to remove
};

// Trains as rank `id` of the run, on the device that the request asks for, with files below `folder`, and reports what
// happened.
RankReport train_here(const RunRequest& request, const std::string& folder, runtime::Wire& wire, int id);

}  // namespace seeksim::harness
