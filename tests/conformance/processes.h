// The claims on real processes: this program again, started once for all claims by mpirun, or a process a rank with
// torchrun's variables.
#pragma once

namespace seeksim::conformance {

inline constexpr const char* kProcess = "SEEKSIM_CONFORMANCE";  // set: this process is a rank, by "mpi" or "tcp"
inline constexpr int kRanks = 5;

// One rank's part of all claims. Prints "claim NAME rank R: holds | fails" lines; 0 when it came to the end.
int run_as_rank(const char* by);

}  // namespace seeksim::conformance
