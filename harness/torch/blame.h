// Who is to blame for a collective that failed or never ended: from the ranks' own verdicts, or from their records.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/torch/run_record.h"

namespace seeksim::harness::torch {

struct Culprits {
  pytorch::Blame blame = pytorch::Blame::did_not_join;
  std::vector<int> ranks;    // launch ranks
  std::vector<int> waiting;  // who found out
  std::string collective;    // "all_reduce #8 of group 0 (step 2, backward)"
  double waited_s = 0;
  std::uint64_t joined = 0;  // collectives of the group that the first culprit joined
  std::int64_t step = 0;
};

// What the earliest verdicts say; none: no rank gave one.
std::optional<Culprits> culprits_by_verdict(const TorchRun& run);
// Who kept away from the collective that others wait in, in a job that was ended from outside; none: nobody waits.
std::optional<Culprits> culprits_by_record(const TorchRun& run);
// The first of the two that there is.
std::optional<Culprits> culprits_of(const TorchRun& run);
// Whether this is a wait that would never have ended, and no death or disagreement that was noticed.
bool is_hang(pytorch::Blame blame);

// "rank 1 did not join all_reduce #8 of group 0 (step 2, backward): ranks 0 and 2 waited 8.0 s. ..."
std::string sentence(const Culprits& culprits, const TorchRun& run);

}  // namespace seeksim::harness::torch
