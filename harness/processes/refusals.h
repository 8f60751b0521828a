// What ranks in processes of their own cannot do: a scenario that needs it is refused by name before anything runs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "harness/input/problem.h"
#include "harness/run/one_run.h"

namespace seeksim::harness {

// Why this check cannot be made on processes; null: it can.
const char* why_not_judged(std::string_view check, bool nccl);
// Why the scenario cannot run on processes; empty: it can. backend: as --backend says. Checks that cannot be made are
// refused too: whoever skips them takes them out first.
std::vector<Problem> problems_on_mpi(const Scenario& scenario, const std::string& backend);
// The same of what else the command line asks for. Throws BadInput.
void refuse_options_on_mpi(const RunOptions& options, const std::string& backend);
// Loads MPI. Throws BadInput where it cannot be used; where: the option or command that asks for it.
void need_mpi(const std::string& where);

}  // namespace seeksim::harness
