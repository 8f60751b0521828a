// Events stand where two queues meet: a gather waits until the last user of its space is through, the compute queue
// waits for the gather of what it is about to use. Nothing else.
#include "runtime/zero/gathered_weights.h"

#include <algorithm>

#include "kernels/check.h"
#include "runtime/launch/typed_ops.h"
#include "runtime/rules/bugs.h"
#include "runtime/seams/edges.h"

namespace seeksim::runtime {

GatheredWeights::GatheredWeights(Rank& rank, const Parameters& parameters, const TrainPlan& plan)
    : rank_(rank),
      plan_(plan.layout.zero),
      type_(plan.definition.precision.compute),
      bug_(plan.bug),
      every_module_(parameters.pieces().size() == 1 && parameters.embeds() && parameters.heads()),
      trainable_(parameters.trainable_size()),
      parameters_(parameters),
      launch_(rank.device.copy_queue(), rank.id) {
  Index kept = 0;
  for (const ParameterInfo& p : parameters.all()) {
    if (p.size > plan_.persistence_threshold_elements) continue;
    add_stretch(p.frozen ? kept_frozen_ : kept_, p.offset, p.size, kept);
    kept += p.size;
  }
  if (kept > 0) {
    persistent_ =
        rank.device.allocate(std::size_t(kept) * size_of(type_), MemoryTag::parameters, "persistent parameters");
  }
  for (int m = 0; m < parameters.modules(); ++m) add_module(parameters.module(m));
  quantised_.on = plan.definition.quantised.on();
  quantised_.form = weights_form(plan);
  if (quantised_.on) allocate_wires();
  const int layers = parameters.layers();
  for (const ModelPiece& piece : parameters.pieces())
    passes_.push_back({forward_uses(piece, layers), backward_uses(piece, layers, plan.layout.checkpointing),
                       weight_uses(piece, plan.layout.checkpointing)});
  if (every_module_) sequence_ = both_ = module_uses(layers, plan.layout.checkpointing);
}

void GatheredWeights::add_stretch(std::vector<Stretch>& stretches, Index offset, Index size, Index at) const {
  Stretch* last = stretches.empty() ? nullptr : &stretches.back();
  if (last != nullptr && offset != trainable_ && last->offset + last->size == offset && last->at + last->size == at) {
    last->size += size;
  } else {
    stretches.push_back({offset, size, at});
  }
}

bool GatheredWeights::is_in_a_module(Index element) const {
  const auto has = [element](const Stretch& s) { return element >= s.offset && element < s.offset + s.size; };
  return std::any_of(modules_.begin(), modules_.end(),
                     [&](const Module& m) { return std::any_of(m.stretches.begin(), m.stretches.end(), has); });
}

void GatheredWeights::add_module(const std::vector<const ParameterInfo*>& parameters) {
  Module module;
  for (const ParameterInfo* p : parameters) {
    if (p->size <= plan_.persistence_threshold_elements) continue;
    if (module.size == 0) module.name = p->name;
    add_stretch(module.stretches, p->offset, p->size, module.size);
    if (!is_in_a_module(p->offset)) add_stretch(module.first_here, p->offset, p->size, module.size);
    module.size += p->size;
  }
  modules_.push_back(std::move(module));
}

void GatheredWeights::allocate_wires() {
  const auto make = [this](Index bytes) {
    return rank_.device.allocate(std::size_t(bytes), MemoryTag::gathered, "quantised parameters");
  };
  Index most = 0;
  for (Module& module : modules_) {
    module.wire = CodeWire(parameters_, quantised_.form, module.stretches);
    most = std::max(most, module.wire.bytes());
  }
  if (most > 0) quantised_.bytes = make(most);
  quantised_.flat = CodeWire(parameters_, quantised_.form,
                             {{0, trainable_, 0}, {trainable_, parameters_.size() - trainable_, trainable_}});
  if (!persistent_) return;
  std::vector<Stretch> all = kept_;
  all.insert(all.end(), kept_frozen_.begin(), kept_frozen_.end());
  quantised_.persistent = CodeWire(parameters_, quantised_.form, all);
  quantised_.of_persistent = make(quantised_.persistent.bytes());
}

void GatheredWeights::connect(Communicator& comm, const Partition& partition, AnyVec shard, AnyVec frozen,
                              SwappedParameters* files, Communicator* group) {
  forget();
  last_ = {};  // of this world nothing has been gathered
  last_.rank = rank_.id;
  last_.epoch = comm.epoch();
  all_ = {&comm, &partition, shard, frozen, files};
  secondary_memory_ = {};
  if (group != nullptr) connect_secondary(*group);
}

// Filled by forward passes, whatever a world before left there.
void GatheredWeights::connect_secondary(Communicator& group) {
  secondary_cut_.emplace(parameters_, group.size());
  secondary_.emplace(Owners{&group, &*secondary_cut_, {}, {}, nullptr});
  const auto allocate = [this](const ShardInfo& part, BufferPtr& buffer) -> AnyVec {
    const Index bytes =
        quantised_.on ? quantised_.flat.bytes_of(part.offset, part.size) : part.size * Index(size_of(type_));
    buffer = rank_.device.allocate(std::size_t(std::max<Index>(bytes, 4)), MemoryTag::parameters, "secondary shard");
    return {buffer.get(), 0, part.size, type_};
  };
  const ShardInfo shard = secondary_cut_->shard(group.position()), frozen = secondary_cut_->frozen(group.position());
  secondary_->shard = allocate(shard, secondary_memory_.shard);
  if (frozen.size > 0) secondary_->frozen = allocate(frozen, secondary_memory_.frozen);
}

void GatheredWeights::forget() {
  if (all_.files != nullptr) all_.files->forget();
  all_ = {};  // the next world has others
  secondary_.reset();
  for (Module& module : modules_) module.buffer = -1, module.gathered = {}, module.kept = {}, module.is_kept = false;
  spaces_.clear();  // what an abort left in them shall not be mistaken for something gathered
  now_.live = 0;
  now_.at = 0;
  now_.current = -1;
  if (every_module_) sequence_ = both_;
  now_.trains = true;
}

void GatheredWeights::begin_step(Launcher& compute, std::int64_t step) {
  compute_ = &compute;
  now_.step = step;
}

void GatheredWeights::begin_pass(int micro_batch, Pass pass, std::size_t piece) {
  const bool forward = pass == Pass::forward;
  SEEKSIM_CHECK(now_.at == 0 || now_.at == sequence_.size() || (every_module_ && !forward),
                "a pass ended after %zu of %zu modules: each one is fetched in turn, whether it is used or not",
                now_.at, sequence_.size());
  if (forward || !every_module_) now_.at = 0;
  SEEKSIM_CHECK_EQ(now_.at, every_module_ && !forward ? modules_.size() : 0);
  const Passes& uses = passes_[piece];
  if (!every_module_) sequence_ = forward ? uses.forward : pass == Pass::weights ? uses.weights : uses.backward;
  if (every_module_ && !now_.trains) sequence_ = both_;
  now_.micro_batch = micro_batch;
  now_.trains = true;
}

void GatheredWeights::begin_evaluation(int micro_batch, std::size_t piece) {
  SEEKSIM_CHECK(now_.at == 0 || now_.at == sequence_.size(), "an evaluation begins after %zu of %zu modules", now_.at,
                sequence_.size());
  now_.at = 0;
  sequence_ = passes_[piece].forward;
  now_.micro_batch = micro_batch;
  now_.trains = false;
}

// ---- what the model asks for ---------------------------------------------------------------------------------------

void GatheredWeights::fetch(int module) {
  SEEKSIM_CHECK(now_.at < sequence_.size() && sequence_[now_.at].module == module, "module %d out of turn", module);
  Module& m = modules_[module];
  if (m.buffer < 0) gather_for(now_.at);
  if (bug_.is(Bug::gather_twice) && m.size > 0) gather_into(m, now_.at);
  // Without overlap that was waited for when the gather was enqueued.
  if (m.size > 0 && plan_.overlap_comm) after(compute_->queue(), m.gathered, Edge::parameters_gathered, bug_);
  now_.current = module;
  gather_ahead();
}

void GatheredWeights::release(int module) {
  SEEKSIM_CHECK_EQ(module, now_.current);
  Module& m = modules_[module];
  if (secondary_ && m.size > 0 && phase_at(now_.at) == Phase::forward && !quantised_.on) keep_secondary(m);
  if (m.size > 0 && !keeps(module)) {
    Space& space = spaces_[m.buffer];
    space.taken = bug_.is(Bug::kept_gathered);
    space.free = compute_->queue().record();
    if (bug_.is(Bug::early_release, rank_.id)) {  // its size fits no user any more
      space.buffer.reset();
      space.size = -1;
    }
    now_.live -= m.size;
    m.buffer = -1;
  }
  ++now_.at;
}

// After the module ran, from where it is gathered. What an earlier module has, a tied embedding, was kept with that,
// and may be on its way to others again. A rank that has no samples keeps its part for the others of its group.
void GatheredWeights::keep_secondary(Module& m) {
  if (m.is_kept && bug_.is(Bug::secondary_shards_stale)) return;
  const bool was_muted = compute_->muted();
  compute_->mute(false);
  const int me = secondary_->comm->position();
  Buffer* const gathered = spaces_[m.buffer].buffer.get();
  for (const Stretch& s : m.first_here) {
    const bool frozen = s.offset >= trainable_;
    const ShardInfo all = frozen ? secondary_cut_->frozen(me) : secondary_cut_->shard(me);
    const ShardInfo own = secondary_cut_->shard_in(me, s.offset, s.offset + s.size);
    if (own.size == 0) continue;
    copy_values(*compute_, m.name, SEEKSIM_SITE, AnyVec(gathered, s.at + own.offset - s.offset, own.size, type_),
                (frozen ? secondary_->frozen : secondary_->shard).part(own.offset - all.offset, own.size));
  }
  compute_->mute(was_muted);
  m.kept = compute_->queue().record();
  m.is_kept = true;
}

// What travelled, as soon as it is there. On the queue of the gathers, which takes care of the order.
void GatheredWeights::keep_secondary_bytes(Module& m) {
  if (m.is_kept && bug_.is(Bug::secondary_shards_stale)) return;
  const CodeWay way = way_of(m.wire, quantised_.bytes, false);
  const int me = secondary_->comm->position();
  for (const Stretch& s : m.first_here) {
    const ShardInfo own = secondary_cut_->shard_in(me, s.offset, s.offset + s.size);
    if (own.size > 0)
      CodeWay::copy(launch_, m.name, way.bytes_of(s.at + own.offset - s.offset, own.size), secondary_bytes(own));
  }
  m.kept = launch_.queue().record();
  m.is_kept = true;
}

// This rank's own elements of the flat space, in its secondary shard.
VecView<std::byte> GatheredWeights::secondary_bytes(const ShardInfo& own) const {
  const int me = secondary_->comm->position();
  const bool frozen = own.offset >= trainable_;
  const ShardInfo all = frozen ? secondary_cut_->frozen(me) : secondary_cut_->shard(me);
  const CodeWire& flat = quantised_.flat;
  return vec<std::byte>(*(frozen ? secondary_memory_.frozen : secondary_memory_.shard),
                        flat.bytes_of(all.offset, own.offset - all.offset), flat.bytes_of(own.offset, own.size));
}

AnyVec GatheredWeights::of(const ParameterInfo& parameter) {
  auto in = [&](const std::vector<Stretch>& stretches, Buffer* buffer) -> AnyVec {
    for (const Stretch& s : stretches) {
      if (parameter.offset >= s.offset && parameter.offset < s.offset + s.size)
        return {buffer, s.at + parameter.offset - s.offset, parameter.size, type_};
    }
    return {};
  };
  if (parameter.size <= plan_.persistence_threshold_elements)
    return in(parameter.frozen ? kept_frozen_ : kept_, persistent_.get());
  const Module& m = modules_[now_.current];
  const AnyVec view = in(m.stretches, m.buffer < 0 ? nullptr : spaces_[m.buffer].buffer.get());
  SEEKSIM_CHECK(view.buffer != nullptr, "%s is used without being gathered", parameter.name);
  return view;
}

std::vector<AnyVec> GatheredWeights::held() const {
  std::vector<AnyVec> held;
  auto all_of = [this](const BufferPtr& buffer) {
    return AnyVec(buffer.get(), 0, Index(buffer->bytes / size_of(type_)), type_);
  };
  if (persistent_) held.push_back(all_of(persistent_));
  for (const Space& space : spaces_) {
    if (space.buffer) held.push_back(all_of(space.buffer));
  }
  return held;
}

// ---- gathering ------------------------------------------------------------------------------------------------------

// As DeepSpeed counts: given up unless it is used again, in this micro-step, before max_reuse_distance elements of
// others, and never kept past max_live_parameters.
bool GatheredWeights::keeps(int module) const {
  if (now_.live > plan_.max_live_parameters) return false;
  Index distance = 0;
  for (std::size_t next = now_.at + 1; next < sequence_.size() && distance < plan_.max_reuse_distance; ++next) {
    if (sequence_[next].module == module) return true;
    distance += modules_[sequence_[next].module].size;
  }
  return false;
}

void GatheredWeights::gather_ahead() {
  if (all_.files != nullptr) return read_ahead();  // a gather would make the host wait for the disk here
  Index ahead = 0;
  for (std::size_t next = now_.at + 1; next < sequence_.size(); ++next) {
    const Module& m = modules_[sequence_[next].module];
    if (m.size == 0 || m.buffer >= 0) continue;
    if (ahead >= plan_.prefetch_elements || now_.live + m.size > plan_.max_live_parameters) return;
    ahead += m.size;
    gather_for(next);
  }
}

// From the files, while the module that was fetched runs.
void GatheredWeights::read_ahead() {
  const int me = all_.comm->position();
  Op op;
  op.step = now_.step;
  op.micro_batch = now_.micro_batch;
  op.epoch = all_.comm->epoch();
  op.site = SEEKSIM_SITE;
  Index ahead = 0;
  for (std::size_t next = now_.at + 1; next < sequence_.size() && ahead < plan_.prefetch_elements; ++next) {
    const Module& m = modules_[sequence_[next].module];
    if (m.size == 0 || m.buffer >= 0) continue;
    ahead += m.size;
    op.phase = phase_at(next);
    for (const Stretch& s : m.stretches) {
      if (s.offset >= trainable_) continue;
      const ShardInfo own = all_.partition->shard_in(me, s.offset, s.offset + s.size);
      if (own.size > 0 && !all_.files->read_ahead(own.offset - all_.partition->shard(me).offset, own.size, op)) return;
    }
  }
}

int GatheredWeights::take_space(Index size) {
  for (std::size_t i = 0; i < spaces_.size(); ++i) {
    if (!spaces_[i].taken && spaces_[i].size == size) {
      spaces_[i].taken = true;
      return int(i);
    }
  }
  Space space;
  space.buffer = rank_.device.allocate(std::size_t(size) * size_of(type_), MemoryTag::gathered, "gathered parameters");
  space.size = size;
  space.taken = true;
  spaces_.push_back(std::move(space));
  return int(spaces_.size()) - 1;
}

// For the use at a place in the sequence.
void GatheredWeights::gather_for(std::size_t place) {
  Module& m = modules_[sequence_[place].module];
  if (m.size == 0) return;
  m.buffer = take_space(m.size);
  now_.live += m.size;
  after(launch_.queue(), spaces_[m.buffer].free, Edge::space_free, bug_);
  gather_into(m, place);
}

void GatheredWeights::gather_into(Module& m, std::size_t place) {
  Op op;
  op.kind = OpKind::param_gather;
  op.phase = phase_at(place);
  op.step = now_.step;
  op.micro_batch = now_.micro_batch;
  op.tensor = m.name;
  op.site = SEEKSIM_SITE;
  const bool again = secondary_.has_value() && now_.trains && op.phase != Phase::forward;
  if (again) after(launch_.queue(), m.kept, Edge::secondary_filled, bug_);
  const bool exact = op.phase != Phase::forward && !secondary_ && bug_.is(Bug::quantised_forward_only);
  m.gathered = gather(launch_, op, m.stretches, *spaces_[m.buffer].buffer, again ? *secondary_ : all_,
                      way_of(m.wire, quantised_.bytes, exact));
  if (secondary_ && quantised_.on && now_.trains && op.phase == Phase::forward) keep_secondary_bytes(m);
  if (!plan_.overlap_comm) after(compute_->queue(), m.gathered, Edge::parameters_gathered_at_once, bug_);
}

Event GatheredWeights::refresh_persistent(Queue& queue, std::int64_t step, bool new_world) {
  Op op;
  op.kind = OpKind::publish;
  op.phase = Phase::publish;
  op.step = step;
  op.tensor = "persistent parameters";
  op.site = SEEKSIM_SITE;
  Launcher launch(queue, rank_.id);
  std::vector<Stretch> stretches = kept_;
  if (new_world) stretches.insert(stretches.end(), kept_frozen_.begin(), kept_frozen_.end());
  const bool exact = bug_.is(Bug::quantised_persistent_exact);
  const CodeWay way = way_of(quantised_.persistent, quantised_.of_persistent, exact);
  return gather(launch, op, stretches, *persistent_, all_, way);
}

CodeWay GatheredWeights::way_of(const CodeWire& wire, const BufferPtr& bytes, bool exact) const {
  return {quantised_.on && !exact ? &wire : nullptr, bytes.get(), quantised_.form};
}

// Elements of the own shard from `at` on: its front is in memory, the rest in a file.
void GatheredWeights::bring_own(Launcher& launch, const Op& op, Index at, AnyVec to) {
  const Index stays = std::clamp<Index>(all_.files->resident() - at, 0, to.n);
  copy_values(launch, op.tensor, SEEKSIM_SITE, all_.shard.part(at, stays), to.part(0, stays));
  Op read = op;
  read.epoch = all_.comm->epoch();
  all_.files->bring(launch, at + stays, to.part(stays, to.n - stays), read, *all_.comm, last_);
}

Event GatheredWeights::gather(Launcher& launch, Op op, const std::vector<Stretch>& stretches, Buffer& into,
                              const Owners& owners, const CodeWay& way) {
  pieces_.clear();
  const Partition& partition = *owners.partition;
  const int me = owners.comm->position();
  launch.at(owners.comm->epoch(), op.step);
  launch.phase(op.phase, op.micro_batch);
  // Elements of `values`, which are to lie or lie already at `place`.
  const auto add_piece = [&](int peer, bool send, AnyVec values, Index place) {
    if (values.n == 0) return;
    const Range range = way.on() ? way.bytes_of(place, values.n).range() : values.range(!send);
    pieces_.push_back({peer, send, range.buffer, range.lo, range.hi});
  };
  for (const Stretch& s : stretches) {
    const bool frozen = s.offset >= trainable_;
    const ShardInfo mine = frozen ? partition.frozen(me) : partition.shard(me);
    const ShardInfo own = partition.shard_in(me, s.offset, s.offset + s.size);
    const AnyVec from = (frozen ? owners.frozen : owners.shard).part(own.offset - mine.offset, own.size);
    const AnyVec to_own(&into, s.at + own.offset - s.offset, own.size, type_);
    // From memory of the host, or a file, it goes to its place first, and from there to the others.
    const bool in_file = owners.files != nullptr && !frozen;
    const bool is_here = own.size == 0 || (!in_file && from.buffer->space == runtime::Space::device);
    const AnyVec sent = is_here ? from : to_own;
    for (int member = 0; member < owners.comm->size(); ++member) {
      if (member == me) continue;
      const ShardInfo theirs = partition.shard_in(member, s.offset, s.offset + s.size);
      const int peer = owners.comm->members()[member];
      const AnyVec to(&into, s.at + theirs.offset - s.offset, theirs.size, type_);
      add_piece(peer, false, to, to.offset);
      add_piece(peer, true, sent, to_own.offset);
    }
    if (own.size == 0 || bug_.is(Bug::unwritten_memory, rank_.id)) continue;
    if (in_file)
      bring_own(launch, op, own.offset - mine.offset, to_own);
    else if (!way.on() || !is_here)
      copy_values(launch, op.tensor, SEEKSIM_SITE, from, to_own);
    if (way.on() && secondary_ && owners.comm == secondary_->comm)
      CodeWay::copy(launch, op.tensor, secondary_bytes(own), way.bytes_of(to_own.offset, own.size));
    else if (way.on())
      way.quantise(launch, op.tensor, sent, to_own.offset);
  }
  last_ = owners.comm->exchange(launch.queue(), op, pieces_);
  if (way.on() && bug_.is(Bug::quantised_last_scale_lost, rank_.id)) way.lose_last_scale(launch, op.tensor);
  if (way.on()) way.dequantise(launch, op.tensor, into, type_);
  if (way.on() && op.phase == Phase::forward && bug_.is(Bug::quantised_weights_kept))
    keep_quantised(launch, op, stretches, into);
  return launch.queue().record();
}

// A planted bug.
void GatheredWeights::keep_quantised(Launcher& launch, const Op& op, const std::vector<Stretch>& stretches,
                                     Buffer& from) {
  const int me = all_.comm->position();
  for (const Stretch& s : stretches) {
    const ShardInfo own = all_.partition->shard_in(me, s.offset, s.offset + s.size);
    if (own.size == 0 || s.offset >= trainable_ || all_.files != nullptr) continue;
    copy_values(launch, op.tensor, SEEKSIM_SITE, AnyVec(&from, s.at + own.offset - s.offset, own.size, type_),
                all_.shard.part(own.offset - all_.partition->shard(me).offset, own.size));
  }
}

}  // namespace seeksim::runtime
