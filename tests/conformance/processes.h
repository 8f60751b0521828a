// The claims on real processes: this program again, started once for all claims by mpirun, or a process a rank with
// torchrun's variables.
#pragma once

namespace seeksim::conformance {

inline constexpr const char* kProcess =
    "SEEKSIM_CONFORMANCE";  // set: this process is a rank, by "mpi", "tcp" or "nccl"
inline constexpr int kRanks = 5;

struct Claim;
// Why this many processes of this kind do not run a claim; null: they run it.
const char* why_not(const Claim& claim, bool over_nccl, int processes);

// One rank's part of all claims. Prints "claim NAME rank R: holds | fails" lines. Returns 0 if it reached the end.
int run_as_rank(const char* by);

}  // namespace seeksim::conformance
