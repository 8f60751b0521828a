// Several scenarios in one call: each in a forked process, as many at once as there are cores, so that a crash of one
// is that scenario's failure and the others go on. Printed in the order given.
#pragma once

#include <string>
#include <vector>

#include "harness/run.h"

namespace seeksim::harness {

struct Job {
  std::string file;
  RunOptions options;
};

// One outcome a job, same order. processes: at most so many at once; 0: one a core.
std::vector<Outcome> run_all(const std::vector<Job>& jobs, const LoadOptions& load, int processes, const Print& print);

}  // namespace seeksim::harness
