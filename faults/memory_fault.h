// What rules do to allocations: they fail as on a full device, though there is room. Also keeps what a rank was last
// doing, since an allocation or a file's read does not say to which step it belongs.
#pragma once

#include <vector>

#include "faults/trigger.h"

namespace seeksim::faults {

// What this rank did last, according to its launches.
struct LastOps {
  runtime::Op launched;  // by the host, on any queue
  runtime::Op storage;   // begun by the storage queue
};

class MemoryFaults {
 public:
  MemoryFaults(int rank, runtime::Clock& clock, std::vector<RuleState*> rules)
      : rank_(rank), clock_(clock), rules_(std::move(rules)) {}

  // Throws SeamError{out_of_memory} if a rule says so. device: to ask how much is in use.
  void before_allocation(const runtime::Device& device, runtime::Space space, std::size_t bytes, runtime::MemoryTag tag,
                         const char* name);
  // An allocation as an operation of this rank. Its place in a step is that of the last launch.
  runtime::Op as_op(std::size_t bytes, const char* name) const;
  // The same for the memory that building a communicator takes.
  void before_communicator(const runtime::Op& op);

  LastOps last;

 private:
  int rank_;
  runtime::Clock& clock_;
  std::vector<RuleState*> rules_;
};

}  // namespace seeksim::faults
