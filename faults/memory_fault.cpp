// Allocations that fail though there is room.
#include "faults/memory_fault.h"

namespace seeksim::faults {

using runtime::Op;
using runtime::OpKind;
using runtime::Space;

namespace {

// Whether the rule means this allocation, before it is counted.
bool is_about(const Rule& rule, const runtime::Device& device, Space space, std::size_t bytes, runtime::MemoryTag tag) {
  if (!rule.tag.empty() && rule.tag != name(tag)) return false;
  if (rule.kind == FaultKind::pinned_alloc_failure) return space == Space::pinned;
  if (space != Space::device) return false;
  return rule.bytes == 0 || device.use_total(space).now + bytes > rule.bytes;
}

}  // namespace

Op MemoryFaults::as_op(std::size_t bytes, const char* name) const {
  Op op = last.launched;
  op.kind = OpKind::allocate;
  op.rank = rank_;
  op.peer = -1;
  op.layer = -1;
  op.sequence = 0;
  op.bytes = bytes;
  op.tensor = name;
  op.site = "";
  return op;
}

void MemoryFaults::before_allocation(const runtime::Device& device, Space space, std::size_t bytes,
                                     runtime::MemoryTag tag, const char* name) {
  if (rules_.empty()) return;
  const Op op = as_op(bytes, name);
  for (RuleState* state : rules_) {
    const Rule& rule = state->rule();
    if (!is_about(rule, device, space, bytes, tag) || !state->asks(op, clock_.now())) continue;
    state->record(clock_.now(), rank_, &op);
    const std::string limit = rule.bytes > 0 ? " of " + std::to_string(rule.bytes) : "";
    throw runtime::SeamError(runtime::ErrorKind::out_of_memory, op,
                             "asked for " + std::to_string(bytes) + " bytes of '" + name + "' (" +
                                 std::string(runtime::name(tag)) + ") of " + std::string(runtime::name(space)) +
                                 " memory, in use are " + std::to_string(device.use_total(space).now) + limit +
                                 " (injected)");
  }
}

void MemoryFaults::before_communicator(const Op& given) {
  Op op = given;
  op.rank = rank_;
  for (RuleState* state : rules_) {
    if (!state->asks(op, clock_.now())) continue;
    state->record(clock_.now(), rank_, &op);
    throw runtime::SeamError(runtime::ErrorKind::out_of_memory, op, "no memory for a communicator (injected)");
  }
}

}  // namespace seeksim::faults
