// What rules do to allocations: they fail as a device without room fails them, though there is room. Also what a rank
// was last doing, since an allocation or a file's read says nothing of steps itself.
#pragma once

#include <vector>

#include "faults/trigger.h"

namespace seeksim::faults {

// What this rank did last, as its launches said it.
struct LastOps {
  runtime::Op launched;  // by the host, on any queue
  runtime::Op storage;   // begun by the storage queue
};

class MemoryFaults {
 public:
  MemoryFaults(int rank, runtime::Clock& clock, std::vector<RuleState*> rules)
      : rank_(rank), clock_(clock), rules_(std::move(rules)) {}

  // Throws SeamError{out_of_memory} where a rule says so. device: for what is in use.
  void before_allocation(const runtime::Device& device, runtime::Space space, std::size_t bytes, runtime::MemoryTag tag,
                         const char* name);
  // An allocation as an operation of this rank: where in a step it stands is where the last launch stood.
  runtime::Op as_op(std::size_t bytes, const char* name) const;
  // The same for what building a communicator takes.
  void before_communicator(const runtime::Op& op);

  LastOps last;

 private:
  int rank_;
  runtime::Clock& clock_;
  std::vector<RuleState*> rules_;
};

}  // namespace seeksim::faults
