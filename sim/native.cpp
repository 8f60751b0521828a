// The native sum: members meet in a group, and the last one computes for all.
#include "sim/native.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "kernels/check.h"
#include "runtime/layout/shard.h"
#include "sim/core.h"

namespace seeksim::sim {

using runtime::CommResult;
using runtime::RecordState;

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
  if (!activity.native || op.kind != activity.op.kind) return false;
  const auto& other = static_cast<const NativeReduce&>(activity);
  return out_.n == other.out_.n && leaves_ == other.leaves_ && factor_ == other.factor_;
}

std::string NativeReduce::what() const {
  return fmt::format(", {} elements over {} leaves times {}", out_.n, leaves_, factor_);
}

void NativeReduce::post() {
  Core& core = owner->core();
  RankComm& held = owner->comm_at(comm);
  group_ = &held.shared->group(op.sequence);
  const std::size_t here = std::size_t(held.position);
  SEEKSIM_CHECK(group_->at[here] == nullptr, "two operations of one rank with the same sequence number: %s",
                describe(op).c_str());
  group_->at[here] = this;
  ++group_->posted;
  group_->shares.resize(group_->at.size());
  group_->shares[here] = {first_, rest_.empty() ? nullptr : &rest_, out_.get().data};
  if (!group_->agrees(*this) || !compare_with_neighbours(here)) group_->mismatched = true;
  if (group_->posted == group_->at.size() && !group_->mismatched) complete(*held.shared, *group_);
  if (core.transport.any_dead() && !group_->summed) look_for_dead_neighbours(here);
}

void NativeReduce::look_for_dead_neighbours(std::size_t here) {
  Core& core = owner->core();
  const std::vector<int>& members = group_->shared->members;
  for (const std::size_t next : {(here + 1) % members.size(), (here + members.size() - 1) % members.size()}) {
    const int other = members[next];
    const bool same_node = core.network.node_of(op.rank) == core.network.node_of(other);
    if (core.transport.known_dead(other, same_node) && waits_on(other))
      owner->fail(comm, CommResult::remote_error, fmt::format("rank {} is gone", other));
  }
}

// Everybody is compared with the neighbours that are here: if any two members differ, some two neighbours do.
bool NativeReduce::compare_with_neighbours(std::size_t here) {
  const std::size_t size = group_->at.size();
  for (const std::size_t next : {here + 1 == size ? 0 : here + 1, here == 0 ? size - 1 : here - 1}) {
    SimActivity* other = group_->at[next];
    if (other == nullptr || other == this || same_as(*other)) continue;
    tell_mismatch(*this, other, mismatch_text(op, what(), other->op, other->what()));
    return false;
  }
  return true;
}

// The shards matter only to fast arithmetic: the sum of each begins at another place of the ring.
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

void NativeReduce::complete(SharedComm& shared, Group& group) {
  Core& core = owner->core();
  std::vector<kernels::TreePart>& parts = core.transport.parts;
  parts.clear();
  for (std::size_t member = 0; member < group.shares.size(); ++member) {
    const Group::Share& share = group.shares[member];
    const std::size_t begin = parts.size();
    if (share.first.node.level >= 0) parts.push_back(share.first);
    if (share.rest != nullptr) parts.insert(parts.end(), share.rest->begin(), share.rest->end());
    for (std::size_t i = begin; i < parts.size(); ++i) parts[i].group = int(member);
  }
  const kernels::Vec<float> sum = out_.get();
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
  const double cost =
      slow * double(core.network.all_reduce(shared.nodes, shared.per_node_max, std::size_t(sum.n) * sizeof(float)));
  for (int node = 0; node < shared.nodes; ++node)
    group.completions.push_back({core.loop.now() + TimeNs(cost * core.network.jitter()), node});
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
  const std::span<const int> places = places_of(now.node);  // copied now, because the last to leave frees this group
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

void NativeReduce::fire(const Timer&) {
  withdraw();
  end(RecordState::completed);
}

void NativeReduce::withdraw() {
  if (group_ != nullptr) group_->leave(owner->comm_at(comm).position);
  group_ = nullptr;
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

std::string NativeReduce::waits_for() const {
  if (group_ == nullptr) return "nobody";
  if (group_->summed) return "the network";
  std::string text;
  int named = 0;
  for (std::size_t i = 0; i < group_->at.size(); ++i) {
    if (group_->at[i] != nullptr) continue;
    if (named++ == 8) return text + ", ...";
    text += fmt::format("{}rank {} (to join)", named == 1 ? "" : ", ", group_->shared->members[i]);
  }
  return text.empty() ? "nobody: the members brought different operations" : text;
}

}  // namespace seeksim::sim
