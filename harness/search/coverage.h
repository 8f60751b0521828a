// Coverage: what runs of an exploration have reached, counted as features that are either seen or not. A run that adds
// one is worth being varied.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "harness/input/json.h"
#include "harness/record/run_record.h"

namespace seeksim::harness {

class Coverage {
 public:
  // One Op as a rank comes to it, in the order of the whole world.
  void see(const runtime::Op& op);
  // A run is over. Returns how many features it added.
  std::size_t add_run(const RunRecord& run, const std::vector<faults::Rule>& rules, const std::string& stopped);

  // Neighbouring Ops of different ranks, as (kind, phase): pairs that were seen in one order, and in both.
  std::size_t pairs() const;
  std::size_t pairs_in_both_orders() const;
  // A fault of this kind struck in an Op of this kind, in this phase.
  const std::map<std::string, std::uint64_t>& struck() const { return struck_; }
  // What recovery came to do: error, operation, verdict, how many left.
  const std::map<std::string, std::uint64_t>& branches() const { return branches_; }
  std::uint64_t times_struck(faults::FaultKind kind, runtime::OpKind op, runtime::Phase phase) const;

  Json json() const;
  void add(const Json& other);  // of another process

 private:
  using Act = std::uint32_t;  // kind and phase
  static Act act(const runtime::Op& op);

  std::set<std::pair<Act, Act>> orders_;
  std::map<std::string, std::uint64_t> struck_;
  std::map<std::string, std::uint64_t> branches_;
  int last_rank_ = -1;
  Act last_ = 0;
  std::size_t new_orders_ = 0;  // since the last run was over
};

}  // namespace seeksim::harness
