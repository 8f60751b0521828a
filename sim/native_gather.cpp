// The last member sets the time at which all are through.
#include "sim/native_gather.h"

#include <fmt/format.h>

#include "sim/core.h"

namespace seeksim::sim {

using runtime::CommResult;
using runtime::OpKind;

bool NativeGather::gathers(OpKind kind) {
  return kind == OpKind::all_gather || kind == OpKind::publish || kind == OpKind::param_gather;
}

void NativeGather::prepare(const CollectiveLoad& load) {
  load_ = load;
  met_ = false;
  leaves_ = 0;
  factor_ = 1.0f;
}

void NativeGather::complete(Group& group) {
  Loop& loop = owner->core().loop;
  CollectiveLoad busiest;
  for (const SimActivity* activity : group.at)
    if (activity != nullptr) busiest.at_least(static_cast<const NativeGather*>(activity)->load_);
  const TimeNs when = loop.now() + owner->core().network.time_of(busiest);
  for (SimActivity* activity : group.at) {
    if (activity == nullptr) continue;
    static_cast<NativeGather*>(activity)->met_ = true;
    loop.at(when, *activity, activity->generation);
  }
}

void NativeGather::look_for_dead(std::size_t) {
  Core& core = owner->core();
  for (const int member : group_->shared->members) {
    const bool same_node = core.network.node_of(op.rank) == core.network.node_of(member);
    if (waits_on(member) && core.transport.known_dead(member, same_node))
      owner->fail(comm, CommResult::remote_error, fmt::format("rank {} is gone", member));
  }
}

bool NativeGather::waits_on(int rank) const {
  if (state != State::started || met_) return false;
  const int position = owner->comm_at(comm).shared->position(rank);
  return position >= 0 && group_->at[std::size_t(position)] == nullptr;
}

void NativeGather::recycle() { owner->give_back(*this); }

}  // namespace seeksim::sim
