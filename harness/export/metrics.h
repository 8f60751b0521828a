// Metrics for boards (--metrics): one JSON object a line, for each step of each rank of a run.
#pragma once

#include <functional>
#include <string>

#include "harness/input/json.h"
#include "harness/record/run_record.h"
#include "harness/record/step_log.h"

namespace seeksim::harness {

// docs/metrics.md names the fields. Steps that were undone are not there, as in the report. log: the steps of the
// ranks. alarms: the field "alarms" of a step; empty: there is no such field.
std::string metrics_lines(const RunRecord& run, const StepLog& log,
                          const std::function<Json(std::int64_t step)>& alarms = {});

}  // namespace seeksim::harness
