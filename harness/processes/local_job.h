// The processes of a job on this host, started without MPI: each gets torchrun's variables, so that they meet over TCP
// on loopback.
#pragma once

#include <string>
#include <vector>

namespace seeksim::harness {

// Starts `words` once a rank, waits for all, and ends the calling process with the first status that is not 0: 128 + n
// where signal n ended a process, 127 where there is no such program. As under mpirun, the others are ended when one
// ends like that, and when a signal asks this process to end (interrupts.h).
[[noreturn]] void run_local_job(const std::vector<std::string>& words, int ranks);

}  // namespace seeksim::harness
