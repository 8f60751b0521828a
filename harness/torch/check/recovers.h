// "Does my script recover?": undisturbed, broken off and resumed its own way; the two have to end with the same bits.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/report/outcome.h"
#include "harness/report/report.h"
#include "harness/torch/check/check.h"
#include "harness/torch/check/resumed.h"

namespace seeksim::harness::torch {

inline constexpr const char* kRecoversSchema = "seeksim-torch-recovers-1";

struct RecoversRequest {
  std::vector<std::string> command;  // behind --: a script or a launcher; {dir}: the folder of its checkpoints
  std::string scenario;              // file; its faults disturb; empty: none
  std::vector<std::string> sets;     // --set
  std::string resume;                // --resume: arguments with which it goes on; empty: the same command again
  std::string how;                   // --how: "kill" or "hang"
  bool again = false;                // --again: and once more, in the first step after it was resumed
  std::optional<std::int64_t> step;  // --step: in which the last rank is killed or hangs; unset: drawn
  std::uint64_t seed = 1;            // --seed: of that draw
  std::optional<int> np;             // --np
  std::string python;                // --python
  std::string out;                   // --out: the runs, each in a folder; empty: a temporary one that goes again
  bool quiet = false;                // nothing but the result is printed
  Style style;
};

// Runs it twice, or three times where the launcher does not restart the ranks itself (once more for each start that
// its faults break), and tells each line as it is known. Status 1 where a line is red. Throws BadInput: no script, no
// {dir}, no checkpoint, a step that is not there, or the script fails by itself.
Outcome run_recovers(const RecoversRequest& request, const Print& print);

// The step in which to disturb: from the first one that begins with a checkpoint to the last one.
std::int64_t drawn_step(std::int64_t first_saved, std::int64_t steps, std::uint64_t seed);
// The first step that begins with a file of a checkpoint written; empty: nothing was saved.
std::optional<std::int64_t> first_saved(const TorchRun& run);

}  // namespace seeksim::harness::torch
