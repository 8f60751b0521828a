// Parts of a page, each from the report's own fields. All return HTML, empty where the report has nothing to show.
#pragma once

#include <string>

#include "harness/input/json.h"
#include "harness/record/golden.h"

namespace seeksim::harness::html {

// Its times are of a real clock: ranks were processes.
bool on_processes(const Json& report);
// The verdict in words, and the figures of the run.
std::string verdict_part(const Json& report);
std::string problems_part(const Json& report);
std::string checks_part(const Json& report);
// The first wrong operation, with both values side by side.
std::string names_part(const Json& report);
// Loss, norm, scale, step time; and each number in a table.
std::string curves_part(const Json& report, const Golden* golden);
std::string memory_part(const Json& report);
std::string traffic_part(const Json& report);
std::string fault_plan_part(const Json& report);
// What only real processes know: jobs that ended before their time, and how each rank ended. Of `launch`.
std::string processes_part(const Json& report);
std::string again_part(const Json& report, const std::string& command);

}  // namespace seeksim::harness::html
