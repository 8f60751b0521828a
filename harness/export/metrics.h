// Metrics for boards (--metrics): one JSON object a line, for each step of a run.
#pragma once

#include <string>

#include "harness/record/run_record.h"

namespace seeksim::harness {

// docs/metrics.md names the fields. Steps that were undone are not there, as in the report.
std::string metrics_lines(const RunRecord& run);

}  // namespace seeksim::harness
