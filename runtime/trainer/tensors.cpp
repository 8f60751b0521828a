#include "runtime/trainer/tensors.h"

#include <algorithm>
#include <type_traits>

#include "kernels/cast.h"
#include "runtime/files/safetensors.h"
#include "runtime/host/host_writes.h"
#include "runtime/layout/grid.h"
#include "runtime/model/weights.h"
#include "runtime/rules/bugs.h"
#include "runtime/rules/mutants.h"
#include "runtime/seams/edges.h"

namespace seeksim::runtime {

using kernels::kBlock;
using kernels::Lane;
using kernels::Vec;

namespace {

ModelPart part_of(const Rank& rank, const TrainPlan& plan, const Seats& seats) {
  const ParallelPlan& parallel = plan.layout.parallel;
  const GridPlace place = launch_place(parallel, seats.count, seats.of(rank.id));
  return model_part(plan.definition.model, parallel, place.stage, place.way);
}

}  // namespace

Tensors::Tensors(Workbench& bench, const Seats& seats)
    : bench_(bench),
      parameters_(bench.definition().model, bench.definition().optimizer, part_of(bench.rank, bench.plan, seats)) {
  parameters_.place_by(bench.plan.layout.zero.rule);
}

const Parameters& Tensors::whole() const {
  if (bench_.alone()) return parameters_;
  const Definition& d = bench_.definition();
  if (!whole_) whole_ = std::make_unique<const Parameters>(d.model, d.optimizer);
  return *whole_;
}

Index Tensors::place_in_whole(Index gradient) const {
  if (bench_.alone()) return gradient;
  const Index trainable = parameters_.trainable_size();
  if (gradient == parameters_.loss_offset()) return whole().loss_offset();
  if (gradient >= trainable) return whole().head_gradient_offset() + parameters_.wte().first + gradient - trainable;
  for (const ParameterInfo* p : parameters_.trainable()) {
    if (gradient >= p->offset + p->size) continue;
    const bool head_use = whole().shares_head() && p->number == whole().wte().number && !parameters_.embeds();
    const Index begin = head_use ? whole().head_gradient_offset() : whole().all()[p->number].offset;
    return begin + p->whole_place(gradient - p->offset);
  }
  return whole().gradient_size();
}

// ---- memory --------------------------------------------------------------------------------------------------------

void Tensors::allocate_flat() {
  flat_.clear();
  flat_.resize(std::size_t(workers_.size()));
  for_each_worker([this](Index) { allocate_worker(); });
}

void Tensors::allocate_worker() {
  const auto elements = [&](Index n, ElementType type, MemoryTag tag, const char* name) {
    return bench_.rank.device.allocate(static_cast<std::size_t>(n) * size_of(type), tag, name);
  };
  const PrecisionPlan& precision = bench_.definition().precision;
  if (!bench_.shards_parameters()) {
    here().weights = elements(parameters_.size(), precision.compute, MemoryTag::parameters, "weights");
    here().all.emplace(flat_parameters());
    if (bench_.definition().quantised.on())
      here().rounded.emplace(bench_.rank.device, bench_.compute, parameters_, bench_.plan, flat_parameters());
  }
  if (!bench_.shards_optimizer() && is_16_bit(precision.compute) && precision.master_weights) {
    here().masters = elements(parameters_.trainable_size(), ElementType::f32, MemoryTag::optimizer, "fp32 masters");
  }
  if (bench_.shards_gradients() || bench_.offloads()) return;
  const bool rounded = is_16_bit(precision.gradients);
  if (rounded) {
    here().gradients = elements(parameters_.trainable_size(), precision.gradients, MemoryTag::gradients, "gradients");
  }
  // Where their owners sum them, and hold them in 16 bits, the fp32 sums are the owners'.
  if (!rounded || !bench_.shards_optimizer()) {
    here().sums =
        elements(parameters_.gradient_size(), ElementType::f32,
                 rounded ? MemoryTag::partial_sums : MemoryTag::gradients, rounded ? "gradients in fp32" : "gradients");
  }
}

void Tensors::allocate_state() {
  const PrecisionPlan& precision = bench_.definition().precision;
  const CompressionPlan& compression = bench_.definition().compression;
  if (compression.on()) residuals_.emplace(bench_.rank.device, compression, parameters_.trainable_size());
  if (bench_.definition().staleness.on()) late_.emplace(bench_.rank.device, bench_.plan, parameters_.loss_offset());
  if (compression.in_factors()) factors_.emplace(bench_.rank.device, parameters_, bench_.plan);
  if (bench_.shards_parameters()) gathered_.emplace(bench_.rank, parameters_, bench_.plan);
  if (bench_.shards_optimizer()) {
    keeper_.emplace(bench_.rank, bench_.plan, parameters_);
    keeper_->within(flat_parameters(), has_flat_gradients() ? flat_gradients() : AnyVec{});
    return;
  }
  const Partition whole(parameters_, 1);
  for_each_worker([&](Index) {
    here().optimizer.emplace(bench_.rank.device, bench_.definition().optimizer, whole.pieces(whole.shard(0)), 0,
                             MemoryTag::optimizer, Space::device,
                             is_16_bit(precision.compute) && !precision.master_weights);
    prepare(*here().optimizer, bench_.plan, int(bench_.rank.control.members().size()));
    if (compression.of_momentum() && !bench_.plan.bug.is(Bug::momentum_taken_for_gradient))
      here().optimizer->freeze_after(compression.start_step);
  });
  if (bench_.definition().local_sgd.on()) outer_.emplace(bench_.rank, bench_.plan, parameters_.trainable_size());
}

AnyVec Tensors::flat(const BufferPtr& buffer, ElementType type) const {
  if (!buffer) return {};
  return {buffer.get(), 0, Index(buffer->bytes / size_of(type)), type};
}

AnyVec Tensors::flat_gradients() const {
  const AnyVec held = rounds_gradients() ? flat(here().gradients, bench_.definition().precision.gradients)
                                         : flat(here().sums, ElementType::f32);
  return held.part(0, parameters_.trainable_size());
}

AnyVec Tensors::weights_of(const ParameterInfo& p) const {
  return (p.frozen ? flat_parameters() : flat_weights()).part(p.offset, p.size);
}

// ---- first values --------------------------------------------------------------------------------------------------

AnyVec Tensors::defining(const ParameterInfo& p) const {
  if (!outer_ || p.frozen) return weights_of(p);
  return AnyVec(outer_->weights().part(p.offset, p.size));
}

void Tensors::draw() {
  for_each_worker([this](Index) { draw_worker(); });
  if (factors_) factors_->begin(bench_.compute);
  if (outer_) outer_->begin(bench_.compute, flat_weights().part(0, parameters_.trainable_size()).as<const float>());
}

void Tensors::draw_worker() {
  if (!flat_weights_here()) return;
  const Partition whole(parameters_, 1);
  for (const ShardInfo part : {whole.shard(0), whole.frozen(0)}) {
    draw(whole.pieces(part), flat_parameters().part(part.offset, part.size));
  }
  if (has_masters()) draw(whole.pieces(whole.shard(0)), flat_weights());
}

void Tensors::draw(const std::vector<ParameterPiece>& pieces, AnyVec out) {
  const Definition& d = bench_.definition();
  std::vector<float> given;
  if (!d.initial_weights.empty()) {
    given.resize(static_cast<std::size_t>(whole().size()));
    from_hugging_face(whole(), d.model, read_safetensors(d.initial_weights), given);
  }
  Index at = 0;
  for (const ParameterPiece& piece : pieces) {
    with_float_type(out.type, [&](auto like) {
      using T = decltype(like);
      const VecView<T> to = out.part(at, piece.size).as<T>();
      if (given.empty()) return draw_piece(piece, to);
      bench_.host_touches(SEEKSIM_SITE, to.range());
      const ParameterInfo& p = *piece.parameter;
      const Index from = whole().all()[p.number].offset + p.whole_place(piece.first);
      std::vector<T> rounded(static_cast<std::size_t>(piece.size));
      kernels::narrow<T>(Lane{}, {given.data() + from, piece.size}, {rounded.data(), piece.size});
      kernels::write_values(to.buffer->lane, rounded.data(), to.get());
      settle(*to.buffer);
    });
    at += piece.size;
  }
}

template <class T>
void Tensors::draw_piece(const ParameterPiece& piece, VecView<T> out) {
  const Definition& d = bench_.definition();
  const ParameterInfo& p = *piece.parameter;
  Launcher& launch = out.buffer->space == Space::device ? bench_.compute : bench_.host;
  const Mutant mutant = bench_.plan.bug.mutant;
  const Init start = mutant == Mutant::residual_start_unscaled && p.init == Init::residual ? Init::normal : p.init;
  const std::uint32_t stream = mutant == Mutant::initial_streams_shared ? 0 : p.number;
  launch(
      p.name, SEEKSIM_SITE, memory_cost(piece.size, 20),
      [model = &d.model, seed = d.training_seed, init = start, number = stream, first = p.whole_place(piece.first)](
          Lane lane, Vec<T> values) {
        if constexpr (std::is_same_v<T, float>) {
          draw_parameter(lane, *model, seed, init, number, values, first);
        } else {
          float drawn[kBlock];
          T rounded[kBlock];
          for (Index i = 0; i < values.n; i += kBlock) {
            const Index n = std::min(kBlock, values.n - i);
            draw_parameter(Lane{}, *model, seed, init, number, {drawn, n}, first + i);
            kernels::narrow<T>(Lane{}, {drawn, n}, {rounded, n});
            kernels::write_values(lane, rounded, Vec<T>{values.data + i, n});
          }
        }
      },
      out);
}

void Tensors::reset_optimizer() {
  for_each_worker([this](Index) {
    if (has_flat_optimizer())
      here().optimizer->reset(bench_.compute, flat_weights().part(0, parameters_.trainable_size()));
  });
}

// Decay is part of a step.
void Tensors::start_optimizer() {
  for (std::int64_t i = 0; i < optimizer_start(bench_.quirks()).steps; ++i) {
    if (keeper_) {
      keeper_->prepare_step();
      keeper_->clear_gradients(bench_.at_home());
    } else {
      clear_values(bench_.compute, "gradients", SEEKSIM_SITE, flat_gradients());
    }
    update(1.0f, bench_.definition().optimizer.lr);
  }
}

// ---- updates -------------------------------------------------------------------------------------------------------

void Tensors::update(float grad_factor, double lr) {
  if (bench_.planted->loses_update()) return;
  if (keeper_) {
    try {
      keeper_->step(bench_.at_home(), grad_factor, lr);
    } catch (const SeamError& error) {
      if (error.kind() != ErrorKind::io || !keeper_->keeps_copies()) throw;
      throw DiskLost{error};
    }
    return;
  }
  const Index n = parameters_.trainable_size();
  const AnyVec weights = flat_weights().part(0, n), parameters = flat_parameters().part(0, n);
  const bool has_masters = weights.type == ElementType::f32;
  const VecView<float> masters = has_masters ? weights.as<float>() : VecView<float>{};
  here().optimizer->step(bench_.compute, {masters, parameters, flat_gradients()}, grad_factor, lr);
}

void Tensors::move_mean_anyway() {
  Launcher& launch = bench_.at_home();
  if (keeper_) {
    keeper_->load();
    keeper_->for_each_state([&](ShardState& state) { state.optimizer->move_mean_anyway(launch, state.weights()); });
  } else {
    here().optimizer->move_mean_anyway(launch, flat_weights().part(0, parameters_.trainable_size()));
  }
  bench_.finish_all(launch.last(), Edge::update_applied);
}

void Tensors::renew_parameters() {
  if (keeper_) return keeper_->renew_parameters(bench_.at_home());
  if (!has_masters()) return;
  const Index n = parameters_.trainable_size();
  for_each_worker([&](Index) {
    round_values(bench_.compute, "parameters", SEEKSIM_SITE, flat_weights().part(0, n).as<float>(),
                 flat_parameters().part(0, n));
  });
}

void Tensors::take_outer_weights() {
  const Index n = parameters_.trainable_size();
  const PlantedBug& bug = bench_.plan.bug;
  for_each_worker([&](Index worker) {
    if (bug.is(Bug::worker_goes_its_way, bench_.rank.id) && worker == 0) return;
    copy_values(bench_.compute, "parameters", SEEKSIM_SITE, AnyVec(outer_->weights()), flat_weights().part(0, n));
    if (!bug.is(Bug::inner_moments_reset)) return;
    for (const AnyVec& moments : here().optimizer->states())
      clear_values(bench_.compute, "moments", SEEKSIM_SITE, moments);
  });
  if (!bug.is(Bug::workers_keep_16_bit_weights)) renew_parameters();
}

std::int64_t Tensors::optimizer_steps() const {
  if (keeper_) return keeper_->laid_out() ? keeper_->own().optimizer->steps() : 0;
  return has_flat_optimizer() ? here().optimizer->steps() : 0;
}

void Tensors::continue_at(std::int64_t optimizer_steps) {
  if (!keeper_) return for_each_worker([&](Index) { here().optimizer->continue_at(optimizer_steps); });
  keeper_->own().optimizer->continue_at(optimizer_steps);
  for (const auto& copy : keeper_->copies()) copy->optimizer->continue_at(optimizer_steps);
}

}  // namespace seeksim::runtime
