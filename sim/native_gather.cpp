// The last member sets the time at which all are through.
#include "sim/native_gather.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/core.h"

namespace seeksim::sim {

using runtime::CommResult;
using runtime::OpKind;

bool NativeGather::gathers(OpKind kind) {
  return kind == OpKind::all_gather || kind == OpKind::publish || kind == OpKind::param_gather ||
         kind == OpKind::group_gather;
}

bool NativeGather::meets_at_once(OpKind kind) { return gathers(kind) || kind == OpKind::reduce_scatter; }

std::size_t NativeGather::whole_bytes(std::span<const runtime::Piece> pieces, std::size_t members) {
  std::size_t out = 0, in = 0;
  for (const runtime::Piece& piece : pieces) (piece.send ? out : in) += piece.hi - piece.lo;
  return in + (members > 1 ? out / (members - 1) : 0);
}

void NativeGather::prepare(const CollectiveLoad& load, std::size_t whole) {
  load_ = load;
  whole_ = whole;
  met_ = false;
  leaves_ = 0;
  factor_ = 1.0f;
}

void NativeGather::complete(Group& group) {
  Loop& loop = owner->core().loop;
  const Network& network = owner->core().network;
  CollectiveLoad busiest;
  std::size_t whole = 0;
  for (const SimActivity* activity : group.at) {
    if (activity == nullptr) continue;
    const NativeGather& member = *static_cast<const NativeGather*>(activity);
    busiest.at_least(member.load_);
    whole = std::max(whole, member.whole_);
  }
  const SharedComm& shared = *group.shared;
  const auto what = gathers(op.kind) ? CollectiveTimes::What::all_gather : CollectiveTimes::What::reduce_scatter;
  const TimeNs together = network.times() == nullptr
                              ? network.time_of(busiest)
                              : network.times()->time(what, whole, shared.size(), shared.nodes, shared.per_node_max);
  const TimeNs when = runtime::later(loop.now(), together);
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
