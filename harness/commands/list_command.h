// `seeksim list`: what there is. Returns the exit status.
#pragma once

#include <string>

#include "harness/report/report.h"
#include "harness/verdict/exit_status.h"

namespace seeksim::harness {

// what: scenarios, faults, checks, keys. Throws BadInput for another word.
ExitStatus list_command(const std::string& what, const Style& style);

}  // namespace seeksim::harness
