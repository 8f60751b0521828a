// `seeksim list schedule`: a pipeline's schedule as the runtime would run it, before anything is run.
#pragma once

#include <string>

#include "harness/report/report.h"
#include "harness/verdict/exit_status.h"

namespace seeksim::harness {

struct ScheduleArguments {
  std::string schedule = "1f1b";  // gpipe, 1f1b, interleaved, zero_bubble
  int stages = 4;
  int micro_batches = 8;
  int chunks = 0;  // 0: 1, or 2 where interleaved
  int group = 0;   // 0: as many as stages
  int stage = -1;  // the stage whose instructions are printed; -1: none
};

// The table in time, the share of waiting, what is in flight; for one stage its list, tick by tick. Throws BadInput.
ExitStatus schedule_command(const ScheduleArguments& arguments, const Style& style);

}  // namespace seeksim::harness
