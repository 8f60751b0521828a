#include "runtime/trainer/passes.h"

#include <algorithm>

#include "kernels/check.h"

namespace seeksim::runtime {

using Kind = InstructionKind;
using kernels::Lane;
using kernels::Vec;

namespace {

// Whether this is the last that a piece has to do with a micro-batch. What it computed is still to be sent after a
// backward pass, and gradients of parameters may come after that.
bool is_last_use(const Instruction& i, const ModelPiece& piece, bool defers) {
  if (defers) return i.kind == Kind::backward_weight;
  return i.kind == (piece.embeds ? Kind::backward : Kind::send_gradient);
}

}  // namespace

// ---- around the steps ----------------------------------------------------------------------------------------------

bool Passes::in_two_parts() const {
  const ParallelPlan& parallel = bench_.plan.layout.parallel;
  return parallel.defers() && parallel.pipeline > 1;
}

void Passes::schedule() {
  micro_batches_ = world_.micro_batches_of(world_.share());
  of_group_.clear();
  const int group = bench_.plan.layout.parallel.expert;
  for (int rank = 0; rank < group && group > 1; ++rank)
    of_group_.push_back(world_.micro_batches_of(world_.place().data * group + rank));
  instructions_.clear();
  if (micro_batches_.empty()) return;
  PipelineShape shape = pipeline_shape(bench_.plan.layout.parallel, int(micro_batches_.size()));
  shape.schedule = bench_.planted->schedule(shape.schedule);
  for (const Tick& tick : stage_schedule(shape, world_.place().stage)) {
    for (const Instruction& instruction : tick) {
      if (instruction.kind < Kind::reduce_tied) instructions_.push_back(instruction);
    }
  }
  if (shape.stages > 1) bench_.planted->instructions(instructions_, shape.micro_batches);
}

void Passes::allocate() {
  const ProvenancePlan& plan = bench_.plan.provenance;
  if (plan.on || plan.log_step >= 0) {
    provenance_.emplace(bench_.rank.device, plan);
    bench_.compute.watched_by(&*provenance_);
  }
  if (bench_.definition().fp8.keeps_state()) amaxes_.emplace(bench_.rank, bench_.plan);
  make_room();
}

// Micro-batches of each piece whose activations are held at a time, at most.
std::vector<int> Passes::most_in_flight() const {
  const std::vector<ModelPiece>& pieces = tensors_.parameters().pieces();
  std::vector<int> most(pieces.size(), 1);
  std::vector<std::vector<int>> held(pieces.size());
  for (const Instruction& i : instructions_) {
    std::vector<int>& here = held[std::size_t(i.chunk)];
    if (std::find(here.begin(), here.end(), i.micro_batch) == here.end()) here.push_back(i.micro_batch);
    most[std::size_t(i.chunk)] = std::max(most[std::size_t(i.chunk)], int(here.size()));
    if (is_last_use(i, pieces[std::size_t(i.chunk)], in_two_parts())) std::erase(here, i.micro_batch);
  }
  return most;
}

void Passes::make_room() {
  const std::vector<int> most = most_in_flight();
  bool enough = models_.size() == most.size();
  for (std::size_t piece = 0; enough && piece < most.size(); ++piece)
    enough = int(models_[piece].size()) >= most[piece];
  if (!enough) {
    holds_activations_ = true;
    models_.clear();
    const Index samples = bench_.plan.samples_at_once();
    for (std::size_t piece = 0; piece < most.size(); ++piece)
      models_.push_back(make_models(bench_.rank.device, bench_.plan, tensors_.parameters(), piece, samples, most[piece],
                                    world_.tensor(), world_.experts(), world_.context()));
  }
  if (const ModelPlan& m = bench_.definition().model; bench_.plan.counts_choices && !micro_batches_.empty()) {
    const std::size_t n = micro_batches_.size() * std::size_t(m.layers * 2 * m.experts.count) * sizeof(std::int32_t);
    if (!choices_ || choices_->bytes < n) choices_ = bench_.rank.device.allocate(n, MemoryTag::scratch, "choices");
  }
  flights_.clear();
  for (const auto& of_piece : models_) {
    std::vector<InFlight>& flights = flights_.emplace_back();
    for (const auto& model : of_piece) flights.emplace_back().model = model.get();
  }
}

void Passes::free_activations() {
  flights_.clear();
  models_.clear();
}

Index Passes::connect() {
  make_room();
  weigh_tokens();
  std::size_t blocks = 0;
  for (std::size_t k = 0; k < micro_batches_.size(); ++k) {
    std::size_t all = 0;
    const auto add = [&](const SampleRange& samples) {
      all += nodes_of(samples, world_.cut().leaves, bench_.group_level()).size();
    };
    if (of_group_.empty()) add(micro_batches_[k]);
    for (const std::vector<SampleRange>& of_rank : of_group_) add(of_rank[k]);
    blocks = std::max(blocks, all);
  }
  if (bench_.plan.recovery.rerun_and_compare) rerun_.emplace(bench_.rank.device, tensors_.parameters(), Index(blocks));
  return Index(blocks);
}

void Passes::tell_pipeline() {
  if (world_.links() == nullptr) return;
  bench_.observer.pipeline(bench_.rank.id,
                           {world_.epoch(), world_.place().stage, int(micro_batches_.size()), most_in_flight()});
}

// One over the tokens of the step, for all: the loss scale's two parts are that. Where a quirk averages means, more or
// less, by what everybody has; where it averages ranks, a rank brings its mean.
void Passes::weigh_tokens() {
  token_weights_.assign(micro_batches_.size(), 1.0f);
  const Quirks& quirks = bench_.quirks();
  if (!quirks.act_at(QuirkPoint::loss) && !quirks.act_at(QuirkPoint::reduction)) return;
  const Index context = bench_.definition().model.context;
  const Communicator& comm = world_.comm();
  std::vector<std::vector<std::int64_t>> tokens;
  for (int member = 0; member < comm.size(); ++member) {
    std::vector<std::int64_t>& of_member = tokens.emplace_back();
    for (const SampleRange& samples : world_.micro_batches_of(member)) of_member.push_back(samples.size() * context);
  }
  const double ranks = reduction_.average() == RankAverage{} ? 1.0 : double(comm.size());
  const std::vector<double> weights = token_weights(quirks, tokens)[std::size_t(comm.position())];
  for (std::size_t k = 0; k < weights.size(); ++k)
    token_weights_[k] = static_cast<float>(weights[k] * double(world_.cut().leaves * context) * ranks);
}

void Passes::forget() {
  bench_.compute.mute(false);
  rerun_.reset();
  if (GatheredWeights* gathered = tensors_.gathered()) gathered->forget();
  flights_.clear();
}

// ---- a step --------------------------------------------------------------------------------------------------------

void Passes::run() {
  begin_step();
  for (const Instruction& instruction : instructions_) carry_out(instruction);
  reduction_.end_passes();
  tensors_.choose(0);
}

void Passes::look_at_batch() {
  const Progress& progress = bench_.progress;
  const Definition& d = bench_.definition();
  Planted& planted = *bench_.planted;
  const std::int64_t began_at = progress.began_at();
  const std::int64_t step = step_of_batch(bench_.plan.bug.mutant, planted.step_of_batch(progress.step(), began_at));
  position_ = planted.position({.position = progress.batch_of(step) * d.global_batch,
                                .began_at = began_at > 0 ? progress.batch_of(began_at) * d.global_batch : 0,
                                .members = world_.grid().replicas(),
                                .sampler = data_.sampler});
  learned_ = 0;
  if (d.curriculum.on()) learned_ = d.curriculum.difficulty(planted.step_of_curriculum(progress.step(), began_at));
  if (!d.curriculum.on() && !d.data.packing.on()) return;
  const Index context = d.model.context;
  tokens_ =
      tokens_with_loss(data_, d.data.packing.separator, learned_ > 0 ? learned_ : context, position_, d.global_batch);
  bench_.scale = LossScale(std::max<Index>(1, planted.tokens_of_mean(tokens_, d.global_batch * context)));
}

void Passes::begin_step() {
  if (GatheredWeights* gathered = tensors_.gathered()) gathered->begin_step(bench_.compute, bench_.progress.step());
  if (provenance_) provenance_->begin_step(bench_.compute.queue(), bench_.progress.step());
  if (rerun_) rerun_->begin_step(bench_.compute);
  if (amaxes_) amaxes_->begin_step(bench_.compute);
}

void Passes::carry_out(const Instruction& i) {
  InFlight& flight = flight_of(i);
  PipelineLinks* const links = world_.links();
  const std::size_t piece = std::size_t(i.chunk);
  const Index samples = samples_of(flight).size();
  const bool here = samples > 0;
  Launcher& compute = bench_.compute;
  compute.mute(!here);  // others have samples: this replica only takes part in what they need
  begin_group(i.micro_batch);
  if (here) tensors_.choose(world_.worker_of(samples_of(flight)));  // whose weights it goes through
  switch (i.kind) {
    case Kind::load:
      fetch(flight);
      break;
    case Kind::recv_activation:
      if (here) links->receive_activation(flight, compute, samples);
      break;
    case Kind::forward:
      if (here && links != nullptr) links->before_forward(flight, compute);
      forward(flight, piece);
      flight.gone_forward = compute.queue().record();
      break;
    case Kind::send_activation:
      if (here) links->send_activation(flight, compute, samples);
      break;
    case Kind::recv_gradient:
      if (here) links->receive_gradient(flight, compute, samples);
      break;
    case Kind::backward:
    case Kind::backward_input:
      if (here && links != nullptr) links->before_backward(flight, compute);
      if (i.kind == Kind::backward)
        reduce_backward(flight, piece, i.kind);
      else
        backward(flight, piece, i.kind, nullptr);
      flight.gone_back = flight.over = compute.queue().record();
      break;
    case Kind::backward_weight:
      reduce_backward(flight, piece, i.kind);
      flight.over = compute.queue().record();
      break;
    case Kind::send_gradient:
      if (here) bench_.planted->sending_gradient(compute, flight, samples, int(micro_batches_.size()));
      if (here) links->send_gradient(flight, compute, samples);
      break;
    default:
      SEEKSIM_CHECK(false, "%s is no part of the passes", std::string(text(i)).c_str());
  }
  compute.mute(false);
  if (is_last_use(i, tensors_.parameters().pieces()[piece], in_two_parts())) flight.micro_batch = -1;
}

InFlight& Passes::flight_of(const Instruction& i) {
  InFlight* free = nullptr;
  for (InFlight& flight : flights_[std::size_t(i.chunk)]) {
    if (flight.micro_batch == i.micro_batch) return flight;
    if (flight.micro_batch < 0 && free == nullptr) free = &flight;
  }
  SEEKSIM_CHECK(free != nullptr, "no room for micro-batch %d of piece %d: %zu are in flight", i.micro_batch, i.chunk,
                flights_[std::size_t(i.chunk)].size());
  free->micro_batch = i.micro_batch;
  return *free;
}

// The ranks of an expert group go through their micro-batches in step.
void Passes::begin_group(int micro_batch) {
  ExpertGroup* const group = world_.experts();
  if (group == nullptr) return;
  std::vector<SampleRange> samples;
  std::vector<std::vector<SampleRange>> blocks;
  for (const std::vector<SampleRange>& of_rank : of_group_) {
    samples.push_back(of_rank[std::size_t(micro_batch)]);
    std::vector<SampleRange>& of_samples = blocks.emplace_back();
    for (const GradientBlock& block : blocks_of(samples.back())) {
      const Index first = samples.back().begin + block.first;
      of_samples.push_back({first, first + block.count});
    }
  }
  group->begin(samples, blocks);
}

// The place of a micro-batch's first sample in the training.
std::int64_t Passes::first_of(const SampleRange& samples) const {
  return first_sample(bench_.plan.bug.mutant, bench_.planted->first_sample(position_ + samples.begin));
}

void Passes::fetch(InFlight& flight) {
  const SampleRange& samples = samples_of(flight);
  Launcher& compute = bench_.compute;
  compute.phase(Phase::data, flight.micro_batch);
  const Mutant mutant = bench_.plan.bug.mutant;
  const std::int64_t first = first_of(samples);
  compute.samples(first, std::int32_t(samples.size()));
  if (data_.sampler.on() && samples.size() > 0) {
    SamplesRecord told{bench_.progress.step(), world_.epoch(), samples.begin, {}};
    for (Index i = 0; i < samples.size(); ++i) told.rows.push_back(data_.row(first + source_of_sample(mutant, i)));
    bench_.observer.samples(bench_.rank.id, told);
  }
  launch_tokens(compute, SEEKSIM_SITE, data_, first, samples.size(), mutant, flight.model->inputs(samples.size()),
                flight.model->targets(samples.size()));
}

Batch Passes::batch(const InFlight& flight, bool backward) const {
  const SampleRange& samples = samples_of(flight);
  const std::uint64_t seed = bench_.planted->dropout_seed(bench_.definition().training_seed);
  const DropoutCounters drawn =
      dropout_counters(bench_.plan.bug.mutant, {seed, bench_.progress.step(), samples.begin}, backward);
  return {.samples = samples.size(),
          .first_sample = drawn.first_sample,
          .step = drawn.step,
          .seed = drawn.seed,
          .loss_scale = loss_scale(flight) * loss_factor(bench_.quirks(), bench_.progress.scaler().scale()),
          .learned = learned_,
          .separator = bench_.definition().data.packing.separator,
          .documents = bench_.definition().data.packing.on() ? &flight.documents : nullptr,
          .fp8 = fp8(true),
          .choices = choices_.get()};
}

float Passes::loss_scale(const InFlight& flight) const {
  const WindowPlace place{.micro_batch = flight.micro_batch,
                          .micro_batches = int(micro_batches_.size()),
                          .samples = samples_of(flight).size(),
                          .full_samples = bench_.plan.layout.micro_batch,
                          .tokens = bench_.definition().model.context};
  return bench_.scale.at_loss * token_weights_[std::size_t(flight.micro_batch)] *
         loss_weight(bench_.plan.bug.mutant, place) * packed_weight(flight);
}

// 1, but where a bug takes means of means: then the micro-batch's share of samples over its share of tokens.
float Passes::packed_weight(const InFlight& flight) const {
  const Definition& d = bench_.definition();
  const SampleRange& samples = samples_of(flight);
  if (!d.data.packing.on() || samples.size() == 0) return 1;
  const Index own = tokens_with_loss(data_, d.data.packing.separator, learned_ > 0 ? learned_ : d.model.context,
                                     first_of(samples), samples.size());
  return bench_.planted->weight_of_tokens(double(samples.size()) / d.global_batch,
                                          double(own) / double(std::max<Index>(1, tokens_)));
}

std::vector<GradientBlock> Passes::blocks_of(const SampleRange& samples) const {
  const std::vector<kernels::TreeNode> nodes = nodes_of(samples, bench_.definition().global_batch, reduction_.level());
  std::vector<GradientBlock> blocks;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const Index first = kernels::first_leaf(nodes[i]);
    const Index end = i + 1 < nodes.size() ? kernels::first_leaf(nodes[i + 1]) : samples.end;
    blocks.push_back({first - samples.begin, end - first});
  }
  return blocks;
}

// The forward pass of a piece, and where the head is the loss, whose gradient is what backward begins with.
void Passes::forward(InFlight& flight, std::size_t piece) {
  const SampleRange& samples = samples_of(flight);
  Launcher& compute = bench_.compute;
  compute.phase(Phase::forward, flight.micro_batch);
  if (GatheredWeights* gathered = tensors_.gathered())
    gathered->begin_pass(flight.micro_batch, GatheredWeights::Pass::forward, piece);
  if (const PackingPlan& packing = bench_.definition().data.packing; packing.on())
    flight.documents = documents_of(data_, packing.separator, first_of(samples), samples.size());
  const Batch about = batch(flight);
  flight.model->forward(compute, tensors_.in_use(), about);
  if (tensors_.parameters().pieces()[piece].heads) flight.model->loss(compute, samples.size(), about.loss_scale);
}

void Passes::backward(InFlight& flight, std::size_t piece, Kind kind, GradientSink* sink) {
  const SampleRange& samples = samples_of(flight);
  Launcher& compute = bench_.compute;
  compute.phase(Phase::backward, flight.micro_batch);
  const Batch about = batch(flight, true);
  GatheredWeights* const gathered = tensors_.gathered();
  using Pass = GatheredWeights::Pass;
  const Pass pass = kind == Kind::backward_weight ? Pass::weights : Pass::backward;
  if (gathered != nullptr) gathered->begin_pass(flight.micro_batch, pass, piece);
  if (kind == Kind::backward_input) return flight.model->backward_input(compute, tensors_.in_use(), about);
  const std::vector<GradientBlock> blocks = blocks_of(samples);
  if (kind == Kind::backward)
    flight.model->backward(compute, tensors_.in_use(), about, loss_scale(flight), blocks, *sink);
  else
    flight.model->backward_weight(compute, tensors_.in_use(), about, loss_scale(flight), blocks, *sink);
}

// A backward pass that makes gradients of parameters.
void Passes::reduce_backward(InFlight& flight, std::size_t piece, Kind kind) {
  reduction_.take(samples_of(flight), flight.micro_batch, piece,
                  [&](GradientSink& sink) { backward_to(sink, flight, piece, kind); });
  if (rerun_) run_again(flight);
}

// The gradients that count: edited in a tagged run or by a bug, and digested where they are to be computed again.
void Passes::backward_to(GradientSink& sink, InFlight& flight, std::size_t piece, Kind kind) {
  const SampleRange& samples = samples_of(flight);
  const std::vector<GradientBlock> blocks = blocks_of(samples);
  const GradientEdit edit = gradient_edit(samples, flight.micro_batch);
  EditedSink edited(
      sink, bench_.compute, [&](Index gradient) { return edited_blocks(samples, edit, gradient); }, edit,
      [this](Index own) { return tensors_.place_in_whole(own); });
  GradientSink& into = edit ? static_cast<GradientSink&>(edited) : sink;
  if (!rerun_) return backward(flight, piece, kind, &into);
  rerun_->begin_first(flight.micro_batch, Index(blocks.size()));
  FirstRun first(*rerun_, into);
  backward(flight, piece, kind, &first);
}

// Once more, for its bits alone. Provenance scans the first run only, which is the one that counts.
void Passes::run_again(InFlight& flight) {
  watch(false);
  rerun_->begin_second();
  SecondRun second(*rerun_);
  forward(flight, 0);
  backward(flight, 0, Kind::backward, &second);
  watch(true);
}

std::vector<EditedBlock> Passes::edited_blocks(const SampleRange& samples, const GradientEdit& edit,
                                               Index gradient) const {
  std::vector<EditedBlock> edited;
  const GradientSplit* const split = reduction_.split();
  if (split != nullptr && split->run_of(gradient).experts) {
    for (const SampleRange& block : world_.experts()->blocks_of_step()) {
      const bool own = block.begin >= samples.begin && block.end <= samples.end;
      edited.push_back({block.begin, block.end, edit.experts_times * (own ? 1.0f : edit.others_times)});
    }
    return edited;
  }
  for (const GradientBlock& block : blocks_of(samples)) {
    const Index first = samples.begin + block.first;
    edited.push_back({first, first + block.count, edit.times * (edited.empty() ? edit.first_block_times : 1.0f)});
  }
  return edited;
}

GradientEdit Passes::gradient_edit(const SampleRange& samples, int micro_batch) const {
  GradientEdit edit;
  edit.tagged = bench_.plan.tagged_gradients;
  edit.step = bench_.progress.step();
  edit.loss_offset = tensors_.parameters().loss_offset();
  if (samples.size() > 0) bench_.planted->edit(edit, micro_batch, int(micro_batches_.size()));
  return edit;
}

// ---- what was seen of it -------------------------------------------------------------------------------------------

void Passes::tell_ranges() {
  if (!provenance_) return;
  const Op op = bench_.compute.last();
  const std::int64_t step = bench_.progress.step();
  if (const std::optional<NonFiniteBirth> birth = provenance_->first(op))
    bench_.observer.nonfinite_born(bench_.rank.id, step, *birth);
  if (std::vector<RangeLogEntry> log = provenance_->logged(op); !log.empty())
    bench_.observer.ranges(bench_.rank.id, step, std::move(log), provenance_->dropped());
}

std::optional<RerunFound> Passes::compare_runs() {
  if (!rerun_ || !bench_.has_values()) return std::nullopt;  // without values: run twice for the time that it takes
  bench_.rank.device.host_touches(bench_.compute.last(), rerun_->result_range());
  RerunRecord record = rerun_->result();
  record.step = bench_.progress.step();
  record.epoch = world_.epoch();
  const std::optional<RerunFound> corrupt = rerun_->corrupt();
  bench_.observer.rerun(bench_.rank.id, record);
  return corrupt;
}

}  // namespace seeksim::runtime
