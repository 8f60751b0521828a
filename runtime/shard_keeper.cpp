// Every decision here is a pure function of (old members, survivors), so that all survivors decide alike without
// asking.
#include "runtime/shard_keeper.h"

#include <algorithm>
#include <array>

#include "kernels/check.h"
#include "runtime/edge.h"
#include "runtime/typed_ops.h"

namespace seeksim::runtime {

namespace {

bool is_in(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

// What moves when a shard changes hands: three kinds of what is trained, or what is frozen.
std::vector<AnyVec> values_of(const ShardState& state, ShardInfo range, bool frozen) {
  if (frozen) return {state.frozen.part(range.offset - state.frozen_shard.offset, range.size)};
  const Index at = range.offset - state.shard.offset;
  return {state.weights().part(at, range.size), AnyVec(state.optimizer->first_moments()).part(at, range.size),
          AnyVec(state.optimizer->second_moments()).part(at, range.size)};
}

// Elements that pass through the device at a time on their way between the host and other ranks.
constexpr Index kWindowElements = Index(1) << 20;
constexpr Index kWindowsLeast = 16;  // a small model does not pass all at once

}  // namespace

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
CopyPlaces ShardKeeper::places(const std::vector<int>& members) const {
  const bool wrong = plan_.bug.is(Bug::copy_on_own_node);
  const auto node_of = [&](int rank) { return wrong ? rank % rank_.ranks_per_node : rank_.node_of(rank); };
  return {members, node_of, copies_wanted_};
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
  if (!shards_parameters())               // everybody has them all, and so nobody needs a copy
    state.frozen = flat_parameters_.part(frozen.offset, frozen.size);
  else if (frozen.size > 0)
    state.frozen = own_space(state, frozen.size, precision.compute, "frozen shard", tag(MemoryTag::parameters),
                             plan_.layout.offload.parameters.space());
  const ZeroPlan& zero = plan_.layout.zero;
  state.optimizer.emplace(rank_.device, plan_.definition.optimizer, partition.pieces(shard),
                          zero.stage == 3 ? zero.sub_group_elements : 0,
                          swaps() ? MemoryTag::staging : tag(MemoryTag::optimizer), home_,
                          is_16_bit(precision.compute) && !precision.master_weights);
  if (plan_.bug.is(Bug::full_optimizer_state) && !copy) {
    const Index others = parameters_.trainable_size() - shard.size;
    own_space(state, 2 * std::max<Index>(others, 1), ElementType::f32, "moments of others", MemoryTag::optimizer,
              home_);
  }
  return state;
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

// Until settle() all of them are in memory.
void ShardKeeper::place_swapped(ShardState& state, const std::vector<ParameterPiece>& pieces) {
  const ElementType type = plan_.definition.precision.compute;
  state.swapped = std::make_unique<SwappedParameters>(rank_, plan_, std::to_string(layouts_), pieces, type);
  const Index kept = state.swapped->resident();
  state.resident = state.all_of_them ? own_space(state, kept, type, "parameters that stay in memory",
                                                 MemoryTag::parameters, plan_.layout.offload.parameters.space())
                                     : state.on_device.part(0, kept);
  state.parameters_settled = false;
}

// From memory to the file, but for those that stay.
void ShardKeeper::settle_parameters() {
  if (!own_ || !own_->swapped || own_->parameters_settled) return;
  own_->swapped->store(own_->on_device);
  if (own_->all_of_them) {
    Launcher host(rank_.device.host_queue(), rank_.id, 0, OpKind::host_compute);
    copy_values(host, "parameters", SEEKSIM_SITE, own_->on_device.part(0, own_->resident.n), own_->resident);
    rank_.device.drain();
    if (own_->parameters.buffer == own_->all_of_them.get()) own_->parameters.buffer = nullptr;
    own_->all_of_them.reset();
  }
  own_->on_device = own_->resident;
  own_->parameters_settled = true;
}

// Memory for what is in files otherwise, without values.
void ShardKeeper::make_loaded(ShardState& state) {
  const PrecisionPlan& precision = plan_.definition.precision;
  const Index n = state.shard.size;
  const auto make = [&](ElementType type, const char* name) -> AnyVec {
    const std::size_t bytes = std::size_t(std::max<Index>(n, 1)) * size_of(type);
    state.loaded.push_back(rank_.device.allocate_in(home_, bytes, MemoryTag::staging, name));
    return {state.loaded.back().get(), 0, n, type};
  };
  state.parameters = make(precision.compute, "parameter shard");
  state.masters = {};
  if (precision.compute == ElementType::f32)
    state.masters = state.parameters.as<float>();
  else if (precision.master_weights)
    state.masters = make(ElementType::f32, "fp32 masters").as<float>();
}

namespace {
void unload(ShardState& state) {
  state.parameters.buffer = nullptr;
  state.masters = {};
  state.loaded.clear();
  state.optimizer->drop_moments();
}
}  // namespace

void ShardKeeper::load() {
  for (ShardState* state : all()) {
    if (state->is_loaded()) continue;
    make_loaded(*state);
    state->optimizer->make_moments();
    try {
      state->files->load({state->weights(), state->optimizer->first_moments(), state->optimizer->second_moments()});
    } catch (...) {
      unload(*state);
      throw;
    }
  }
}

void ShardKeeper::settle() {
  settle_parameters();
  for (ShardState* state : all()) {
    if (state->files == nullptr || !state->is_loaded()) continue;
    if (state->newer_in_memory)
      state->files->store({state->weights(), state->optimizer->first_moments(), state->optimizer->second_moments()});
    state->newer_in_memory = false;
    unload(*state);
  }
  for (const std::unique_ptr<SwappedState>& files : retired_) files->remove_files();
  for (const std::unique_ptr<SwappedParameters>& file : retired_parameters_) file->remove_file();
  retired_.clear();
  retired_parameters_.clear();
}

// Folders in which this run has files, each with the rank's marker in it.
std::vector<std::string> ShardKeeper::folders() const {
  const OffloadPlan& plan = plan_.layout.offload;
  std::vector<std::string> folders;
  if (swaps()) folders.push_back(plan.optimizer.nvme_path);
  if (swaps_parameters() && !(swaps() && plan.parameters.nvme_path == plan.optimizer.nvme_path))
    folders.push_back(plan.parameters.nvme_path);
  return folders;
}

namespace {
std::string marker(const std::string& folder, const Rank& rank) {
  return folder + "/rank" + std::to_string(rank.id) + "/in_use";
}
}  // namespace

// Files of a run that did not end in order are no state of this one: nothing says of which step, model or world they
// are.
void ShardKeeper::refuse_stale_files() {
  for (const std::string& folder : folders()) {
    const std::string path = marker(folder, rank_);
    if (joined_) remove_leftovers(folder);                         // of an earlier incarnation of this rank
    if (rank_.storage.exists(path) && !plan_.checkpoint.resume) {  // whose state comes from elsewhere
      throw StaleFiles(path +
                       ": these swap files are those of an earlier run that did not end in order; remove the folder " +
                       folder);
    }
    rank_.storage.write(path, "");
  }
}

void ShardKeeper::remove_files() {
  for (ShardState* state : all()) {
    if (state->files) state->files->remove_files();
    if (state->swapped) state->swapped->remove_file();
  }
  for (const std::unique_ptr<SwappedState>& files : retired_) files->remove_files();
  for (const std::unique_ptr<SwappedParameters>& file : retired_parameters_) file->remove_file();
  for (const std::string& folder : folders()) {
    if (layouts_ > 0) rank_.storage.remove(marker(folder, rank_));
  }
}

void ShardKeeper::make_layout(const std::vector<int>& members) {
  next_ = {};
  next_.members = members;
  if (layouts_ == 0) refuse_stale_files();
  ++layouts_;
  const int n = int(members.size());
  next_.partition = std::make_unique<Partition>(parameters_, n);
  next_.partition->plant(plan_.bug);
  if (!is_in(members, rank_.id)) return;
  const int me = position_in(members);
  next_.own = std::make_unique<ShardState>(make(me, *next_.partition, false));
  const CopyPlaces at = places(members);
  next_.keepers = at.keepers_of(me);
  for (const int owner : at.kept_by(me))
    next_.copies.push_back(std::make_unique<ShardState>(make(owner, *next_.partition, true)));
}

void ShardKeeper::retire_files() {
  for (ShardState* old : all()) {
    if (old->files) retired_.push_back(std::move(old->files));
    if (old->swapped) retired_parameters_.push_back(std::move(old->swapped));
  }
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
    state->optimizer->reset(launch);
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

// ---- from one world to the next -------------------------------------------------------------------------------------

std::vector<int> ShardKeeper::holders(const std::vector<int>& survivors) const {
  const CopyPlaces at = places(members_);
  std::vector<int> all;
  for (int owner = 0; owner < int(members_.size()); ++owner) {
    int holder = is_in(survivors, members_[std::size_t(owner)]) ? members_[std::size_t(owner)] : -1;
    for (const int keeper : holder < 0 ? at.keepers_of(owner) : std::vector<int>()) {
      if (holder < 0 && is_in(survivors, members_[std::size_t(keeper)])) holder = members_[std::size_t(keeper)];
    }
    all.push_back(holder);
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
  const CopyPlaces at = places(before);
  for (int owner = 0; owner < int(before.size()); ++owner) {
    if (is_in(survivors, before[std::size_t(owner)])) continue;
    std::vector<int> keepers = at.keepers_of(owner);
    if (plan_.bug.is(Bug::first_copy_only) && keepers.size() > 1) keepers.resize(1);
    const bool kept = std::any_of(keepers.begin(), keepers.end(),
                                  [&](int keeper) { return is_in(survivors, before[std::size_t(keeper)]); });
    if (kept || (holds_some && !holds_some(owner))) continue;
    std::string names;
    for (const int keeper : keepers) names += (names.empty() ? "" : ", ") + std::to_string(before[std::size_t(keeper)]);
    return "rank " + std::to_string(before[std::size_t(owner)]) + " is gone, and with it its shard of the state; " +
           (keepers.empty()       ? "no copy of it is kept"
            : keepers.size() == 1 ? "rank " + names + ", which kept its copy, is gone too"
                                  : "ranks " + names + ", which kept its copies, are gone too");
  }
  return {};
}

// A range of one kind of value, from who has it to who shall.
struct ShardKeeper::Move {
  ShardInfo range;
  bool frozen = false;
  int source = -1, target = -1;  // launch ranks
  const ShardState* from = nullptr;
  const ShardState* to = nullptr;
};

// All members walk the same list (new owners and copies, old shards), so their messages meet in order.
std::vector<ShardKeeper::Move> ShardKeeper::moves(const std::vector<int>& sources) {
  std::vector<Move> moves;
  const auto held_of = [&](int owner) -> const ShardState* {
    for (const ShardState* state : all()) {
      if (state->owner == owner) return state;
    }
    return nullptr;
  };
  auto bring = [&](int owner, int target, const ShardState* state) {
    for (int old = 0; old < int(members_.size()); ++old) {
      const int source = sources[std::size_t(old)];
      if (source != rank_.id && target != rank_.id) continue;
      const ShardState* const held = source == rank_.id ? held_of(old) : nullptr;
      const ShardInfo range = common(next_.partition->shard(owner), partition_->shard(old));
      const ShardInfo frozen = common(next_.partition->frozen(owner), partition_->frozen(old));
      if (range.size > 0) moves.push_back({range, false, source, target, held, state});
      if (frozen.size > 0 && shards_parameters()) moves.push_back({frozen, true, source, target, held, state});
    }
  };
  const CopyPlaces at = places(next_.members);
  for (int owner = 0; owner < int(next_.members.size()); ++owner) {
    bring(owner, next_.members[std::size_t(owner)], next_.own.get());
    for (const int keeper : at.keepers_of(owner)) {
      const ShardState* kept = nullptr;
      for (const std::unique_ptr<ShardState>& copy : next_.copies) {
        if (copy->owner == owner) kept = copy.get();
      }
      bring(owner, next_.members[std::size_t(keeper)], kept);
    }
  }
  return moves;
}

void ShardKeeper::begin_with(std::vector<int> members, std::int64_t optimizer_steps) {
  joined_ = true;
  joined_at_ = optimizer_steps;
  if (members.empty()) return;
  partition_ = std::make_unique<Partition>(parameters_, int(members.size()));
  members_ = std::move(members);
}

void ShardKeeper::remove_leftovers(const std::string& folder) {
  const std::string own = folder + "/rank" + std::to_string(rank_.id);
  for (const std::string& name : rank_.storage.list(own)) rank_.storage.remove(own + "/" + name);
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
  const std::vector<Move> all = moves(holders(givers));
  const Index window = offloaded() ? window_elements() : std::max<Index>(parameters_.size(), 1);
  // What is held of a window goes to its owners and to who keeps copies, and a window may come: three kinds of fp32
  // values each.
  if (offloaded()) open_passage(3 * (3 + copies_wanted_) * window);
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

// ---- in every step
// ---------------------------------------------------------------------------------------------------

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
  return std::max<Index>(std::min<Index>(plan_.layout.offload.parameters.buffer_elements, own_->shard.size), 1);
}

void ShardKeeper::hold_gradients(Launcher& launch) {
  if (own_->shard.size > 0) round_values(launch, "gradients", SEEKSIM_SITE, own_->sums, own_->gradients);
}

void ShardKeeper::clear_gradients(Launcher& launch) {
  for (ShardState* state : all()) clear_values(launch, "gradients", SEEKSIM_SITE, state->gradients);
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
  const kernels::AdamWStep constants = optimizer.begin_step(launch, true, grad_factor, lr);
  const Index most = window_of_parameters();
  for (Index at = 0; at < own_->shard.size; at += most) {
    const Index n = std::min(most, own_->shard.size - at);
    const AnyVec window(window_.get(), 0, n, own_->parameters.type);
    optimizer.update(launch, constants, at,
                     {own_->masters.part(at, n), window, own_->gradients.part(at, n),
                      optimizer.first_moments().part(at, n), optimizer.second_moments().part(at, n)});
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
    if (state->files) {
      state->files->step(launch, *state->optimizer, state->gradients, grad_factor, lr,
                         sends ? send_piece_on : SwappedState::SendOn());
    } else if (sends && state->parameters.buffer == nullptr) {
      step_in_windows(launch, grad_factor, lr);
    } else {
      if (offloaded() && plan_.bug.is(Bug::offload_tail_squared))
        square_tail(launch, state->optimizer->first_moments());
      state->optimizer->step(launch, {state->masters, state->parameters, state->gradients, {}, {}}, grad_factor, lr,
                             sends && at_once ? send_each : Optimizer::Updated());
      if (sends && !at_once) send_on(launch, state->parameters, 0);
    }
  }
}

}  // namespace seeksim::runtime
