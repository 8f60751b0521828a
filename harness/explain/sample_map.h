// Which samples of a step a rank's micro-batch holds, in whichever world the run has come to.
#pragma once

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "harness/record/run_record.h"
#include "harness/scenario/scenario.h"
#include "runtime/layout/shard.h"

namespace seeksim::harness {

// Where a rank stands: which samples its micro-batches hold.
class SampleMap {
 public:
  // record: of the same run, for its members after each recovery.
  SampleMap(const Scenario& scenario, const RunRecord* record);
  runtime::SampleRange samples(int rank, std::uint32_t epoch, int micro_batch) const;  // empty: not known
  bool joins_in(int rank, std::uint32_t epoch) const;  // it was taken in with this epoch
  int way(int rank) const;
  int ways() const;

 private:
  const Scenario& scenario_;
  std::map<std::uint32_t, std::vector<int>> members_;  // by epoch
  std::set<std::pair<std::uint32_t, int>> joined_;     // epoch and rank
};

}  // namespace seeksim::harness
