// `run --watch`: the run again whenever what it reads has changed.
#pragma once

#include <string>
#include <vector>

#include "harness/verdict/exit_status.h"

namespace seeksim::harness {

// Runs `program` with `arguments` in a process of its own, then again each time a scenario of `files`, a file that one
// of them names, or the program itself has changed, until a signal asks this process to end. A run is never cut short
// by a change. Returns the status of the last run. Throws BadInput where the program cannot be started.
ExitStatus watch(const std::string& program, const std::vector<std::string>& arguments,
                 const std::vector<std::string>& files);

}  // namespace seeksim::harness
