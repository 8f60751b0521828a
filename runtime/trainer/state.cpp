// What a rank tells of its state: shards and parts gathered into whole tensors, digests, weights to hand out; and what
// the host itself reads.
#include <algorithm>

#include "kernels/check.h"
#include "kernels/digest.h"
#include "runtime/launch/typed_ops.h"
#include "runtime/model/weights.h"
#include "runtime/trainer/trainer.h"

namespace seeksim::runtime {

// All of a parameter from a flat space, cut among the data axis where there are shards, one parameter at a time in
// registration order: first the members of this rank's axis bring their shards, then, where the model is on several
// ranks, those of the replica their parts.
void Trainer::for_each_gathered(AnyVec flat, const AnyVec* frozen, const char* what, const PerParameter& each) {
  Index largest = 0;
  for (const ParameterInfo& p : whole().all()) largest = std::max(largest, p.size);
  hand_out_ = rank_.device.allocate(std::size_t(largest) * sizeof(float), MemoryTag::scratch, what);
  Queue& queue = rank_.device.communication_queue();
  Launcher launch(queue, rank_.id);
  launch.at(comm_->epoch(), step_);
  launch.phase(Phase::checkpoint);
  for (const ParameterInfo& p : whole().all()) {
    if (p.frozen && frozen == nullptr) continue;
    const AnyVec held = p.frozen ? *frozen : flat;
    const AnyVec all(hand_out_.get(), 0, p.size, held.type);
    const ParameterInfo* const here = parameters_.numbered(p.number);
    if (here != nullptr) bring_shards(launch, *here, held, all.part(here->first, here->size));
    if (replica_) {
      const Op op = replica_->gather_whole(queue, step_, p, all);
      host_after(*comm_, queue.record(), op, Edge::shard_handed_out, plan_.bug);
    }
    each(p, host_reads(SEEKSIM_SITE, all));
  }
  hand_out_.reset();
}

// A parameter of this rank, into `whole`: from where all of it is, or from the shards of the data axis.
void Trainer::bring_shards(Launcher& launch, const ParameterInfo& p, AnyVec held, AnyVec whole) {
  if (!keeper_) {
    copy_values(launch, p.name, SEEKSIM_SITE, held.part(p.offset, p.size), whole);
    return;
  }
  const Partition& partition = keeper_->partition();
  const ShardInfo mine = p.frozen ? partition.frozen(comm_->position()) : partition.shard(comm_->position());
  std::vector<ShardInfo> shards;
  for (int member = 0; member < comm_->size(); ++member) {
    const ShardInfo part = partition.shard_in(member, p.offset, p.offset + p.size);
    shards.push_back({part.offset - p.offset, part.size});
  }
  const ShardInfo own = shards[comm_->position()];
  if (own.size > 0) {
    copy_values(launch, p.name, SEEKSIM_SITE, held.part(p.offset + own.offset - mine.offset, own.size),
                whole.part(own.offset, own.size));
  }
  Op op;
  op.phase = Phase::checkpoint;
  op.step = step_;
  op.tensor = p.name;
  op.site = SEEKSIM_SITE;
  op = comm_->all_gather(launch.queue(), op, whole, shards);
  host_after(*comm_, launch.queue().record(), op, Edge::shard_handed_out, plan_.bug);
}

void Trainer::conclude() {
  if (concluded_) return;
  finish_checkpoints();
  if (finished()) free_activations();  // room for what is gathered
  if (keeper_) keeper_->load();
  look_for_poison(false);
  if (!keeper_ && alone()) {
    if (!poison_.empty()) throw UnwrittenMemory(poison_);
    return;
  }
  StateDigest state;
  state.data_position = data_position();
  state.loss_scale = scaler_.scale();
  const Optimizer& optimizer = keeper_ ? *keeper_->own().optimizer : *optimizer_;
  const AnyVec weights = keeper_ ? keeper_->own().weights() : flat_weights();
  const AnyVec frozen = keeper_ ? keeper_->own().frozen : flat_parameters();
  state.optimizer_steps = optimizer.steps();
  std::vector<std::uint64_t> first, second;
  auto keep = [](std::vector<std::uint64_t>& digests) {
    return [&digests](const ParameterInfo&, AnyVec values) { digests.push_back(digest_of(values)); };
  };
  for_each_gathered(optimizer.first_moments(), nullptr, "first moments", keep(first));
  for_each_gathered(optimizer.second_moments(), nullptr, "second moments", keep(second));
  if (has_values() && is_lowest_rank()) final_weights_.resize(std::size_t(whole().size()));
  std::size_t moments = 0;
  for_each_gathered(weights, &frozen, "parameters", [&](const ParameterInfo& p, AnyVec values) {
    if (!has_values()) return;
    if (is_lowest_rank()) widen_to(values, final_weights_.data() + p.offset);
    const std::uint64_t digest = digest_of(values);
    state.by_tensor.emplace_back(p.name, digest);
    state.params = kernels::combine(state.params, digest);
    if (p.frozen) return;
    state.optimizer = kernels::combine(state.optimizer, first[moments]);
    state.optimizer = kernels::combine(state.optimizer, second[moments]);
    ++moments;
  });
  if (keeper_) keeper_->settle();
  vote("end", true);
  if (keeper_) keeper_->remove_files();
  concluded_ = std::move(state);
}

void Trainer::host_touches(const char* site, const Range& range) const {
  if (range.lo == range.hi) return;
  Op op;
  op.kind = OpKind::copy;
  op.phase = Phase::commit;
  op.rank = rank_.id;
  op.step = step_;
  op.bytes = range.hi - range.lo;
  op.tensor = range.buffer->name;
  op.site = site;
  rank_.device.host_touches(op, range);
}

AnyVec Trainer::host_reads(const char* site, AnyVec values) const {
  host_touches(site, values.range(false));
  return values;
}

// In all that this rank holds for good, in what it gathered, and in the step's gradients where there are some.
void Trainer::look_for_poison(bool in_gradients) {
  if (!has_values()) return;
  std::vector<AnyVec> places;
  if (keeper_) keeper_->load();
  if (weights_) places.push_back(flat_parameters());
  if (masters_) places.push_back(flat_weights());
  if (gathered_) places = gathered_->held();
  const Optimizer* optimizer = keeper_ ? &*keeper_->own().optimizer : &*optimizer_;
  if (keeper_) places.push_back(keeper_->own().weights());
  if (keeper_ && keeper_->own().frozen.n > 0) places.push_back(keeper_->own().frozen);
  places.push_back(optimizer->first_moments());
  places.push_back(optimizer->second_moments());
  if (in_gradients) places.push_back(keeper_ ? keeper_->own().gradients : flat_gradients());
  Index looked = 0;
  poison_.clear();
  for (const AnyVec& place : places) {
    looked += place.n;
    const std::optional<Index> at = find_poison(host_reads(SEEKSIM_SITE, place));
    if (!at || !poison_.empty()) continue;
    poison_at_source_ = !in_gradients || &place != &places.back();
    poison_ = "memory that nobody wrote reached '" + std::string(place.buffer->name) + "', element " +
              std::to_string(place.offset + *at) + ", on rank " + std::to_string(rank_.id) + " in step " +
              std::to_string(step_);
  }
  observer_.looked_for_poison(rank_.id, looked, poison_, poison_at_source_);
  if (keeper_ && in_gradients) keeper_->settle();
}

std::int64_t Trainer::data_position() const {
  return step_ == 0 ? 0 : (batch_of_step(dropped_batches_, step_ - 1) + 1) * plan_.definition.global_batch;
}

RunState Trainer::run_state() const {
  RunState state;
  state.contract_version = kernels::kContractVersion;
  state.definition = definition_digest(plan_.definition);
  state.step = step_;
  state.data_position = data_position();
  state.training_seed = plan_.definition.training_seed;
  if (optimizer_) state.optimizer_steps = optimizer_->steps();
  if (keeper_ && keeper_->laid_out()) state.optimizer_steps = keeper_->own().optimizer->steps();
  state.scaler = scaler_.state();
  state.skips = skips_;
  state.dropped_batches = dropped_batches_;
  state.epoch = comm_ ? comm_->epoch() : rank_.control.epoch();
  return state;
}

void Trainer::restore(const RunState& state) {
  step_ = state.step;
  dropped_batches_ = state.dropped_batches;
  scaler_.restore(state.scaler);
  skips_ = state.skips;
  Optimizer& optimizer = keeper_ ? *keeper_->own().optimizer : *optimizer_;
  optimizer.continue_at(state.optimizer_steps);
  if (!keeper_) return;
  for (const auto& copy : keeper_->copies()) copy->optimizer->continue_at(state.optimizer_steps);
}

AnyVec Trainer::flat(const BufferPtr& buffer, ElementType type) const {
  if (!buffer) return {};
  return {buffer.get(), 0, Index(buffer->bytes / size_of(type)), type};
}

// Of what is trained.
AnyVec Trainer::flat_gradients() const {
  const AnyVec held =
      gradients_ ? flat(gradients_, plan_.definition.precision.gradients) : flat(sums_, ElementType::f32);
  return held.part(0, parameters_.trainable_size());
}

// What defines a parameter where all are replicated: its master, where there is one.
AnyVec Trainer::weights_of(const ParameterInfo& p) const {
  return (p.frozen ? flat_parameters() : flat_weights()).part(p.offset, p.size);
}

StateDigest Trainer::state() const {
  if (concluded_) return *concluded_;
  StateDigest state;
  state.data_position = data_position();
  state.loss_scale = scaler_.scale();
  if (keeper_ && keeper_->laid_out()) state.optimizer_steps = keeper_->own().optimizer->steps();
  if (!alone()) return state;
  // What is sharded is with others now; parameters that every rank holds can be told all the same.
  if (has_values() && keeper_ && weights_ && (published_ || step_ == 0)) {
    for (const auto& [name, digest] : replicated_digests()) {
      state.by_tensor.emplace_back(name, digest);
      state.params = kernels::combine(state.params, digest);
    }
  }
  if (!optimizer_) return state;
  state.optimizer_steps = optimizer_->steps();
  if (!has_values()) return state;
  for (const ParameterInfo& p : parameters_.all()) {
    const std::uint64_t digest = digest_of(host_reads(SEEKSIM_SITE, weights_of(p)));
    state.by_tensor.emplace_back(p.name, digest);
    state.params = kernels::combine(state.params, digest);
    if (p.frozen) continue;
    state.optimizer = kernels::combine(
        state.optimizer,
        digest_of(host_reads(SEEKSIM_SITE, AnyVec(optimizer_->first_moments()).part(p.offset, p.size))));
    state.optimizer = kernels::combine(
        state.optimizer,
        digest_of(host_reads(SEEKSIM_SITE, AnyVec(optimizer_->second_moments()).part(p.offset, p.size))));
  }
  return state;
}

std::vector<NamedTensor> Trainer::weights() {
  if (concluded_) return to_hugging_face(whole(), plan_.definition.model, final_weights_);
  std::vector<float> values(std::size_t(parameters_.size()));
  for (const ParameterInfo& p : parameters_.all())
    widen_to(host_reads(SEEKSIM_SITE, weights_of(p)), values.data() + p.offset);
  return to_hugging_face(parameters_, plan_.definition.model, values);
}

}  // namespace seeksim::runtime
