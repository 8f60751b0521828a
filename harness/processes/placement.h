// Which process takes which GPU, and whether NCCL lets several share one.
#pragma once

#include <string>
#include <vector>

#include "harness/input/problem.h"

namespace seeksim::harness {

// The number, among the GPUs that this process sees, of the one it takes: by its launcher's count on the host.
int gpu_of_process(int rank);
// What tells that GPU from all others; empty where there is none, or it does not answer.
std::string identity_of_own_gpu(int rank);
// What is wrong with the first `ranks` processes on these GPUs, by rank; none: nothing. version, enabled: as for
// runtime::gpu_sharing_problem.
std::vector<Problem> problems_of_sharing(const std::vector<std::string>& gpus, int ranks, int version,
                                         const char* enabled);

}  // namespace seeksim::harness
