// seeksim explore: looks for failures that no scenario describes yet, on all cores of this machine, and under mpirun
// or srun on all machines: the launcher's variables say which share of the cases is this process's.
#pragma once

#include "harness/report/report.h"
#include "harness/search/exploration.h"

namespace seeksim::harness {

// Throws BadInput. Exit status: check_failed where anything was found.
ExitStatus explore_command(const ExploreArguments& arguments, const Style& style);

}  // namespace seeksim::harness
