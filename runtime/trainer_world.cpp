// Around the steps: memory, initial weights, worlds that come and go, and what is handed out at the end.
#include <algorithm>

#include "kernels/check.h"
#include "kernels/digest.h"
#include "runtime/trainer.h"
#include "runtime/typed_ops.h"
#include "runtime/weights.h"

namespace seeksim::runtime {

using kernels::kBlock;
using kernels::Lane;
using kernels::Vec;

Trainer::Trainer(Rank& rank, const TrainPlan& plan, Observer& observer)
    : rank_(rank),
      plan_(plan),
      observer_(observer),
      placement_(plan.layout.zero.placement()),
      parameters_(plan.definition.model, plan.definition.optimizer.decay_all),
      scale_(Index(plan.definition.global_batch) * plan.definition.model.context),
      scaler_(scaler_plan(plan.definition.quirks, plan.definition.scaler)),
      data_(data_source(plan.definition)),
      compute_(rank.device.compute_queue(), rank.id),
      host_(rank.device.host_queue(), rank.id, 0, OpKind::host_compute) {}

// All that is launched from here on, wherever.
void Trainer::stand_at(std::uint32_t epoch, std::int64_t step) {
  compute_.at(epoch, step);
  host_.at(epoch, step);
}

void Trainer::prepare() {
  if (model_) return;
  if (drawn_) {
    if (!finished()) make_model();
    return;
  }
  // First all memory, then given weights, then the first launch: when memory is short or the weights are bad, nothing
  // may be pending that refers to the buffers.
  allocate();
  stand_at(0, -1);
  compute_.phase(Phase::init);
  initial_weights();
  drawn_ = true;
  if (!optimizer_) return;
  optimizer_->reset(compute_);
  start_optimizer();
}

void Trainer::make_model() {
  holds_activations_ = true;
  const Index samples = std::min(plan_.layout.micro_batch, plan_.definition.global_batch);
  model_ = std::move(make_models(rank_.device, plan_, parameters_, 0, samples, 1).front());
}

void Trainer::free_activations() {
  model_.reset();
  if (tree_) tree_->give_back();
}

void Trainer::allocate() {
  Device& device = rank_.device;
  auto floats = [&](Index n, MemoryTag tag, const char* name) {
    return device.allocate(static_cast<std::size_t>(n) * sizeof(float), tag, name);
  };
  Index norm_blocks = 0;
  for (const ParameterInfo* p : parameters_.trainable()) {
    norm_blocks = std::max(norm_blocks, (p->slab + kBlock - 1) / kBlock);
  }
  const Partition whole(parameters_, 1);
  if (sharded(placement_.optimizer)) norm_blocks = whole.norm_blocks() + 1;
  const PrecisionPlan& precision = plan_.definition.precision;
  auto elements = [&](Index n, ElementType type, MemoryTag tag, const char* name) {
    return device.allocate(static_cast<std::size_t>(n) * size_of(type), tag, name);
  };
  if (!sharded(placement_.parameters)) {
    weights_ = elements(parameters_.size(), precision.compute, MemoryTag::parameters, "weights");
    all_weights_.emplace(flat_parameters());
  }
  if (!sharded(placement_.optimizer) && is_16_bit(precision.compute) && precision.master_weights) {
    masters_ = floats(parameters_.trainable_size(), MemoryTag::optimizer, "fp32 masters");
  }
  const bool rounded = is_16_bit(precision.gradients);
  const Space home = plan_.layout.offload.optimizer.space();
  if (!sharded(placement_.gradients) && !offloads()) {
    if (rounded) {
      gradients_ = elements(parameters_.trainable_size(), precision.gradients, MemoryTag::gradients, "gradients");
    }
    // Where their owners sum them, and hold them in 16 bits, the fp32 sums are the owners'.
    if (!rounded || !sharded(placement_.optimizer)) {
      sums_ = floats(parameters_.gradient_size(), rounded ? MemoryTag::partial_sums : MemoryTag::gradients,
                     rounded ? "gradients in fp32" : "gradients");
    }
  }
  norm_blocks_ = floats(norm_blocks, MemoryTag::scratch, "norm blocks");
  norms_ = floats(Index(parameters_.trainable().size()) + 1, MemoryTag::scratch, "norms");
  nonfinite_ = device.allocate_in(home, sizeof(std::int64_t), MemoryTag::scratch, "non-finite count");
  SEEKSIM_CHECK((nonfinite_->data != nullptr) == has_values(),
                "a run of shapes and a device with values, or the reverse");
  if (offloads()) {
    home_norms_ = device.allocate_in(home, std::size_t(norm_blocks) * sizeof(float), MemoryTag::scratch, "norm blocks");
  }
  if (!sharded(placement_.gradients)) tree_.emplace(device, parameters_.gradient_size());
  if (sharded(placement_.parameters)) gathered_.emplace(rank_, parameters_, plan_);
  if (!sharded(placement_.optimizer)) {
    optimizer_.emplace(device, plan_.definition.optimizer, whole.pieces(whole.shard(0)), 0, MemoryTag::optimizer,
                       Space::device, is_16_bit(precision.compute) && !precision.master_weights);
  } else {
    if (tree_ && sums_) tree_->adopt(*sums_);
    keeper_.emplace(rank_, plan_, parameters_);
    keeper_->within(flat_parameters(), sums_ || gradients_ ? flat_gradients() : AnyVec{});
  }
  if (plan_.provenance.on || plan_.provenance.log_step >= 0) {
    provenance_.emplace(device, plan_.provenance);
    compute_.watched_by(&*provenance_);
  }
  make_model();  // last: it is what prepare() looks at
}

void Trainer::initial_weights() {
  if (!weights_) return;  // each shard draws its own
  const Partition whole(parameters_, 1);
  for (const ShardInfo part : {whole.shard(0), whole.frozen(0)}) {
    draw(whole.pieces(part), flat_parameters().part(part.offset, part.size));
  }
  if (masters_) draw(whole.pieces(whole.shard(0)), flat_weights());
}

// The initial values of a shard, rounded to the type in which they are wanted.
void Trainer::draw(const std::vector<ParameterPiece>& pieces, AnyVec out) {
  const Definition& d = plan_.definition;
  std::vector<float> given;
  if (!d.initial_weights.empty()) {
    given.resize(static_cast<std::size_t>(parameters_.size()));
    from_hugging_face(parameters_, d.model, read_safetensors(d.initial_weights), given);
  }
  Index at = 0;
  for (const ParameterPiece& piece : pieces) {
    with_float_type(out.type, [&](auto like) {
      using T = decltype(like);
      const VecView<T> to = out.part(at, piece.size).as<T>();
      if (!given.empty()) {
        host_touches(SEEKSIM_SITE, to.range());
        kernels::narrow<T>(Lane{}, {given.data() + piece.offset(), piece.size}, to.get());
      } else {
        draw_piece(piece, to);
      }
    });
    at += piece.size;
  }
}

template <class T>
void Trainer::draw_piece(const ParameterPiece& piece, VecView<T> out) {
  const Definition& d = plan_.definition;
  const ParameterInfo& p = *piece.parameter;
  Launcher& launch = out.buffer->space == Space::device ? compute_ : host_;
  launch(
      p.name, SEEKSIM_SITE, memory_cost(piece.size, 20),
      [model = &d.model, seed = d.training_seed, init = p.init, number = p.number, first = p.first + piece.first](Lane lane, Vec<T> values) {
        if constexpr (std::is_same_v<T, float>) {
          draw_parameter(*model, seed, init, number, values, first);
        } else {
          float drawn[kBlock];
          for (Index i = 0; i < values.n; i += kBlock) {
            const Index n = std::min(kBlock, values.n - i);
            draw_parameter(*model, seed, init, number, {drawn, n}, first + i);
            kernels::narrow<T>(lane, {drawn, n}, {values.data + i, n});
          }
        }
      },
      out);
}

// ---- worlds
// -----------------------------------------------------------------------------------------------------------

std::string Trainer::lost(const std::vector<int>& members) const {
  return keeper_ && step_ > 0 ? keeper_->lost(members) : std::string();
}

void Trainer::connect(std::uint32_t epoch, std::vector<int> members) {
  buckets_.reset();
  reducer_.reset();
  comm_.reset();
  comm_.emplace(rank_, Axis::data, epoch, std::move(members), plan_.recovery.watchdog_ns);
  const Definition& d = plan_.definition;
  ownership_ = {d.global_batch, comm_->size()};
  cut_ = {d.global_batch, comm_->size(), std::min<Index>(plan_.layout.micro_batch, d.global_batch),
          sharded(placement_.gradients)};
  if (keeper_) connect_shards();
  if (keeper_) report_shards();
  connect_step();
  const bool started = optimizer_start(plan_.definition.quirks).steps > 0;
  if (step_ > 0 || gathered_ || started) publish(true);
  published_ = step_ > 0;
}

// Shards where they belong in this world. Nothing is committed yet: from the initial weights. Else from those who hold
// them; a member that has its shards gives up the old ones only when all have.
void Trainer::connect_shards() {
  if (keeper_->laid_out_for(comm_->members())) return keeper_->settle();
  stand_at(comm_->epoch(), step_);
  compute_.phase(Phase::init);
  host_.phase(Phase::init);
  if (step_ == 0) {
    // What is flat was drawn by prepare(); steps before the first one may have changed it in an earlier world.
    if (optimizer_start(plan_.definition.quirks).steps > 0) initial_weights();
    keeper_->lay_out(at_home(), comm_->members(),
                     [this](const std::vector<ParameterPiece>& pieces, AnyVec out) { draw(pieces, out); });
    if (keeper_->swaps()) {
      host_after_all(rank_.device, Edge::shards_drawn, plan_.bug);
      keeper_->settle();
    }
    start_optimizer();
    host_after_all(rank_.device, Edge::shards_drawn, plan_.bug);
    return;
  }
  const Op op = keeper_->redistribute(*comm_);
  host_after(*comm_, rank_.device.communication_queue().record(), op, Edge::shards_moved, plan_.bug);
  vote("shards", true);
  keeper_->adopt();
  if (is_16_bit(compute_type()) || offloads()) {
    keeper_->renew_parameters(at_home());
    host_after_all(rank_.device, Edge::shards_drawn, plan_.bug);
    keeper_->settle();
  }
}

// Steps that the optimizer makes with zero gradients before the first one: none, unless a quirk wants them. Decay is
// part of a step.
void Trainer::start_optimizer() {
  for (std::int64_t i = 0; i < optimizer_start(plan_.definition.quirks).steps; ++i) {
    if (keeper_) keeper_->prepare_step();
    if (keeper_)
      keeper_->clear_gradients(at_home());
    else
      clear_values(compute_, "gradients", SEEKSIM_SITE, flat_gradients());
    update(1.0f, plan_.definition.optimizer.lr);
  }
}

// One over the tokens of the step, for all: the loss scale's two parts are that. Where a quirk averages means, more or
// less, by what everybody has; where it averages ranks, a rank brings its mean.
void Trainer::weigh_tokens() {
  token_weights_.assign(micro_batches_.size(), 1.0f);
  const Quirks& quirks = plan_.definition.quirks;
  if (!quirks.any()) return;  // a table of all ranks' micro-batches is dear in a large world
  const Index context = plan_.definition.model.context;
  std::vector<std::vector<std::int64_t>> tokens;
  for (int member = 0; member < comm_->size(); ++member) {
    std::vector<std::int64_t>& of_member = tokens.emplace_back();
    for (const SampleRange& samples : micro_batches_of(member)) of_member.push_back(samples.size() * context);
  }
  const double ranks = average() == RankAverage{} ? 1.0 : double(comm_->size());
  const std::vector<double> weights = token_weights(quirks, tokens)[std::size_t(comm_->position())];
  for (std::size_t k = 0; k < weights.size(); ++k)
    token_weights_[k] = static_cast<float>(weights[k] * double(cut_.leaves * context) * ranks);
}

std::vector<SampleRange> Trainer::micro_batches_of(int member) const {
  if (!sharded(placement_.gradients))
    return micro_batches(samples_of(cut_.leaves, comm_->size(), member), plan_.layout.micro_batch);
  std::vector<SampleRange> all;
  for (int k = 0; k < cut_.count(); ++k) all.push_back(cut_.samples(k, member));
  return all;
}

void Trainer::connect_step() {
  micro_batches_ = micro_batches_of(comm_->position());
  weigh_tokens();
  std::size_t blocks = 0;
  for (const SampleRange& samples : micro_batches_) {
    blocks = std::max(blocks, kernels::cover(samples.begin, samples.end, cut_.leaves).size());
  }
  if (plan_.recovery.rerun_and_compare) rerun_.emplace(rank_.device, parameters_, Index(blocks));
  if (!keeper_) return;
  reducer_.emplace(rank_, parameters_, plan_);
  reducer_->connect(*comm_, keeper_->partition(), cut_);
  if (gathered_) gathered_->connect(*comm_, keeper_->partition(), keeper_->own().on_device, keeper_->own().frozen);
  if (sharded(placement_.gradients)) buckets_.emplace(rank_.device, plan_, *reducer_, Index(blocks));
}

void Trainer::abandon() {
  if (comm_) comm_->abort();
  host_after_all(rank_.device, Edge::step_abandoned, plan_.bug);
  compute_.mute(false);
  hand_out_.reset();
  corrupt_.reset();
  rerun_.reset();
  buckets_.reset();
  reducer_.reset();
  if (gathered_) gathered_->forget();
  comm_.reset();
}

// ---- what is handed out
// -----------------------------------------------------------------------------------------------

// All members' shards of a flat space, one parameter at a time, in order.
void Trainer::for_each_gathered(AnyVec shard, const AnyVec* frozen, const char* what, const PerParameter& each) {
  Index largest = 0;
  for (const ParameterInfo& p : parameters_.all()) largest = std::max(largest, p.size);
  hand_out_ = rank_.device.allocate(std::size_t(largest) * sizeof(float), MemoryTag::scratch, what);
  Queue& queue = rank_.device.communication_queue();
  Launcher launch(queue, rank_.id);
  launch.at(comm_->epoch(), step_);
  launch.phase(Phase::checkpoint);
  const Partition& partition = keeper_->partition();
  for (const ParameterInfo& p : parameters_.all()) {
    if (p.frozen && frozen == nullptr) continue;
    const ShardInfo mine = p.frozen ? partition.frozen(comm_->position()) : partition.shard(comm_->position());
    const AnyVec held = p.frozen ? *frozen : shard;
    const AnyVec whole(hand_out_.get(), 0, p.size, held.type);
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
    op = comm_->all_gather(queue, op, whole, shards);
    host_after(*comm_, queue.record(), op, Edge::shard_handed_out, plan_.bug);
    each(p, host_reads(SEEKSIM_SITE, whole));
  }
  hand_out_.reset();
}

void Trainer::conclude() {
  if (concluded_) return;
  if (finished()) free_activations();  // room for what is gathered
  if (keeper_) keeper_->load();
  look_for_poison(false);
  if (!keeper_) {
    if (!poison_.empty()) throw UnwrittenMemory(poison_);
    return;
  }
  StateDigest state;
  state.data_position = step_ * plan_.definition.global_batch;
  state.loss_scale = scaler_.scale();
  const ShardState& own = keeper_->own();
  state.optimizer_steps = own.optimizer->steps();
  std::vector<std::uint64_t> first, second;
  auto keep = [](std::vector<std::uint64_t>& digests) {
    return [&digests](const ParameterInfo&, AnyVec values) { digests.push_back(digest_of(values)); };
  };
  for_each_gathered(own.optimizer->first_moments(), nullptr, "first moments", keep(first));
  for_each_gathered(own.optimizer->second_moments(), nullptr, "second moments", keep(second));
  if (has_values() && is_lowest_rank()) final_weights_.resize(std::size_t(parameters_.size()));
  std::size_t moments = 0;
  for_each_gathered(own.weights(), &own.frozen, "parameters", [&](const ParameterInfo& p, AnyVec values) {
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
  keeper_->settle();
  vote("end", true);
  keeper_->remove_files();
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
  state.data_position = step_ * plan_.definition.global_batch;
  state.loss_scale = scaler_.scale();
  if (keeper_ && keeper_->laid_out()) state.optimizer_steps = keeper_->own().optimizer->steps();
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

std::vector<NamedTensor> Trainer::weights() const {
  if (concluded_) return to_hugging_face(parameters_, plan_.definition.model, final_weights_);
  std::vector<float> values(std::size_t(parameters_.size()));
  for (const ParameterInfo& p : parameters_.all())
    widen_to(host_reads(SEEKSIM_SITE, weights_of(p)), values.data() + p.offset);
  return to_hugging_face(parameters_, plan_.definition.model, values);
}

}  // namespace seeksim::runtime
