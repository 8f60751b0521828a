// Every decision here is a pure function of (old members, survivors), so that all survivors decide alike without
// asking.
#include "runtime/shard_keeper.h"

#include <algorithm>
#include <array>

#include "kernels/check.h"
#include "kernels/pointwise.h"

namespace seeksim::runtime {

using kernels::Lane;
using kernels::Vec;

namespace {

bool is_in(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

ShardInfo common(ShardInfo a, ShardInfo b) {
  const Index begin = std::max(a.offset, b.offset), end = std::min(a.offset + a.size, b.offset + b.size);
  return {begin, std::max<Index>(end - begin, 0)};
}

// What moves when a shard changes hands.
struct Values {
  VecView<float> parameters, first_moments, second_moments;
  std::array<VecView<float>, 3> all() const { return {parameters, first_moments, second_moments}; }
};

Values values_of(const ShardState& state, ShardInfo range) {
  const Index at = range.offset - state.shard.offset;
  return {state.parameters.part(at, range.size), state.optimizer->first_moments().part(at, range.size),
          state.optimizer->second_moments().part(at, range.size)};
}

VecView<float> frozen_of(const ShardState& state, ShardInfo range) {
  return state.frozen.part(range.offset - state.frozen_shard.offset, range.size);
}

void copy_values(Launcher& launch, VecView<float> from, VecView<float> to) {
  if (from.buffer == to.buffer && from.offset == to.offset) return;
  launch(
      "shards", SEEKSIM_SITE, memory_cost(2 * from.n, 0),
      [](Lane lane, Vec<const float> x, Vec<float> y) { kernels::copy(lane, x, y); }, reads(from), to);
}

}  // namespace

ShardKeeper::ShardKeeper(Rank& rank, const TrainPlan& plan, const Gpt2Parameters& parameters)
    : rank_(rank),
      plan_(plan),
      parameters_(parameters),
      copies_(plan.recovery.policy == RecoveryPolicy::rebuild_and_redo && plan.recovery.peer_copies) {}

void ShardKeeper::within(Buffer* parameters, Buffer* gradients) {
  flat_parameters_ = parameters;
  flat_gradients_ = gradients;
}

int ShardKeeper::position_in(const std::vector<int>& members) const {
  const auto self = std::find(members.begin(), members.end(), rank_.id);
  SEEKSIM_CHECK(self != members.end(), "rank %d is no member", rank_.id);
  return int(self - members.begin());
}

VecView<float> ShardKeeper::own_space(ShardState& state, Index n, const char* name, MemoryTag tag) {
  state.buffers.push_back(rank_.device.allocate(std::size_t(std::max<Index>(n, 1)) * sizeof(float), tag, name));
  return vec<float>(*state.buffers.back(), 0, n);
}

ShardState ShardKeeper::make(int member, const Partition& partition, bool copy) {
  const ShardInfo shard = partition.shard(member), frozen = partition.frozen(member);
  ShardState state;
  state.shard = shard;
  state.frozen_shard = frozen;
  auto place = [&](Buffer* flat, const char* name, MemoryTag tag) {
    if (flat != nullptr && !copy) return vec<float>(*flat, shard.offset, shard.size);
    return own_space(state, shard.size, name, copy ? MemoryTag::peer_copies : tag);
  };
  state.parameters = place(flat_parameters_, "parameter shard", MemoryTag::parameters);
  state.gradients = place(flat_gradients_, "gradient shard", MemoryTag::gradients);
  if (!shards_parameters())  // everybody has them all, and so nobody needs a copy
    state.frozen = vec<float>(*flat_parameters_, frozen.offset, frozen.size);
  else if (frozen.size > 0)
    state.frozen = own_space(state, frozen.size, "frozen shard", copy ? MemoryTag::peer_copies : MemoryTag::parameters);
  const ZeroPlan& zero = plan_.layout.zero;
  state.optimizer.emplace(rank_.device, plan_.definition.optimizer, partition.pieces(shard),
                          zero.stage == 3 ? zero.sub_group_elements : 0,
                          copy ? MemoryTag::peer_copies : MemoryTag::optimizer);
  return state;
}

void ShardKeeper::make_layout(const std::vector<int>& members) {
  next_ = {};
  next_.members = members;
  const int n = int(members.size()), me = position_in(members);
  next_.partition = std::make_unique<Partition>(parameters_, n);
  next_.own = std::make_unique<ShardState>(make(me, *next_.partition, false));
  if (copies_ && n > 1) {
    next_.copy = std::make_unique<ShardState>(make(kept_by(me, n), *next_.partition, true));
  }
}

void ShardKeeper::adopt() {
  members_ = next_.members;
  partition_ = std::move(next_.partition);
  own_ = std::move(next_.own);
  copy_ = std::move(next_.copy);
  next_ = {};
}

void ShardKeeper::lay_out(Launcher& launch, const std::vector<int>& members, const Initialise& initialise) {
  own_.reset();
  copy_.reset();
  make_layout(members);
  adopt();
  auto fill = [&](ShardState& state) {
    initialise(partition_->pieces(state.shard), state.parameters);
    if (shards_parameters()) initialise(partition_->pieces(state.frozen_shard), state.frozen);
  };
  if (shards_parameters()) fill(*own_);
  own_->optimizer->reset(launch);
  if (!copy_) return;
  fill(*copy_);
  copy_->optimizer->reset(launch);
}

// ---- from one world to the next -------------------------------------------------------------------------------------

int ShardKeeper::holder(int owner, const std::vector<int>& survivors) const {
  if (is_in(survivors, members_[owner])) return members_[owner];
  if (!keeps_copies()) return -1;
  const int keeper = members_[keeper_of(owner, int(members_.size()))];
  return is_in(survivors, keeper) ? keeper : -1;
}

std::string ShardKeeper::lost(const std::vector<int>& survivors) const {
  if (!laid_out()) return {};
  for (int owner = 0; owner < int(members_.size()); ++owner) {
    const bool has_frozen = shards_parameters() && partition_->frozen(owner).size > 0;
    if ((partition_->shard(owner).size == 0 && !has_frozen) || holder(owner, survivors) >= 0) continue;
    const std::string gone = "rank " + std::to_string(members_[owner]) + " is gone, and with it its shard of the state";
    if (!keeps_copies()) return gone + "; no copy of it is kept";
    const int keeper = members_[keeper_of(owner, int(members_.size()))];
    return gone + "; rank " + std::to_string(keeper) + ", which kept its copy, is gone too";
  }
  return {};
}

// Both ends walk the same list (new owners and copies, old shards, values), so their messages meet in order.
Op ShardKeeper::redistribute(Communicator& comm) {
  make_layout(comm.members());
  next_.own->optimizer->continue_from(*own_->optimizer);
  if (next_.copy) next_.copy->optimizer->continue_from(*own_->optimizer);
  Queue& queue = rank_.device.communication_queue();
  Launcher launch(queue, rank_.id);
  launch.at(comm.epoch(), -1);
  launch.phase(Phase::recovery);
  pieces_.clear();
  const int n = comm.size();
  auto move = [&](int source, VecView<float> x, int target, VecView<float> y) {
    if (source == target)
      copy_values(launch, x, y);
    else if (source == rank_.id)
      pieces_.push_back({target, true, x.buffer, x.range().lo, x.range().hi});
    else
      pieces_.push_back({source, false, y.buffer, y.range().lo, y.range().hi});
  };
  auto bring = [&](int owner, int target, const std::unique_ptr<ShardState>& state) {
    for (int old = 0; old < int(members_.size()); ++old) {
      const ShardInfo range = common(next_.partition->shard(owner), partition_->shard(old));
      const ShardInfo frozen = common(next_.partition->frozen(owner), partition_->frozen(old));
      const int source = holder(old, comm.members());
      if (source != rank_.id && target != rank_.id) continue;
      const ShardState* const held = members_[old] == source ? own_.get() : copy_.get();
      if (range.size > 0) {
        const Values from = source == rank_.id ? values_of(*held, range) : Values{};
        const Values to = target == rank_.id ? values_of(*state, range) : Values{};
        for (std::size_t i = 0; i < 3; ++i) move(source, from.all()[i], target, to.all()[i]);
      }
      if (frozen.size > 0 && shards_parameters()) {
        move(source, source == rank_.id ? frozen_of(*held, frozen) : VecView<float>{}, target,
             target == rank_.id ? frozen_of(*state, frozen) : VecView<float>{});
      }
    }
  };
  for (int owner = 0; owner < n; ++owner) {
    bring(owner, comm.members()[owner], next_.own);
    if (copies_ && n > 1) bring(owner, comm.members()[keeper_of(owner, n)], next_.copy);
  }
  Op op;
  op.kind = OpKind::redistribute;
  op.phase = Phase::recovery;
  op.tensor = "shards";
  op.site = SEEKSIM_SITE;
  return comm.exchange(queue, op, pieces_);
}

// ---- in every step
// ---------------------------------------------------------------------------------------------------

Op ShardKeeper::send_gradients(Communicator& comm, Queue& queue, std::int64_t step) {
  const int n = comm.size(), me = comm.position();
  pieces_.clear();
  const Range out = own_->gradients.range(), in = copy_->gradients.range();
  if (out.lo < out.hi) pieces_.push_back({comm.members()[keeper_of(me, n)], true, out.buffer, out.lo, out.hi});
  if (in.lo < in.hi) pieces_.push_back({comm.members()[kept_by(me, n)], false, in.buffer, in.lo, in.hi});
  Op op;
  op.kind = OpKind::peer_copy;
  op.phase = Phase::grad_reduce;
  op.step = step;
  op.tensor = "gradients";
  op.site = SEEKSIM_SITE;
  return comm.exchange(queue, op, pieces_);
}

void ShardKeeper::step(Launcher& launch, float grad_factor, double lr) {
  own_->optimizer->step(launch, own_->parameters, own_->gradients, grad_factor, lr);
  if (copy_) copy_->optimizer->step(launch, copy_->parameters, copy_->gradients, grad_factor, lr);
}

}  // namespace seeksim::runtime
