// The last member computes for all.
#include "sim/native_reduce.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "runtime/layout/shard.h"
#include "runtime/seams/bounded.h"
#include "sim/core.h"

namespace seeksim::sim {

using runtime::CommResult;

void NativeReduce::prepare(const runtime::TreeReduce& reduce) {
  const auto part = [](const runtime::TreeReduceSlice& slice) {
    return kernels::TreePart{slice.node, slice.value.get().data};
  };
  rest_.clear();
  first_ = reduce.parts.empty() ? kernels::TreePart{{-1, 0}, nullptr} : part(reduce.parts.front());
  for (std::size_t i = 1; i < reduce.parts.size(); ++i) rest_.push_back(part(reduce.parts[i]));
  leaves_ = reduce.leaves;
  factor_ = reduce.factor;
  out_ = reduce.out;
}

bool NativeReduce::same_as(const SimActivity& activity) const {
  return NativeSum::same_as(activity) && out_.n == static_cast<const NativeReduce&>(activity).out_.n;
}

std::string NativeReduce::what() const {
  return fmt::format(", {} elements over {} leaves times {}", out_.n, leaves_, factor_);
}

void NativeReduce::bring(std::size_t here) {
  group_->shares.resize(group_->at.size());
  group_->shares[here] = {first_, rest_.empty() ? nullptr : &rest_, out_.get().data};
}

bool NativeReduce::summed() const { return group_->summed; }

void NativeReduce::look_for_dead(std::size_t here) {
  Core& core = owner->core();
  const std::vector<int>& members = group_->shared->members;
  for (const std::size_t next : {(here + 1) % members.size(), (here + members.size() - 1) % members.size()}) {
    const int other = members[next];
    const bool same_node = core.network.node_of(op.rank) == core.network.node_of(other);
    if (core.transport.known_dead(other, same_node) && waits_on(other))
      owner->fail(comm, CommResult::remote_error, fmt::format("rank {} is gone", other));
  }
}

// What shards there are matters to fast arithmetic only: the sum of each begins at another place of the ring.
void NativeReduce::sum_parts(std::span<const kernels::TreePart> parts, kernels::Vec<float> out) {
  const kernels::Lane lane = owner->rank().device.lane_of(op);
  const kernels::Index count = kernels::Index(parts.size());
  if (lane.arithmetic == nullptr) return kernels::tree_sum(lane, parts.data(), count, leaves_, out, factor_);
  std::vector<kernels::TreePart> of_shard(parts.begin(), parts.end());
  const int members = owner->comm_at(comm).shared->size();
  for (int member = 0; member < members; ++member) {
    const runtime::ShardInfo shard = runtime::shard_of(out.n, members, member);
    if (shard.size == 0) continue;
    for (std::size_t i = 0; i < parts.size(); ++i) of_shard[i].data = parts[i].data + shard.offset;
    kernels::tree_sum(lane, of_shard.data(), count, leaves_, {out.data + shard.offset, shard.size}, factor_, member);
  }
}

void NativeReduce::complete(Group& group) {
  Core& core = owner->core();
  const SharedComm& shared = *group.shared;
  std::vector<kernels::TreePart>& parts = core.transport.parts;
  parts.clear();
  const kernels::Vec<float> sum = out_.get();
  for (std::size_t member = 0; sum.data != nullptr && member < group.shares.size(); ++member) {
    const Group::Share& share = group.shares[member];
    const std::size_t begin = parts.size();
    if (share.first.node.level >= 0) parts.push_back(share.first);
    if (share.rest != nullptr) parts.insert(parts.end(), share.rest->begin(), share.rest->end());
    for (std::size_t i = begin; i < parts.size(); ++i) parts[i].group = int(member);
  }
  if (sum.data != nullptr) {
    try {
      sum_parts(parts, sum);
    } catch (const std::invalid_argument& e) {  // the members' parts do not make up the tree
      for (SimActivity* activity : group.at) activity->owner->fail(activity->comm, CommResult::invalid_usage, e.what());
      return;
    }
    for (const Group::Share& share : group.shares)
      if (share.out != sum.data)
        kernels::copy_bytes(out_.buffer->lane, sum.data, share.out, std::size_t(sum.n) * sizeof(float));
  }
  group.summed = true;
  double slow = 1;
  for (const int rank : shared.members)
    slow = std::max(slow, core.network.slowness(rank, SlowQueue::Which::communication));
  const std::size_t bytes = std::size_t(sum.n) * sizeof(float);
  const CollectiveTimes* times = core.network.times();
  const TimeNs together = times == nullptr ? core.network.all_reduce(shared.nodes, shared.per_node_max, bytes)
                                           : times->time(CollectiveTimes::What::all_reduce, bytes, shared.size(),
                                                         shared.nodes, shared.per_node_max);
  const double cost = slow * double(together);
  for (int node = 0; node < shared.nodes; ++node)
    group.completions.push_back(
        {runtime::later(core.loop.now(), runtime::to_time_ns(cost * core.network.jitter())), node});
  std::sort(group.completions.begin(), group.completions.end(),
            [](const Group::Completion& a, const Group::Completion& b) { return a.when > b.when; });
  group.core = &core;
  core.loop.at(group.completions.back().when, group, group.generation);
}

std::span<const int> Group::places_of(int node) const {
  return {shared->by_node.data() + shared->node_begins[std::size_t(node)],
          shared->by_node.data() + shared->node_begins[std::size_t(node) + 1]};
}

void Group::fire(const Timer&) {
  const Completion now = completions.back();
  completions.pop_back();
  const std::span<const int> places = places_of(now.node);  // taken now: the last to leave gives this group back
  for (const int place : places)
    if (const SimActivity* member = at[std::size_t(place)]) member->fetch_more();
  if (!completions.empty()) {
    for (const int place : places_of(completions.back().node))
      if (const SimActivity* member = at[std::size_t(place)]) member->fetch();
    core->loop.at(completions.back().when, *this, generation);
  }
  for (const int place : places)
    if (SimActivity* member = at[std::size_t(place)]) member->fire({});
}

void NativeReduce::scribble() {
  if (out_.buffer != nullptr) scribble_on(*out_.buffer, out_.range().lo, out_.range().hi);
}

void NativeReduce::recycle() { owner->give_back(*this); }

bool NativeReduce::waits_on(int rank) const {
  if (state != State::started || group_->summed) return false;
  const SharedComm& shared = *owner->comm_at(comm).shared;
  const int n = shared.size(), mine = owner->comm_at(comm).position, other = shared.position(rank);
  return other >= 0 && n > 1 && ((mine + 1) % n == other || (other + 1) % n == mine) &&
         group_->at[std::size_t(other)] == nullptr;
}

runtime::Transport::Unmatched NativeReduce::unmatched() const { return {state == State::started, op, -1, false}; }

}  // namespace seeksim::sim
