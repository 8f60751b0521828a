// Each committed step as each rank reported it, for --metrics. Kept only where it is asked for.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/detect/observer.h"

namespace seeksim::harness {

class StepLog {
 public:
  struct Memory {
    std::size_t now = 0;   // bytes on the rank's device when it committed
    std::size_t peak = 0;  // the most so far
  };
  struct Row {
    runtime::StepRecord told;
    std::optional<Memory> memory;  // empty on processes
    std::optional<double> score;   // of stragglers, where they are looked for
  };
  using Rows = std::map<std::pair<std::int64_t, int>, Row>;  // by step and rank

  // A run begins: nothing is known. memory_of: asked when a rank commits; empty: nobody knows.
  void begin(std::function<Memory(int rank)> memory_of);
  // The rank stands for so many, itself included.
  void stands_for(int rank, int ranks) { stands_for_[rank] = ranks; }
  void committed(int rank, const runtime::StepRecord& record);
  // Of all members, in this step; before or after it is committed.
  void scores(std::int64_t step, const std::vector<int>& ranks, const std::vector<double>& scores);
  // Steps from this one on are undone.
  void rolled_back(std::int64_t steps);

  const Rows& rows() const { return rows_; }
  // For how many ranks a rank stands, itself included.
  int weight(int rank) const;

 private:
  std::function<Memory(int rank)> memory_of_;
  std::map<int, int> stands_for_;
  Rows rows_;
  std::map<std::pair<std::int64_t, int>, double> scores_;
};

}  // namespace seeksim::harness
