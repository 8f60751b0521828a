// A report as one HTML file: what a run did, for people who would rather look than read. It computes nothing: its
// numbers are the JSON report's, its lines are the story's, its bars are the timeline's.
#pragma once

#include <string>

#include "harness/input/json.h"
#include "harness/record/golden.h"
#include "harness/record/run_record.h"
#include "sim/timeline.h"

namespace seeksim::harness::html {

struct PageInput {
  const Json& report;                       // of a run, a fault plan, a sweep, or of what could not be run
  std::string command;                      // that runs it again, without its seed
  bool redact = false;                      // without names, paths and hosts (redact.h)
  const RunRecord* run = nullptr;           // of a single run: its story; null: there is none
  const sim::Timeline* timeline = nullptr;  // null: there is none, as on processes
  const Golden* golden = nullptr;           // for its curves; null: nothing was compared with one
};

// The whole file.
std::string report_page(const PageInput& input);

}  // namespace seeksim::harness::html
