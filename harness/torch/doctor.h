// What a machine and a Python have for seeksim torch.
#pragma once

#include <string>

#include "harness/report/report.h"
#include "harness/verdict/exit_status.h"

namespace seeksim::harness::torch {

// Prints what was found and what is missing. Status 2 where the user's scripts cannot run under seeksim here.
ExitStatus doctor(const std::string& python, const Style& style);

}  // namespace seeksim::harness::torch
