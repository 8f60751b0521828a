// What a member holds: made for a world, taken over from the one before (shard_keeper_moves.cpp), updated in each step.
// What of it is in files: shard_keeper_files.cpp.
#include "runtime/zero/shard_keeper.h"

#include <algorithm>

#include "kernels/check.h"
#include "runtime/comm/edge.h"
#include "runtime/launch/typed_ops.h"
#include "runtime/rules/bugs.h"
#include "runtime/seams/edges.h"

namespace seeksim::runtime {

ShardKeeper::ShardKeeper(Rank& rank, const TrainPlan& plan, const Parameters& parameters)
    : rank_(rank),
      plan_(plan),
      parameters_(parameters),
      copies_wanted_(plan.recovery.policy == RecoveryPolicy::rebuild_and_redo ? plan.recovery.peer_copies : 0),
      home_(plan.layout.offload.optimizer.space()) {}

void ShardKeeper::within(AnyVec parameters, AnyVec gradients) {
  flat_parameters_ = parameters;
  flat_gradients_ = gradients;
}

std::vector<ShardState*> ShardKeeper::all() const {
  std::vector<ShardState*> states;
  if (own_) states.push_back(own_.get());
  for (const std::unique_ptr<ShardState>& copy : copies_) states.push_back(copy.get());
  return states;
}

// A planted bug takes ranks that have the same place on their nodes for one node.
CopyPlaces ShardKeeper::places(const std::vector<int>& group, const ShardGroups& groups) const {
  const bool wrong = plan_.bug.is(Bug::copy_on_own_node);
  const auto node_of = [&](int rank) { return wrong ? rank % rank_.ranks_per_node : rank_.node_of(rank); };
  return {group, node_of, groups.copies(copies_wanted_)};
}

int ShardKeeper::position_in(const std::vector<int>& members) const {
  const auto self = std::find(members.begin(), members.end(), rank_.id);
  SEEKSIM_CHECK(self != members.end(), "rank %d is no member", rank_.id);
  return int(self - members.begin());
}

AnyVec ShardKeeper::own_space(ShardState& state, Index n, ElementType type, const char* name, MemoryTag tag,
                              Space space) {
  const std::size_t bytes = std::size_t(std::max<Index>(n, 1)) * size_of(type);
  state.buffers.push_back(rank_.device.allocate_in(space, bytes, tag, name));
  return {state.buffers.back().get(), 0, n, type};
}

ShardState ShardKeeper::make(int member, const Partition& partition, bool copy) {
  const PrecisionPlan& precision = plan_.definition.precision;
  const ShardInfo shard = partition.shard(member), frozen = partition.frozen(member);
  ShardState state;
  state.owner = member;
  state.shard = shard;
  state.frozen_shard = frozen;
  const auto tag = [copy](MemoryTag of_own) { return copy ? MemoryTag::peer_copies : of_own; };
  place_parameters(state, copy);
  if (swaps_parameters() && !copy) place_swapped(state, partition.pieces(shard));
  if (swaps()) {
    const std::string name = std::to_string(layouts_) + (copy ? "-copy-" + std::to_string(member) : "-own");
    state.files = std::make_unique<SwappedState>(rank_, plan_, name, state.weights_type(precision), shard.size);
    state.newer_in_memory = true;
  }
  if (flat_gradients_.buffer != nullptr && !copy && !offloaded())
    state.gradients = flat_gradients_.part(shard.offset, shard.size);
  else
    state.gradients =
        own_space(state, shard.size, precision.gradients, "gradient shard", tag(MemoryTag::gradients), home_);
  if (precision.gradients == ElementType::f32)
    state.sums = state.gradients.as<float>();
  else if (!copy)  // a copy is sent gradients as they are held
    state.sums =
        own_space(state, shard.size, ElementType::f32, "reduced gradients in fp32", MemoryTag::partial_sums, home_)
            .as<float>();
  state.frozen.type = precision.compute;  // also where this member has none
  if (!shards_parameters())               // every rank has them all, so none needs a copy
    state.frozen = flat_parameters_.part(frozen.offset, frozen.size);
  else if (frozen.size > 0)
    state.frozen = own_space(state, frozen.size, precision.compute, "frozen shard", tag(MemoryTag::parameters),
                             plan_.layout.offload.parameters.space());
  state.optimizer.emplace(make_optimizer(shard, partition, swaps() ? MemoryTag::staging : tag(MemoryTag::optimizer)));
  if (plan_.layout.offload.optimizer.speculates && !copy) {
    Optimizer beside = make_optimizer(shard, partition, MemoryTag::staging);
    state.speculative =
        std::make_unique<SpeculativeStep>(rank_.device, state.in_use(), std::move(beside), plan_.bug, home_);
  }
  if (plan_.bug.is(Bug::full_optimizer_state) && !copy) {
    const Index others = parameters_.trainable_size() - shard.size;
    own_space(state, moments_of(plan_.definition.optimizer) * std::max<Index>(others, 1), ElementType::f32,
              "moments of others", MemoryTag::optimizer, home_);
  }
  return state;
}

Optimizer ShardKeeper::make_optimizer(ShardInfo shard, const Partition& partition, MemoryTag tag) const {
  const ZeroPlan& zero = plan_.layout.zero;
  const PrecisionPlan& precision = plan_.definition.precision;
  Optimizer optimizer(rank_.device, plan_.definition.optimizer, partition.pieces(shard),
                      zero.stage == 3 ? zero.sub_group_elements : 0, tag, home_,
                      is_16_bit(precision.compute) && !precision.master_weights);
  runtime::prepare(optimizer, plan_, partition.members());
  if (plan_.bug.is(Bug::muon_each_micro_batch) && zero.stage == 3) {
    const Index samples = plan_.definition.global_batch / partition.members(), each = plan_.layout.micro_batch;
    optimizer.advance_momentum(int((samples + each - 1) / each));
  }
  return optimizer;
}

// The parameters to compute with, and the fp32 masters beside them. On the host they are apart from those on the device
// in fp32 too: there they define the shard, and the device has a copy.
void ShardKeeper::place_parameters(ShardState& state, bool copy) {
  const PrecisionPlan& precision = plan_.definition.precision;
  const Index n = state.shard.size;
  const MemoryTag of_parameters = copy ? MemoryTag::peer_copies : MemoryTag::parameters;
  const MemoryTag of_optimizer = copy ? MemoryTag::peer_copies : MemoryTag::optimizer;
  const Space of_compute = plan_.layout.offload.parameters.space();
  const bool wide = precision.compute == ElementType::f32, masters = !wide && precision.master_weights;
  const bool in_file = swaps_parameters() && !copy;
  // The optimizer writes to where they live.
  const bool shares = of_compute != Space::device && !swaps() && !(in_file && masters);
  if (in_file && !shares) {
    const std::size_t bytes = std::size_t(std::max<Index>(n, 1)) * size_of(precision.compute);
    state.all_of_them = rank_.device.allocate_in(of_compute, bytes, MemoryTag::staging, "parameter shard");
    state.on_device = {state.all_of_them.get(), 0, n, precision.compute};
  } else if (!copy && !shares) {
    state.on_device = shards_parameters()
                          ? own_space(state, n, precision.compute, "parameter shard", of_parameters, of_compute)
                          : flat_parameters_.part(state.shard.offset, n);
  }
  if (swaps()) return make_loaded(state);
  if (masters) state.masters = own_space(state, n, ElementType::f32, "fp32 masters", of_optimizer, home_).as<float>();
  if (in_file && masters) {
    state.parameters = state.on_device;
  } else if (offloaded() || copy) {
    const MemoryTag tag = wide && offloaded() ? of_optimizer : of_parameters;
    state.parameters = own_space(state, n, precision.compute, "parameter shard", tag, home_);
  } else {
    state.parameters = state.on_device;
  }
  if (wide) state.masters = state.parameters.as<float>();
  if (!copy && shares) state.on_device = state.parameters;
}

void ShardKeeper::make_layout(const std::vector<int>& members) {
  next_ = {};
  next_.members = members;
  if (layouts_ == 0) refuse_stale_files();
  ++layouts_;
  const ShardGroups groups = groups_of(members);
  next_.partition = std::make_unique<Partition>(parameters_, groups.size);
  next_.partition->plant(plan_.bug);
  if (std::find(members.begin(), members.end(), rank_.id) == members.end()) return;
  const int position = position_in(members), me = groups.place_of(position);
  next_.own = std::make_unique<ShardState>(make(me, *next_.partition, false));
  const CopyPlaces at = places(group_at(members, position), groups);
  next_.keepers = at.keepers_of(me);
  for (const int owner : at.kept_by(me))
    next_.copies.push_back(std::make_unique<ShardState>(make(owner, *next_.partition, true)));
}

bool ShardKeeper::adopt() {
  const bool stays = in_next();
  if (!stays) {
    next_ = {};
    return false;
  }
  retire_files();
  members_ = next_.members;
  partition_ = std::move(next_.partition);
  own_ = std::move(next_.own);
  copies_ = std::move(next_.copies);
  keepers_ = std::move(next_.keepers);
  next_ = {};
  passage_.reset();  // what a step needs of it is less
  window_.reset();
  return true;
}

void ShardKeeper::lay_out(Launcher& launch, const std::vector<int>& members, const Initialise& initialise) {
  retire_files();
  own_.reset();
  copies_.clear();
  make_layout(members);
  adopt();
  for (ShardState* state : all()) {
    // What is flat is there already.
    const std::vector<ParameterPiece> pieces = partition_->pieces(state->shard);
    const bool is_flat = !shards_parameters() && state == own_.get();
    if (!is_flat) initialise(pieces, state == own_.get() ? state->on_device : state->parameters);
    const AnyVec weights = state->weights();
    const bool more = weights.buffer != (state == own_.get() ? state->on_device : state->parameters).buffer;
    if (more) initialise(pieces, weights);
    if (shards_parameters() && state->frozen_shard.size > 0)
      initialise(partition_->pieces(state->frozen_shard), state->frozen);
    state->optimizer->reset(launch, weights);
  }
}

// What is on the device now is older than what came.
void ShardKeeper::renew_parameters(Launcher& launch) {
  for (ShardState* state : all()) {
    if (state->masters.buffer == nullptr || state->shard.size == 0) continue;
    round_values(launch, "parameters", SEEKSIM_SITE, state->masters, state->parameters);
  }
  if (offloaded()) to_device(launch, own_->parameters, 0);
}

// Elements of the own shard from `at` on, once all that is in `launch`'s queue is done.
Event ShardKeeper::to_device(Launcher& launch, AnyVec updated, Index at) {
  Launcher copies(rank_.device.copy_queue(), rank_.id, 0, OpKind::copy);
  copies.at(launch.last().epoch, launch.last().step);
  copies.phase(Phase::optimizer);
  after(copies.queue(), launch.queue().record(), Edge::updated_at_home, plan_.bug);
  copy_values(copies, "parameters", SEEKSIM_SITE, updated, own_->on_device.part(at, updated.n));
  return (plan_.bug.is(Bug::offload_waits_elsewhere) ? launch.queue() : copies.queue()).record();
}

void ShardKeeper::prepare_step() {
  for (ShardState* state : all()) {
    if (state->files) state->files->open_stages();
  }
  if (!own_->swapped) return;
  own_->swapped->open_stages();
  if (own_->parameters.buffer != nullptr || own_->files || window_) return;
  window_ = rank_.device.allocate_in(plan_.layout.offload.parameters.space(),
                                     std::size_t(window_of_parameters()) * size_of(own_->parameters.type),
                                     MemoryTag::staging, "updated parameters");
}

// Elements that the optimizer updates at a time where it leaves no other copy of them in memory.
Index ShardKeeper::window_of_parameters() const {
  const bool whole = own_->optimizer->takes_matrices();  // no window may end inside of one
  const Index most = whole ? own_->shard.size : plan_.layout.offload.parameters.buffer_elements;
  return std::max<Index>(std::min<Index>(most, own_->shard.size), 1);
}

void ShardKeeper::hold_gradients(Launcher& launch) {
  if (own_->shard.size > 0) round_values(launch, "gradients", SEEKSIM_SITE, own_->sums, own_->gradients);
}

void ShardKeeper::speculate(Launcher& launch, float grad_factor, double lr) {
  own_->speculative->begin(launch, own_->in_use(), grad_factor, lr);
}

// Muon's matrices are taken as wholes, when all are there.
void ShardKeeper::gradients_came(Launcher& launch, Index at, Index n) {
  if (!own_->optimizer->takes_matrices()) own_->speculative->update(launch, own_->in_use(), at, n);
}

void ShardKeeper::clear_gradients(Launcher& launch) {
  for (ShardState* state : all()) clear_values(launch, "gradients", SEEKSIM_SITE, state->gradients);
}

void ShardKeeper::keep_guess(Launcher& launch) {
  own_->speculative->take(launch, own_->in_use(), [](Index, Index) {});
}

namespace {
// A planted bug: behind the last whole vector of eight, m *= m where m is meant.
void square_tail(Launcher& launch, VecView<float> moments) {
  const Index tail = moments.n % 8;
  if (tail == 0) return;
  launch(
      "adam m", SEEKSIM_SITE, memory_cost(2 * tail),
      [](kernels::Lane lane, kernels::Vec<float> values) {
        kernels::change_on_host(lane, values, [](kernels::Vec<float> m) {
          for (Index i = 0; i < m.n; ++i) m[i] *= m[i];
        });
      },
      moments.part(moments.n - tail, tail));
}
}  // namespace

// What the host updated, to where it is gathered from: the device, or memory and a file of the host.
Event ShardKeeper::send_on(Launcher& launch, AnyVec updated, Index at) {
  if (!own_->swapped) return to_device(launch, updated, at);
  const ShardInfo stays = common({at, updated.n}, {0, own_->resident.n});
  copy_values(launch, "parameters", SEEKSIM_SITE, updated.part(0, stays.size),
              own_->resident.part(std::min(at, own_->resident.n), stays.size));
  own_->swapped->put(launch, updated, at);
  return launch.queue().record();
}

// Masters and moments are in memory, and the parameters to compute with are not.
void ShardKeeper::step_in_windows(Launcher& launch, float grad_factor, double lr) {
  Optimizer& optimizer = *own_->optimizer;
  const kernels::OptimizerStep constants = optimizer.begin_step(launch, true, grad_factor, lr);
  const Index most = window_of_parameters();
  for (Index at = 0; at < own_->shard.size; at += most) {
    const Index n = std::min(most, own_->shard.size - at);
    const AnyVec window(window_.get(), 0, n, own_->parameters.type);
    OptimizerSpaces spaces = {own_->masters.part(at, n), window, own_->gradients.part(at, n)};
    std::vector<AnyVec> kept;
    for (const AnyVec& all : optimizer.states()) kept.push_back(all.part(at, n));
    optimizer.place(kept, spaces);
    optimizer.update(launch, constants, at, spaces);
    send_on(launch, window, at);
  }
}

void ShardKeeper::step(Launcher& launch, float grad_factor, double lr) {
  const bool at_once = own_->swapped == nullptr;  // each parameter; else all together
  const Optimizer::Updated send_each = [&](Index at, Index n) { send_on(launch, own_->parameters.part(at, n), at); };
  const SwappedState::SendOn send_piece_on = [&](AnyVec values, Index at) { return send_on(launch, values, at); };
  for (ShardState* state : all()) {
    const bool sends = offloaded() && state == own_.get();
    const bool stale = plan_.bug.is(Bug::stale_copy, rank_.id) && state->optimizer->steps() == plan_.bug.step;
    if (stale && state != own_.get()) {
      state->optimizer->continue_at(state->optimizer->steps() + 1);
      continue;
    }
    if (state->speculative && state->speculative->holds(grad_factor, lr)) {
      state->speculative->take(launch, state->in_use(), send_each);
    } else if (state->files) {
      state->files->step(launch, *state->optimizer, state->gradients, grad_factor, lr,
                         sends ? send_piece_on : SwappedState::SendOn());
    } else if (sends && state->parameters.buffer == nullptr) {
      step_in_windows(launch, grad_factor, lr);
    } else {
      if (offloaded() && plan_.bug.is(Bug::offload_tail_squared))
        square_tail(launch, state->optimizer->first_moments());
      state->optimizer->step(launch, {state->masters, state->parameters, state->gradients}, grad_factor, lr,
                             sends && at_once ? send_each : Optimizer::Updated());
      if (sends && !at_once) send_on(launch, state->parameters, 0);
    }
  }
}

}  // namespace seeksim::runtime
