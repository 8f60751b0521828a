// Around the steps: memory, initial weights, worlds that come and go.
#include <algorithm>
#include <limits>

#include "kernels/check.h"
#include "kernels/digest.h"
#include "runtime/host/host_writes.h"
#include "runtime/launch/typed_ops.h"
#include "runtime/model/weights.h"
#include "runtime/trainer/trainer.h"

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

Trainer::Trainer(Rank& rank, const TrainPlan& plan, Observer& observer, const Roster& world)
    : rank_(rank),
      plan_(plan),
      observer_(observer),
      placement_(plan.layout.zero.placement()),
      parameters_(plan.definition.model, plan.definition.optimizer.decay_all, part_of(rank, plan, world.seats)),
      scale_(Index(plan.definition.global_batch) * plan.definition.model.context),
      scaler_(scaler_plan(plan.definition.quirks, plan.definition.scaler)),
      data_(data_source(plan.definition)),
      compute_(rank.device.compute_queue(), rank.id),
      host_(rank.device.host_queue(), rank.id, 0, OpKind::host_compute),
      seats_(world.seats),
      dropped_batches_(plan.definition.drop_batches),
      stragglers_(plan.recovery.straggler),
      divergence_(plan.recovery.divergence) {
  if (!writes_checkpoints()) return;
  writer_.emplace(rank, plan, observer);
  if (plan.checkpoint.resume) begin_with_checkpoint(std::numeric_limits<std::int64_t>::max());
}

// All that is launched from here on, wherever.
void Trainer::stand_at(std::uint32_t epoch, std::int64_t step) {
  compute_.at(epoch, step);
  host_.at(epoch, step);
}

void Trainer::prepare() {
  if (!models_.empty()) return;
  if (drawn_) {
    if (!finished()) make_flights();
    return;
  }
  cut_step({rank_.control.members(), seats_});
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

void Trainer::free_activations() {
  flights_.clear();
  models_.clear();
  for (GradientTree& tree : trees_) tree.give_back();
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
  if (!sharded(placement_.gradients)) {
    for (std::size_t piece = 0; piece < parameters_.pieces().size(); ++piece)
      trees_.emplace_back(device, parameters_.gradient_end(piece) - parameters_.gradient_begin(piece));
  }
  if (!alone()) replica_.emplace(rank_, plan_, parameters_);
  if (const ModelPart& part = parameters_.part(); part.ways > 1) {
    const Index samples = std::min(plan_.layout.micro_batch, plan_.definition.global_batch);
    tensor_.emplace(device, tensor_shape(plan_, samples, parameters_.embeds()), part.ways, part.way, plan_.bug);
  }
  if (sharded(placement_.parameters)) gathered_.emplace(rank_, parameters_, plan_);
  if (!sharded(placement_.optimizer)) {
    optimizer_.emplace(device, plan_.definition.optimizer, whole.pieces(whole.shard(0)), 0, MemoryTag::optimizer,
                       Space::device, is_16_bit(precision.compute) && !precision.master_weights);
  } else {
    if (trees_.size() == 1 && sums_) trees_.front().adopt(*sums_);
    keeper_.emplace(rank_, plan_, parameters_);
    keeper_->within(flat_parameters(), sums_ || gradients_ ? flat_gradients() : AnyVec{});
  }
  if (plan_.provenance.on || plan_.provenance.log_step >= 0) {
    provenance_.emplace(device, plan_.provenance);
    compute_.watched_by(&*provenance_);
  }
  make_flights();  // last: it is what prepare() looks at
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
    given.resize(static_cast<std::size_t>(whole().size()));
    from_hugging_face(whole(), d.model, read_safetensors(d.initial_weights), given);
  }
  Index at = 0;
  for (const ParameterPiece& piece : pieces) {
    with_float_type(out.type, [&](auto like) {
      using T = decltype(like);
      const VecView<T> to = out.part(at, piece.size).as<T>();
      if (!given.empty()) {
        host_touches(SEEKSIM_SITE, to.range());
        const ParameterInfo& p = *piece.parameter;
        const Index from = whole().all()[p.number].offset + p.first + piece.first;
        std::vector<T> rounded(static_cast<std::size_t>(piece.size));
        kernels::narrow<T>(Lane{}, {given.data() + from, piece.size}, {rounded.data(), piece.size});
        kernels::write_values(to.buffer->lane, rounded.data(), to.get());
        settle(*to.buffer);
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
      [model = &d.model, seed = d.training_seed, init = p.init, number = p.number, first = p.first + piece.first](
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

// ---- worlds
// -----------------------------------------------------------------------------------------------------------

std::string Trainer::lost(const Roster& world, const std::vector<int>& joiners, const std::vector<int>& givers) const {
  const ParallelPlan& parallel = plan_.layout.parallel;
  const Grid grid(parallel, world.seats, world.members);
  if (std::string missing = grid.problem(); !missing.empty()) return missing;
  const auto holding = [&](std::vector<int> ranks) {
    std::erase_if(ranks, [&](int rank) { return std::binary_search(joiners.begin(), joiners.end(), rank); });
    return ranks;
  };
  const bool shards = holds_shards();
  if (alone()) return shards ? keeper_->lost(holding(givers)) : std::string();
  // All stages and ways, as all ranks come to the same answer.
  const Grid before(parallel, shards ? laid_out_.seats : world.seats, shards ? laid_out_.members : world.members);
  for (int stage = 0; stage < parallel.pipeline && step_ > 0; ++stage) {
    for (int way = 0; way < parallel.tensor; ++way) {
      const bool nobody = holding(grid.data_axis(stage, way)).empty();
      std::string gone = shards   ? keeper_->lost(before.data_axis(stage, way), holding(givers))
                         : nobody ? "nobody is left who holds stage " + std::to_string(stage)
                                  : std::string();
      if (!gone.empty()) return gone;
    }
  }
  const int replicas = grid.replicas();
  for (int replica = 0; replica < replicas && parallel.pipeline > 1; ++replica) {
    const SampleRange share = samples_of(plan_.definition.global_batch, replicas, replica);
    const int count = int(micro_batches(share, plan_.layout.micro_batch).size());
    const std::string why = count > 0 ? problem(pipeline_shape(parallel, count)) : "";
    if (!why.empty()) return "with " + std::to_string(replicas) + " replicas of the model, " + why;
  }
  return {};
}

void Trainer::connect(std::uint32_t epoch, const Roster& world, const std::vector<int>& joiners) {
  if (plan_.bug.is(Bug::redoes_committed_step) && epoch > 0 && step_ > 0) --step_;
  buckets_.reset();
  reducer_.reset();
  disconnect();
  stragglers_.begin_world();
  busy_is_of_a_step_ = false;
  work_.clear();
  leaves_ = -1;
  seats_ = world.seats;
  joiners_ = joiners;
  cut_step(world);
  const ParallelPlan& parallel = plan_.layout.parallel;
  std::vector<int> axis = alone() ? world.members : grid_->data_axis(place_.stage, place_.way);
  comm_.emplace(rank_, Axis::data, epoch, std::move(axis), plan_.recovery.watchdog_ns,
                place_.stage * parallel.tensor + place_.way);
  if (replica_) replica_->connect(*grid_, place_, epoch);
  if (tensor_) {
    tensor_->connect(rank_, epoch, grid_->tensor_axis(place_.stage, place_.data), plan_.recovery.watchdog_ns,
                     place_.stage * grid_->replicas() + place_.data);
  }
  if (parallel.pipeline > 1) {
    links_.emplace(rank_, plan_, *grid_, place_, epoch);
    observer_.pipeline(rank_.id, {epoch, place_.stage, int(micro_batches_.size()), most_in_flight()});
  }
  refuse_checkpoints_of_another_run();
  if (keeper_)
    connect_shards();
  else if (loads())
    load_checkpoint();
  else
    bring_replicated();
  joining_ = false;
  if (writer_) writer_->look_again(is_lowest_rank());
  if (keeper_) report_shards();
  connect_step();
  const bool started = optimizer_start(plan_.definition.quirks).steps > 0;
  if (step_ > 0 || gathered_ || started) publish(true);
  published_ = step_ > 0;
}

// Shards where they belong in this world. Nothing is committed yet: from the initial weights. Else from those who hold
// them; a member that has its shards gives up the old ones only when all have.
void Trainer::connect_shards() {
  const bool as_before = keeper_->laid_out_for(comm_->members()) && joiners_.empty();
  const Roster world{alone() ? std::vector<int>() : rank_.control.members(), seats_};
  if (step_ == 0 && !as_before) {
    lay_out_shards();
  } else if (step_ > 0 && !as_before) {
    move_shards(comm_->members());
  } else {
    // Where another axis moves its shards, this one votes with it.
    if (step_ > 0 && !alone() && !(world == laid_out_)) vote("shards", true);
    keeper_->settle();
  }
  laid_out_ = world;
}

void Trainer::lay_out_shards() {
  stand_at(comm_->epoch(), step_);
  compute_.phase(Phase::init);
  host_.phase(Phase::init);
  // What is flat was drawn by prepare(); steps before the first one may have changed it in an earlier world.
  if (optimizer_start(plan_.definition.quirks).steps > 0) initial_weights();
  keeper_->lay_out(at_home(), comm_->members(),
                   [this](const std::vector<ParameterPiece>& pieces, AnyVec out) { draw(pieces, out); });
  const bool loaded = loads() && load_checkpoint();
  if (keeper_->swaps() || keeper_->swaps_parameters()) {
    host_after_all(rank_, at_home().last(), plan_.recovery.watchdog_ns, Edge::shards_drawn, plan_.bug);
    keeper_->settle();
  }
  if (!loaded) start_optimizer();
  host_after_all(rank_, at_home().last(), plan_.recovery.watchdog_ns, Edge::shards_drawn, plan_.bug);
}

// members: of this axis, some or all. Who is none of them gives what it has and keeps it.
void Trainer::move_shards(const std::vector<int>& members) {
  stand_at(comm_->epoch(), step_);
  compute_.phase(Phase::init);
  host_.phase(Phase::init);
  const Op op = keeper_->redistribute(*comm_, members, joiners_);
  host_after(*comm_, rank_.device.communication_queue().record(), op, Edge::shards_moved, plan_.bug);
  vote("shards", true);
  if (!keeper_->adopt()) return;
  if (is_16_bit(compute_type()) || offloads()) {
    keeper_->renew_parameters(at_home());
    host_after_all(rank_, at_home().last(), plan_.recovery.watchdog_ns, Edge::shards_drawn, plan_.bug);
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
    return micro_batches(samples_of(cut_.leaves, grid_->replicas(), member), plan_.layout.micro_batch);
  std::vector<SampleRange> all;
  for (int k = 0; k < cut_.count(); ++k) all.push_back(cut_.samples(k, member));
  return all;
}

void Trainer::connect_step() {
  make_flights();
  weigh_tokens();
  std::size_t blocks = 0;
  for (const SampleRange& samples : micro_batches_) {
    blocks = std::max(blocks, kernels::cover(samples.begin, samples.end, cut_.leaves).size());
  }
  if (plan_.recovery.rerun_and_compare) rerun_.emplace(rank_.device, parameters_, Index(blocks));
  if (!keeper_) return;
  reducer_.emplace(rank_, parameters_, plan_);
  reducer_->connect(*comm_, keeper_->partition(), cut_);
  if (gathered_)
    gathered_->connect(*comm_, keeper_->partition(), keeper_->own().on_device, keeper_->own().frozen,
                       keeper_->own().swapped.get());
  if (sharded(placement_.gradients)) buckets_.emplace(rank_.device, plan_, *reducer_, Index(blocks));
}

bool Trainer::abandon() {
  Communicator::abort_all(rank_, communicators());
  // As long as the others wait for this rank's answer: a kernel that never ends must not hold it for ever.
  const TimeNs patience = later(rank_.clock.now(), plan_.recovery.agree_ns);
  const bool answers = plan_.bug.skips(Edge::step_abandoned) || rank_.device.drain_by(patience, true);
  if (writer_) writer_->give_up();
  compute_.mute(false);
  hand_out_.reset();
  corrupt_.reset();
  rerun_.reset();
  buckets_.reset();
  reducer_.reset();
  if (gathered_) gathered_->forget();
  flights_.clear();
  disconnect();
  return answers;
}

void Trainer::disconnect() {
  links_.reset();
  if (tensor_) tensor_->disconnect();
  if (replica_) replica_->disconnect();
  comm_.reset();
}

std::vector<Communicator*> Trainer::communicators() {
  std::vector<Communicator*> all;
  const auto add = [&](std::vector<Communicator*> more) { all.insert(all.end(), more.begin(), more.end()); };
  if (comm_) all.push_back(&*comm_);
  if (tensor_ && tensor_->communicator() != nullptr) all.push_back(tensor_->communicator());
  if (replica_) add(replica_->communicators());
  if (links_) add(links_->communicators());
  return all;
}

Index Trainer::place_in_whole(Index gradient) {
  if (alone()) return gradient;
  const Index trainable = parameters_.trainable_size();
  if (gradient == parameters_.loss_offset()) return whole().loss_offset();
  if (gradient >= trainable) return whole().head_gradient_offset() + parameters_.wte().first + gradient - trainable;
  for (const ParameterInfo* p : parameters_.trainable()) {
    if (gradient >= p->offset + p->size) continue;
    const bool head_use = whole().shares_head() && p->number == whole().wte().number && !parameters_.embeds();
    const Index begin = head_use ? whole().head_gradient_offset() : whole().all()[p->number].offset;
    return begin + p->first + gradient - p->offset;
  }
  return whole().gradient_size();
}

const Parameters& Trainer::whole() {
  if (alone()) return parameters_;
  const Definition& d = plan_.definition;
  if (!whole_) whole_ = std::make_unique<const Parameters>(d.model, d.optimizer.decay_all);
  return *whole_;
}

}  // namespace seeksim::runtime
