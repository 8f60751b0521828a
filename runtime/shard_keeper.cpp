// Every decision here is a pure function of (old members, survivors), so that all survivors decide alike without
// asking.
#include "runtime/shard_keeper.h"

#include <algorithm>
#include <array>

#include "kernels/check.h"
#include "runtime/typed_ops.h"

namespace seeksim::runtime {

namespace {

bool is_in(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

ShardInfo common(ShardInfo a, ShardInfo b) {
  const Index begin = std::max(a.offset, b.offset), end = std::min(a.offset + a.size, b.offset + b.size);
  return {begin, std::max<Index>(end - begin, 0)};
}

// What moves when a shard changes hands.
using Values = std::array<AnyVec, 3>;

Values values_of(const ShardState& state, ShardInfo range) {
  const Index at = range.offset - state.shard.offset;
  return {state.weights().part(at, range.size), state.optimizer->first_moments().part(at, range.size),
          state.optimizer->second_moments().part(at, range.size)};
}

AnyVec frozen_of(const ShardState& state, ShardInfo range) {
  return state.frozen.part(range.offset - state.frozen_shard.offset, range.size);
}

}  // namespace

ShardKeeper::ShardKeeper(Rank& rank, const TrainPlan& plan, const Gpt2Parameters& parameters)
    : rank_(rank),
      plan_(plan),
      parameters_(parameters),
      copies_(plan.recovery.policy == RecoveryPolicy::rebuild_and_redo && plan.recovery.peer_copies) {}

void ShardKeeper::within(AnyVec parameters, AnyVec gradients) {
  flat_parameters_ = parameters;
  flat_gradients_ = gradients;
}

int ShardKeeper::position_in(const std::vector<int>& members) const {
  const auto self = std::find(members.begin(), members.end(), rank_.id);
  SEEKSIM_CHECK(self != members.end(), "rank %d is no member", rank_.id);
  return int(self - members.begin());
}

AnyVec ShardKeeper::own_space(ShardState& state, Index n, ElementType type, const char* name, MemoryTag tag) {
  state.buffers.push_back(rank_.device.allocate(std::size_t(std::max<Index>(n, 1)) * size_of(type), tag, name));
  return {state.buffers.back().get(), 0, n, type};
}

ShardState ShardKeeper::make(int member, const Partition& partition, bool copy) {
  const PrecisionPlan& precision = plan_.definition.precision;
  const ShardInfo shard = partition.shard(member), frozen = partition.frozen(member);
  ShardState state;
  state.shard = shard;
  state.frozen_shard = frozen;
  auto place = [&](AnyVec flat, ElementType type, const char* name, MemoryTag tag) {
    if (flat.buffer != nullptr && !copy) return flat.part(shard.offset, shard.size);
    return own_space(state, shard.size, type, name, copy ? MemoryTag::peer_copies : tag);
  };
  state.parameters = place(flat_parameters_, precision.compute, "parameter shard", MemoryTag::parameters);
  state.gradients = place(flat_gradients_, precision.gradients, "gradient shard", MemoryTag::gradients);
  place_masters(state, copy);
  state.frozen.type = precision.compute;  // also where this member has none
  if (!shards_parameters())               // everybody has them all, and so nobody needs a copy
    state.frozen = flat_parameters_.part(frozen.offset, frozen.size);
  else if (frozen.size > 0)
    state.frozen = own_space(state, frozen.size, precision.compute, "frozen shard",
                             copy ? MemoryTag::peer_copies : MemoryTag::parameters);
  const ZeroPlan& zero = plan_.layout.zero;
  state.optimizer.emplace(rank_.device, plan_.definition.optimizer, partition.pieces(shard),
                          zero.stage == 3 ? zero.sub_group_elements : 0,
                          copy ? MemoryTag::peer_copies : MemoryTag::optimizer);
  if (plan_.bug.is(Bug::full_optimizer_state) && !copy) {
    const Index others = parameters_.trainable_size() - shard.size;
    state.buffers.push_back(rank_.device.allocate(std::size_t(std::max<Index>(others, 1)) * 2 * sizeof(float),
                                                  MemoryTag::optimizer, "moments of others"));
  }
  return state;
}

// What is fp32 beside 16-bit parameters and gradients.
void ShardKeeper::place_masters(ShardState& state, bool copy) {
  const PrecisionPlan& precision = plan_.definition.precision;
  auto floats = [&](const char* name, MemoryTag tag) {
    return own_space(state, state.shard.size, ElementType::f32, name, copy ? MemoryTag::peer_copies : tag).as<float>();
  };
  if (precision.compute == ElementType::f32)
    state.masters = state.parameters.as<float>();
  else if (precision.master_weights)
    state.masters = floats("fp32 masters", MemoryTag::optimizer);
  if (precision.gradients == ElementType::f32)
    state.sums = state.gradients.as<float>();
  else if (!copy)  // a copy is sent gradients as they are held
    state.sums = floats("reduced gradients in fp32", MemoryTag::partial_sums);
}

void ShardKeeper::make_layout(const std::vector<int>& members) {
  next_ = {};
  next_.members = members;
  const int n = int(members.size()), me = position_in(members);
  next_.partition = std::make_unique<Partition>(parameters_, n);
  next_.partition->plant(plan_.bug);
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
  auto fill = [&](ShardState& state, bool within_flat) {
    if (!within_flat) initialise(partition_->pieces(state.shard), state.parameters);
    const bool more = state.masters.buffer != nullptr && state.masters.buffer != state.parameters.buffer;
    if (more) initialise(partition_->pieces(state.shard), state.masters);
    if (shards_parameters() && state.frozen_shard.size > 0)
      initialise(partition_->pieces(state.frozen_shard), state.frozen);
  };
  fill(*own_, !shards_parameters());
  own_->optimizer->reset(launch);
  if (!copy_) return;
  fill(*copy_, false);
  copy_->optimizer->reset(launch);
}

void ShardKeeper::round_parameters(Launcher& launch) {
  for (ShardState* state : {own_.get(), copy_.get()}) {
    if (state == nullptr || state->masters.buffer == nullptr || state->shard.size == 0) continue;
    round_values(launch, "parameters", SEEKSIM_SITE, state->masters, state->parameters);
  }
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
  auto move = [&](int source, AnyVec x, int target, AnyVec y) {
    if (source == target)
      copy_values(launch, "shards", SEEKSIM_SITE, x, y);
    else if (source == rank_.id)
      pieces_.push_back({target, true, x.buffer, x.range(false).lo, x.range(false).hi});
    else
      pieces_.push_back({source, false, y.buffer, y.range(true).lo, y.range(true).hi});
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
        for (std::size_t i = 0; i < 3; ++i) move(source, from[i], target, to[i]);
      }
      if (frozen.size > 0 && shards_parameters()) {
        move(source, source == rank_.id ? frozen_of(*held, frozen) : AnyVec{}, target,
             target == rank_.id ? frozen_of(*state, frozen) : AnyVec{});
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
  const Range out = own_->gradients.range(false), in = copy_->gradients.range(true);
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

void ShardKeeper::hold_gradients(Launcher& launch) {
  if (own_->shard.size > 0) round_values(launch, "gradients", SEEKSIM_SITE, own_->sums, own_->gradients);
}

void ShardKeeper::clear_gradients(Launcher& launch) {
  for (ShardState* state : {own_.get(), copy_.get()}) {
    if (state != nullptr) clear_values(launch, "gradients", SEEKSIM_SITE, state->gradients);
  }
}

void ShardKeeper::step(Launcher& launch, float grad_factor, double lr) {
  for (ShardState* state : {own_.get(), copy_.get()}) {
    if (state != nullptr)
      state->optimizer->step(launch, {state->masters, state->parameters, state->gradients}, grad_factor, lr);
  }
}

}  // namespace seeksim::runtime
