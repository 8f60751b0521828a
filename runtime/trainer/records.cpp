#include "runtime/trainer/records.h"

#include "kernels/pointwise.h"
#include "runtime/launch/poison.h"
#include "runtime/model/weights.h"
#include "runtime/plan/optimizer_kinds.h"
#include "runtime/seams/edges.h"

namespace seeksim::runtime {

void Records::shards() {
  const ShardKeeper* const keeper = tensors_.keeper();
  if (keeper == nullptr) return;
  const Partition& partition = keeper->partition();
  const ShardState& own = keeper->own();
  ShardRecord record;
  record.epoch = world_.epoch();
  record.part = world_.part();
  record.members = world_.shards().size();
  record.position = world_.shards().position();
  record.group = world_.groups().group_of(world_.place().data);
  record.own = own.shard;
  record.elements = {own.parameters.n, own.gradients.n};
  for (const AnyVec& moments : own.optimizer->states()) record.elements.push_back(moments.n);
  for (const OwnedRange& range : partition.owned(record.position, 0, tensors_.parameters().gradient_size())) {
    record.gradients.push_back({range.offset, range.size});
  }
  for (const auto& copy : keeper->copies()) record.copies.emplace_back(copy->owner, copy->shard);
  bench_.observer.shards(bench_.rank.id, record);
}

// All ways of a layer route the same tokens: the first one tells.
void Records::choices(std::int64_t step, Buffer* counts, std::span<const SampleRange> micro_batches) const {
  if (counts == nullptr || !bench_.has_values()) return;
  if (world_.place().way % bench_.plan.layout.parallel.tensor != 0) return;
  const ModelPlan& m = bench_.definition().model;
  const Index of_layer = 2 * Index(m.experts.count);
  ChoicesRecord record;
  record.step = step;
  record.epoch = world_.epoch();
  for (const ModelPiece& piece : tensors_.parameters().pieces()) {
    for (int l = piece.first; l < piece.end; ++l) {
      if (!m.experts.in_layer(l)) continue;
      record.layers.push_back(l);
      const std::size_t at = record.counts.size();
      record.counts.resize(at + std::size_t(of_layer));
      for (std::size_t k = 0; k < micro_batches.size() && micro_batches[k].size() > 0; ++k) {
        const kernels::OnHost<std::int32_t> held = bench_.host_reads(
            SEEKSIM_SITE, vec<const std::int32_t>(*counts, (Index(k) * m.layers + l) * of_layer, of_layer));
        for (Index i = 0; i < of_layer; ++i) record.counts[at + std::size_t(i)] += held[i];
      }
    }
  }
  if (!record.layers.empty()) bench_.observer.choices(bench_.rank.id, record);
}

// ---- gradients -----------------------------------------------------------------------------------------------------

namespace {

// Unscaled, as the host hands them out.
void append_unscaled(AnyVec held, float factor, std::vector<float>& out) {
  const std::size_t at = out.size();
  out.resize(at + std::size_t(held.n));
  widen_to(held, out.data() + at);
  if (factor != 1.0f) kernels::scale(kernels::Lane{}, {out.data() + at, held.n}, factor);
}

}  // namespace

void Records::begin_step() {
  // Of workers that train apart, the first one's.
  hands_out_ = bench_.has_values() && tensors_.workers().begin == 0 &&
               bench_.observer.wants_gradients(bench_.rank.id, bench_.progress.step());
}

void Records::gather_gradients() {
  const bool all_here = tensors_.keeper() == nullptr && bench_.alone();
  if (!hands_out_ || all_here) return;
  handed_out_.clear();
  whole_.for_each(tensors_.gradients(), nullptr, "gradients", [this](const ParameterInfo&, AnyVec values) {
    append_unscaled(values, unscale_factor(bench_.progress.scaler().scale()), handed_out_);
  });
}

void Records::gradients(std::int64_t step) {
  if (!hands_out_) return;
  if (tensors_.keeper() == nullptr && bench_.alone()) {
    handed_out_.clear();
    append_unscaled(tensors_.flat_gradients(), unscale_factor(bench_.progress.scaler().scale()), handed_out_);
  }
  bench_.observer.gradients(bench_.rank.id, step,
                            gradients_to_hugging_face(tensors_.whole(), bench_.definition().model, handed_out_));
}

void Records::state() {
  const std::int64_t step = bench_.progress.step();
  if (tensors_.keeper() != nullptr || !bench_.alone() || !bench_.has_values()) return;
  if (!bench_.observer.wants_state(bench_.rank.id, step)) return;
  bench_.finish_all(bench_.op(OpKind::copy, Phase::commit, "state", SEEKSIM_SITE), Edge::update_applied);
  const Parameters& parameters = tensors_.parameters();
  const ModelPlan& model = bench_.definition().model;
  std::vector<float> all(std::size_t(parameters.size()));
  for (const ParameterInfo& p : parameters.all())
    widen_to(bench_.host_reads(SEEKSIM_SITE, tensors_.weights_of(p)), all.data() + p.offset);
  const auto moments = [&](VecView<float> held) {
    if (held.buffer == nullptr) return std::vector<NamedTensor>();
    std::vector<float> values(std::size_t(held.n));
    widen_to(bench_.host_reads(SEEKSIM_SITE, AnyVec(held)), values.data());
    return gradients_to_hugging_face(parameters, model, values);
  };
  bench_.observer.state(bench_.rank.id, step, to_hugging_face(parameters, model, all),
                        moments(tensors_.optimizer().first_moments()), moments(tensors_.optimizer().second_moments()));
}

// ---- poison --------------------------------------------------------------------------------------------------------

std::vector<AnyVec> Records::held() const {
  std::vector<AnyVec> places;
  const auto hold_flat = [this](std::vector<AnyVec>& all) {
    all.push_back(tensors_.flat_parameters());
    if (tensors_.has_masters()) all.push_back(tensors_.flat_weights());
    for (const AnyVec& moments : tensors_.optimizer().states()) all.push_back(moments);
  };
  const ShardKeeper* const keeper = tensors_.keeper();
  if (const OuterStep* outer = tensors_.outer()) {
    places.push_back(AnyVec(outer->weights()));
    if (outer->momentum().n > 0) places.push_back(AnyVec(outer->momentum()));
    tensors_.for_each_worker([&](Index worker) {
      if (worker > 0) hold_flat(places);
    });
  }
  if (tensors_.flat_weights_here()) places.push_back(tensors_.flat_parameters());
  if (tensors_.has_masters()) places.push_back(tensors_.flat_weights());
  if (const GatheredWeights* gathered = tensors_.gathered()) places = gathered->held();
  if (keeper != nullptr) places.push_back(keeper->own().weights());
  if (keeper != nullptr && keeper->own().frozen.n > 0) places.push_back(keeper->own().frozen);
  for (const AnyVec& moments : tensors_.optimizer().states()) places.push_back(moments);
  return places;
}

PoisonFound Records::look_for_poison(bool in_gradients) {
  PoisonFound found;
  if (!bench_.has_values()) return found;
  ShardKeeper* const keeper = tensors_.keeper();
  if (keeper != nullptr) keeper->load();
  std::vector<AnyVec> places = held();
  const std::size_t sources = places.size();
  if (in_gradients) tensors_.for_each_worker([&](Index) { places.push_back(tensors_.gradients()); });
  Index looked = 0;
  for (std::size_t i = 0; i < places.size(); ++i) {
    looked += places[i].n;
    const std::optional<Index> at = find_poison(bench_.host_reads(SEEKSIM_SITE, places[i]));
    if (!at || !found.where.empty()) continue;
    found.at_source = i < sources;
    found.where = "uninitialised memory reached '" + std::string(places[i].buffer->name) + "', element " +
                  std::to_string(places[i].offset + *at) + ", on rank " + std::to_string(bench_.rank.id) + " in step " +
                  std::to_string(bench_.progress.step());
  }
  bench_.observer.looked_for_poison(bench_.rank.id, looked, found.where, found.at_source);
  if (keeper != nullptr && in_gradients) keeper->settle();
  return found;
}

// ---- a committed step ----------------------------------------------------------------------------------------------

void Records::digests() {
  Op op = bench_.op(OpKind::compute, Phase::commit, "", SEEKSIM_SITE);
  op.epoch = world_.epoch();
  Recorder& recorder = bench_.rank.recorder;
  const ShardKeeper* const keeper = tensors_.keeper();
  if (tensors_.outer() != nullptr) {
    tensors_.for_each_worker([&](Index) {
      for (const ParameterInfo& p : tensors_.parameters().all()) {
        op.tensor = p.name;
        recorder.mix(op, digest_of(bench_.host_reads(SEEKSIM_SITE, tensors_.weights_of(p))));
      }
    });
    return;
  }
  if (keeper == nullptr) {
    replicated_.clear();
    for (const ParameterInfo& p : tensors_.parameters().all()) {
      op.tensor = p.name;
      replicated_.emplace_back(p.name, digest_of(bench_.host_reads(SEEKSIM_SITE, tensors_.weights_of(p))));
      recorder.mix(op, replicated_.back().second);
    }
    return;
  }
  const auto mix = [&](ShardInfo shard, AnyVec values) {
    for (const ParameterPiece& piece : keeper->partition().pieces(shard)) {
      op.tensor = piece.parameter->name;
      const AnyVec of_piece = values.part(piece.offset() - shard.offset, piece.size);
      recorder.mix(op, digest_of(bench_.host_reads(SEEKSIM_SITE, of_piece)));
    }
  };
  const ShardState& own = keeper->own();
  if (const SwappedState* files = own.files.get()) {
    op.tensor = "weights in files";
    recorder.mix(op, files->digest(0));
  } else {
    mix(own.shard, own.weights());
  }
  mix(own.frozen_shard, own.frozen);
}

const StepRecord& Records::step_committed(const StepResult& result, bool applied, double lr) {
  committed_ = {};
  committed_.step = bench_.progress.step() - 1;
  committed_.loss = result.loss;
  committed_.grad_norm = result.grad_norm;
  committed_.lr = lr;
  committed_.skipped = !applied;
  committed_.loss_scale = bench_.progress.scaler().scale();
  committed_.nonfinite = result.nonfinite;
  committed_.committed_ns = bench_.rank.clock.now();
  committed_.epoch = world_.epoch();
  committed_.data_position = bench_.progress.data_position();
  committed_.optimizer_steps = tensors_.optimizer().steps();
  if (applied && !bench_.definition().precision.master_weights) stagnation();
  return committed_;
}

// What rounding took from the step's updates, where there are no masters to keep them.
void Records::stagnation() const {
  Buffer* const counts = tensors_.optimizer().stagnation();
  if (counts == nullptr || !bench_.has_values()) return;
  const VecView<const kernels::Stagnation> view = vec<const kernels::Stagnation>(*counts);
  bench_.rank.device.host_touches(bench_.compute.last(), view.range());
  bench_.observer.stagnation(bench_.rank.id, committed_.step, on_host(view)[0]);
}

// ---- what others hold too ------------------------------------------------------------------------------------------

Records::Digests Records::replicated_digests() const {
  Digests digests;
  const AnyVec all = tensors_.flat_parameters();
  for (const ParameterInfo& p : tensors_.parameters().all()) {
    digests.emplace_back(p.name, digest_of(bench_.host_reads(SEEKSIM_SITE, all.part(p.offset, p.size))));
  }
  return digests;
}

void Records::list_what_all_ways_hold(ReplicaRecord& record) const {
  const Parameters& parameters = tensors_.parameters();
  record.ways = parameters.part().ways;
  for (std::size_t i = 0; record.ways > 1 && i < record.parameters.size(); ++i) {
    if (!parameters.part().cuts(parameters.all()[i])) record.on_all_ways.push_back(record.parameters[i]);
  }
}

void Records::replica() {
  if (!bench_.has_values() || !bench_.observer.wants_replicas(bench_.rank.id)) return;
  ReplicaRecord record;
  record.step = bench_.progress.step() - 1;
  record.part = world_.part();
  record.epoch = world_.epoch();
  record.training_seed = bench_.definition().training_seed;
  record.lr = committed_.lr;
  record.loss_scale = committed_.loss_scale;
  record.data_position = bench_.progress.step() * bench_.definition().global_batch;
  record.optimizer_steps = tensors_.optimizer().steps();
  if (tensors_.outer() != nullptr) {
    for (const ParameterInfo& p : tensors_.parameters().all())
      record.parameters.emplace_back(p.name, digest_of(bench_.host_reads(SEEKSIM_SITE, tensors_.defining(p))));
    if (const VecView<float> momentum = tensors_.outer()->momentum(); momentum.n > 0)
      record.parameters.emplace_back("outer momentum", digest_of(bench_.host_reads(SEEKSIM_SITE, AnyVec(momentum))));
  } else if (tensors_.keeper() == nullptr)
    record.parameters = replicated_;
  else if (tensors_.flat_weights_here())
    record.parameters = replicated_digests();
  list_what_all_ways_hold(record);
  if (const Fp8Scales& fp8 = bench_.progress.fp8(); !fp8.states().empty()) {
    record.parameters.emplace_back("fp8 scales", fp8.digest());
    if (record.ways > 1) record.on_all_ways.push_back(record.parameters.back());
  }
  if (tensors_.keeper() != nullptr) list_shards(record);
  bench_.observer.replica(bench_.rank.id, record);
}

// Of what each worker computes with and of what defines it.
void Records::workers() const {
  if (tensors_.outer() == nullptr || !bench_.has_values()) return;
  const Index n = tensors_.parameters().trainable_size();
  const AnyVec outer(tensors_.outer()->weights());
  WorkersRecord record;
  record.step = committed_.step;
  record.epoch = world_.epoch();
  record.met = bench_.definition().local_sgd.meets_after(committed_.step + 1);
  record.moved = !committed_.skipped && committed_.lr > 0 && committed_.grad_norm > 0;  // else nothing has to move
  record.first = tensors_.workers().begin;
  const std::uint64_t defining = digest_of(bench_.host_reads(SEEKSIM_SITE, outer));
  with_float_type(bench_.compute_type(), [&](auto like) {
    using T = decltype(like);
    std::vector<T> rounded(static_cast<std::size_t>(n));
    kernels::narrow<T>(kernels::Lane{}, on_host(outer.as<const float>()).get(), {rounded.data(), n});
    record.outer = kernels::combine(defining, kernels::digest<T>({rounded.data(), n}));
  });
  tensors_.for_each_worker([&](Index) {
    const auto digest = [&](AnyVec of) { return digest_of(bench_.host_reads(SEEKSIM_SITE, of.part(0, n))); };
    record.workers.push_back(kernels::combine(digest(tensors_.flat_weights()), digest(tensors_.flat_parameters())));
  });
  bench_.observer.workers(bench_.rank.id, record);
}

void Records::list_shards(ReplicaRecord& record) const {
  const GatheredWeights* const gathered = tensors_.gathered();
  if (gathered != nullptr && gathered->persistent() != nullptr) {
    Buffer* const buffer = gathered->persistent();
    const ElementType type = bench_.compute_type();
    const AnyVec all(buffer, 0, Index(buffer->bytes / size_of(type)), type);
    record.parameters.emplace_back("persistent parameters", digest_of(bench_.host_reads(SEEKSIM_SITE, all)));
  }
  const ShardKeeper& keeper = *tensors_.keeper();
  const bool replicated = world_.groups().groups() > 1;
  if (replicated) record.shard = keeper.own().owner;
  if (!keeper.keeps_copies() && !replicated) return;
  record.own = digests_of(keeper.own());
  for (const auto& copy : keeper.copies())
    record.copies.emplace_back(world_.shards().members()[std::size_t(copy->owner)], digests_of(*copy));
}

ReplicaRecord::OfShard Records::digests_of(const ShardState& state) const {
  const OptimizerPlan& plan = bench_.definition().optimizer;
  const std::size_t moments = std::size_t(moments_of(plan)), kept = std::size_t(states_of(plan));
  const std::vector<AnyVec> states = state.files ? std::vector<AnyVec>() : state.optimizer->states();
  // Of what is kept beside the weights, in its order.
  const auto digest = [&](std::size_t kind) {
    if (state.files) return state.files->digest(kind);
    return digest_of(bench_.host_reads(SEEKSIM_SITE, kind == 0 ? state.weights() : states[kind - 1]));
  };
  return {digest(0), moments >= 1 ? digest(1) : 0, moments == 2 ? digest(2) : 0, kept > moments ? digest(kept) : 0};
}

}  // namespace seeksim::runtime
