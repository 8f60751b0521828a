// Collectives as all their members recorded them: whether they meant the same, and who kept the others waiting.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "harness/oracles/finding.h"
#include "harness/torch/run_record.h"

namespace seeksim::harness::torch {

// Every collective of every group, as each member recorded it: operation, reduction, type, size and root agree. Names
// the odd ones out, and where in the script both sides stood.
Finding collectives_match(const TorchRun& run);
// How many collectives at least two ranks recorded.
std::size_t collectives_compared(const TorchRun& run);

// Who came last to a collective that every member ended, and when.
struct LastComer {
  int rank = 0;
  std::int64_t at_ns = 0;
  std::int64_t before_ns = 0;  // when the one before it had come
};
// By group and number in it. Of those only in which all members came.
std::map<std::pair<GroupId, std::uint64_t>, LastComer> last_comers(const TorchRun& run);

// What ranks waited for each other in collectives of their steps, as their clock (one for a machine) has it. Only
// collectives that every member ended count.
struct Waits {
  struct OfRank {
    std::uint64_t last = 0;  // times that it came more than a millisecond after all others
    double kept_s = 0;       // by how much, in all: what the others would have saved had it come with them
    double waited_s = 0;     // for whoever came last
    std::map<pytorch::StepPhase, double> kept_in_s;  // kept_s, by where the collective was
  };
  std::vector<OfRank> ranks;  // by launch rank
  std::uint64_t collectives = 0;
  double span_s = 0;  // from the first of them to the last
  // Who kept the others waiting longest; -1: nobody did.
  int slowest() const;
};
Waits waits_of(const TorchRun& run);
// A line of the report; empty where there is nothing to compare.
std::string sentence(const Waits& waits);

}  // namespace seeksim::harness::torch
