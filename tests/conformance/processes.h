// The claims on real processes: this program again, started once for all claims by mpirun, or a process a rank with
// torchrun's variables.
#pragma once

namespace seeksim::conformance {

inline constexpr const char* kProcess =
    "SEEKSIM_CONFORMANCE";  // set: this process is a rank, by "mpi", "tcp" or "nccl"
inline constexpr int kRanks = 5;

struct Claim;
// Why a claim is not held by so many processes of this kind; null: it is.
const char* why_not(const Claim& claim, bool over_nccl, int processes);

// One rank's part of all claims. Prints "claim NAME rank R: holds | fails" lines; 0 when it came to the end.
int run_as_rank(const char* by);

}  // namespace seeksim::conformance
