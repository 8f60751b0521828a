// What shards send to other ranks: all of them from one world to the next, and gradients to their copies in every step.
// The holders and the receivers of each shard are a pure function of (old members, survivors), so that all survivors
// decide alike without asking.
#include <algorithm>

#include "kernels/check.h"
#include "runtime/comm/edge.h"
#include "runtime/launch/typed_ops.h"
#include "runtime/rules/bugs.h"
#include "runtime/seams/edges.h"
#include "runtime/zero/shard_keeper.h"

namespace seeksim::runtime {

namespace {

bool is_in(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

// What moves when a shard changes hands: weights and what the optimizer keeps of what is trained, or what is frozen.
std::vector<AnyVec> values_of(const ShardState& state, ShardInfo range, bool frozen) {
  if (frozen) return {state.frozen.part(range.offset - state.frozen_shard.offset, range.size)};
  const Index at = range.offset - state.shard.offset;
  std::vector<AnyVec> values = {state.weights().part(at, range.size)};
  for (const AnyVec& kept : state.optimizer->states()) values.push_back(kept.part(at, range.size));
  return values;
}

// Elements that pass through the device at a time on their way between the host and other ranks.
constexpr Index kWindowElements = Index(1) << 20;
constexpr Index kWindowsLeast = 16;  // a small model does not pass all at once

}  // namespace

std::vector<ShardKeeper::Holders> ShardKeeper::holders_of(const std::vector<int>& members) const {
  const ShardGroups groups = groups_of(members);
  std::vector<Holders> all(std::size_t(groups.size));
  for (int group = 0; group < groups.groups(); ++group) {
    const std::vector<int> ranks = groups.members(members, group);
    const CopyPlaces at = places(ranks, groups);
    for (int owner = 0; owner < groups.size; ++owner) {
      all[std::size_t(owner)].owners.push_back(ranks[std::size_t(owner)]);
      for (const int keeper : at.keepers_of(owner))
        all[std::size_t(owner)].keepers.push_back(ranks[std::size_t(keeper)]);
    }
  }
  return all;
}

std::string ShardKeeper::lost(const std::vector<int>& survivors) const {
  if (!laid_out()) return {};
  return lost(members_, survivors, [this](int owner) {
    return partition_->shard(owner).size > 0 || (shards_parameters() && partition_->frozen(owner).size > 0);
  });
}

std::string ShardKeeper::lost(const std::vector<int>& before, const std::vector<int>& survivors,
                              const std::function<bool(int owner)>& holds_some) const {
  const std::vector<Holders> all = holders_of(before);
  for (int shard = 0; shard < int(all.size()); ++shard) {
    std::vector<int> others = all[std::size_t(shard)].owners;
    const int owner = others.front();
    others.erase(others.begin());
    std::vector<int> keepers = all[std::size_t(shard)].keepers;
    if (plan_.bug.is(Bug::first_copy_only) && keepers.size() > 1) keepers.resize(1);
    others.insert(others.end(), keepers.begin(), keepers.end());
    const bool kept = std::any_of(others.begin(), others.end(), [&](int rank) { return is_in(survivors, rank); });
    if (is_in(survivors, owner) || kept || (holds_some && !holds_some(shard))) continue;
    std::string names;
    for (const int rank : others) names += (names.empty() ? "" : ", ") + std::to_string(rank);
    return "rank " + std::to_string(owner) + " is gone, and with it its shard of the state; " +
           (others.empty()       ? "no copy of it is kept"
            : others.size() == 1 ? "rank " + names + ", which kept its copy, is gone too"
                                 : "ranks " + names + ", which kept its copies, are gone too");
  }
  return {};
}

// A range of one kind of value, from its holder to its next holder.
struct ShardKeeper::Move {
  ShardInfo range;
  bool frozen = false;
  int source = -1, target = -1;  // launch ranks
  const ShardState* from = nullptr;
  const ShardState* to = nullptr;
};

// All members walk the same list (new owners and copies, old shards), so their messages meet in order. A shard comes
// from an owner: of several, each receiver has one of its own if it can, or is one.
std::vector<ShardKeeper::Move> ShardKeeper::moves(const std::vector<int>& givers) {
  std::vector<Move> moves;
  std::vector<std::vector<int>> sources;  // of each old shard
  for (Holders& holders : holders_of(members_)) {
    const auto gone = [&](int rank) { return !is_in(givers, rank); };
    std::erase_if(holders.owners, gone);
    std::erase_if(holders.keepers, gone);
    if (holders.keepers.size() > 1) holders.keepers.resize(1);
    sources.push_back(holders.owners.empty() ? holders.keepers : holders.owners);
  }
  const auto held_of = [&](int owner) -> const ShardState* {
    for (const ShardState* state : all()) {
      if (state->owner == owner) return state;
    }
    return nullptr;
  };
  auto bring = [&](int owner, int target, const ShardState* state) {
    for (int old = 0; old < int(sources.size()); ++old) {
      const std::vector<int>& from = sources[std::size_t(old)];
      const int source = from.empty() ? -1 : is_in(from, target) ? target : from[std::size_t(target) % from.size()];
      if (source != rank_.id && target != rank_.id) continue;
      const ShardState* const held = source == rank_.id ? held_of(old) : nullptr;
      const ShardInfo range = common(next_.partition->shard(owner), partition_->shard(old));
      const ShardInfo frozen = common(next_.partition->frozen(owner), partition_->frozen(old));
      if (range.size > 0) moves.push_back({range, false, source, target, held, state});
      if (frozen.size > 0 && shards_parameters()) moves.push_back({frozen, true, source, target, held, state});
    }
  };
  const ShardGroups groups = groups_of(next_.members);
  for (int group = 0; group < groups.groups(); ++group) {
    const std::vector<int> ranks = groups.members(next_.members, group);
    const CopyPlaces at = places(ranks, groups);
    for (int owner = 0; owner < groups.size; ++owner) {
      bring(owner, ranks[std::size_t(owner)], next_.own.get());
      for (const int keeper : at.keepers_of(owner)) {
        const ShardState* kept = nullptr;
        for (const std::unique_ptr<ShardState>& copy : next_.copies) {
          if (copy->owner == owner) kept = copy.get();
        }
        bring(owner, ranks[std::size_t(keeper)], kept);
      }
    }
  }
  return moves;
}

void ShardKeeper::begin_with(std::vector<int> members, std::int64_t optimizer_steps) {
  joined_ = true;
  joined_at_ = optimizer_steps;
  if (members.empty()) return;
  partition_ = std::make_unique<Partition>(parameters_, groups_of(members).size);
  members_ = std::move(members);
}

Op ShardKeeper::redistribute(Communicator& comm, const std::vector<int>& members, const std::vector<int>& joiners) {
  load();
  make_layout(members);
  std::vector<ShardState*> states;
  if (in_next()) states.push_back(next_.own.get());
  for (const auto& copy : next_.copies) states.push_back(copy.get());
  const bool forgets = plan_.bug.is(Bug::joins_without_steps);
  for (ShardState* state : states) {
    if (own_)
      state->optimizer->continue_from(*own_->optimizer);
    else if (!forgets)
      state->optimizer->continue_at(joined_at_);
  }
  Op op;
  op.kind = OpKind::redistribute;
  op.phase = Phase::recovery;
  op.tensor = "shards";
  op.site = SEEKSIM_SITE;
  std::vector<int> givers = comm.members();
  std::erase_if(givers, [&](int rank) { return is_in(joiners, rank); });
  const std::vector<Move> all = moves(givers);
  const Index window = offloaded() ? window_elements() : std::max<Index>(parameters_.size(), 1);
  // This rank's part of a window goes to its owners and to the keepers of copies, and a window may come: weights and
  // moments in fp32 each.
  const int kinds = 1 + states_of(plan_.definition.optimizer);
  if (offloaded()) open_passage(kinds * (3 + copies_wanted_) * window);
  for (Index lo = 0; lo < parameters_.size(); lo += window) carry(comm, all, {lo, window}, op);
  return op;
}

// What of the moves is in the window: one exchange. What is on the host passes through the device, in order on one
// queue, so that the passage is free again for the next window.
void ShardKeeper::carry(Communicator& comm, std::span<const Move> moves, ShardInfo window, Op& op) {
  Queue& queue = rank_.device.communication_queue();
  Launcher launch(queue, rank_.id);
  launch.at(comm.epoch(), -1);
  launch.phase(Phase::recovery);
  pieces_.clear();
  passage_taken_ = 0;
  std::vector<std::pair<AnyVec, AnyVec>> arriving;
  for (const Move& move : moves) {
    const ShardInfo range = common(move.range, window);
    if (range.size == 0) continue;
    const bool sends = move.source == rank_.id, gets = move.target == rank_.id;
    const std::vector<AnyVec> from = sends ? values_of(*move.from, range, move.frozen) : std::vector<AnyVec>();
    const std::vector<AnyVec> to = gets ? values_of(*move.to, range, move.frozen) : std::vector<AnyVec>();
    for (std::size_t i = 0; i < std::max(from.size(), to.size()); ++i) {
      if (sends && gets) {
        copy_values(launch, "shards", SEEKSIM_SITE, from[i], to[i]);
        continue;
      }
      const AnyVec here = sends ? from[i] : to[i];
      const bool on_device = here.buffer->space == Space::device;
      const AnyVec there = on_device ? here : passage(here.n, here.type);
      if (sends && !on_device) copy_values(launch, "shards", SEEKSIM_SITE, here, there);
      if (gets && !on_device) arriving.emplace_back(there, here);
      const Range range_there = there.range(gets);
      pieces_.push_back({sends ? move.target : move.source, sends, there.buffer, range_there.lo, range_there.hi});
    }
  }
  op = comm.exchange(queue, op, pieces_);
  for (const auto& [there, here] : arriving) copy_values(launch, "shards", SEEKSIM_SITE, there, here);
}

// The same on all members.
Index ShardKeeper::window_elements() const {
  return std::min(kWindowElements, std::max(parameters_.size() / kWindowsLeast, kernels::kBlock));
}

void ShardKeeper::open_passage(Index floats) {
  const std::size_t bytes = std::size_t(floats) * sizeof(float);
  if (passage_ && passage_->bytes >= bytes) return;
  passage_.reset();
  passage_ = rank_.device.allocate(bytes, MemoryTag::staging, "passage between hosts");
}

// Memory of the device for n elements, until the next window.
AnyVec ShardKeeper::passage(Index n, ElementType type) {
  const std::size_t at = passage_taken_;
  passage_taken_ += (std::size_t(n) * size_of(type) + 3) / 4 * 4;
  SEEKSIM_CHECK(passage_taken_ <= passage_->bytes, "%zu bytes pass through %zu", passage_taken_, passage_->bytes);
  return {passage_.get(), Index(at / size_of(type)), n, type};
}

Op ShardKeeper::send_gradients(Communicator& comm, std::int64_t step) {
  Queue& queue = rank_.device.communication_queue();
  Launcher launch(queue, rank_.id);
  launch.at(comm.epoch(), step);
  launch.phase(Phase::grad_reduce);
  if (offloaded()) after(queue, rank_.device.host_queue().record(), Edge::gradients_held, plan_.bug);
  Index largest = 1;
  for (int member = 0; member < comm.size(); ++member) largest = std::max(largest, partition_->shard(member).size);
  const Index window = offloaded() ? window_elements() : largest;
  if (offloaded()) open_passage(Index(1 + copies_.size()) * window);
  Op op;
  op.kind = OpKind::peer_copy;
  op.phase = Phase::grad_reduce;
  op.step = step;
  op.tensor = "gradients";
  op.site = SEEKSIM_SITE;
  for (Index lo = 0; lo < largest; lo += window) {
    pieces_.clear();
    passage_taken_ = 0;
    const auto part = [&](const ShardState& state) {
      const ShardInfo in = common({lo, window}, {0, state.shard.size});
      return state.gradients.part(std::min(lo, state.shard.size), in.size);
    };
    const auto through = [&](AnyVec values) { return offloaded() ? passage(values.n, values.type) : values; };
    const auto piece = [&](int member, bool send, Range r) {
      if (r.lo < r.hi) pieces_.push_back({comm.members()[std::size_t(member)], send, r.buffer, r.lo, r.hi});
    };
    const AnyVec own = part(*own_), out = through(own);
    copy_values(launch, "gradients", SEEKSIM_SITE, own, out);
    for (const int keeper : keepers_) piece(keeper, true, out.range(false));
    std::vector<AnyVec> arrived;
    for (const auto& copy : copies_) {
      arrived.push_back(through(part(*copy)));
      piece(copy->owner, false, arrived.back().range(true));
    }
    op = comm.exchange(queue, op, pieces_);
    for (std::size_t i = 0; i < arrived.size(); ++i)
      copy_values(launch, "gradients", SEEKSIM_SITE, arrived[i], part(*copies_[i]));
  }
  return op;
}

}  // namespace seeksim::runtime
