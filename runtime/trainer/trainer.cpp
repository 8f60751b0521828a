// Read train_step first: it is one training step, in the order in which things happen. What a failure does to it stands
// in recovery.cpp.
#include "runtime/trainer/trainer.h"

#include <algorithm>
#include <bit>
#include <string_view>

#include "kernels/check.h"
#include "kernels/digest.h"
#include "kernels/tree.h"
#include "runtime/launch/typed_ops.h"
#include "runtime/model/weights.h"
#include "runtime/plan/learning_rate.h"

namespace seeksim::runtime {

using kernels::Lane;
using kernels::Vec;

namespace {
// Words of a ballot.
constexpr std::size_t kSkipWord = 0;
constexpr std::size_t kCorruptWord = 1;  // 1 + the micro-batch that was computed twice with different bits
constexpr std::size_t kRangeWord = 2;    // ... and where in the gradient space
constexpr std::size_t kPoisonWord = 3;
// The vote at a step's commit point.
constexpr const char* kOfStep = "step";
}  // namespace

void Trainer::train_step() {
  stand_at(comm_->epoch(), step_);
  hand_out_gradients_ = has_values() && observer_.wants_gradients(rank_.id, step_);
  for (GradientTree& tree : trees_) tree.begin(plan_.definition.global_batch);
  if (reducer_) {
    // Where gradients are replicated a step has one reduction, and what is between micro-batches is in this rank's
    // tree.
    const ElementType between = sharded(placement_.gradients) ? accumulator() : ElementType::f32;
    reducer_->begin_step(step_, keeper_->own().sums, scale_.at_root * average().after, between);
  }
  if (gathered_) gathered_->begin_step(compute_, step_);
  if (provenance_) provenance_->begin_step(compute_.queue(), step_);
  if (rerun_) rerun_->begin_step(compute_);

  // Forward and backward passes of all micro-batches, in the order of the schedule: without a pipeline F0 B0 F1 B1 ...
  // Every micro-batch adds nodes to the gradient tree; what they are depends on the samples, never on the cut.
  for (const Instruction& instruction : instructions_) carry_out(instruction);

  reduce_gradients();  // the gradient of the global batch, the same bits everywhere: of all parameters or of the shard
  measure_gradients();
  StepResult result = read_result();
  if (rerun_) compare_runs();
  if ((keeper_ || replica_) && hand_out_gradients_) gather_gradients();

  if (!result.finite) look_for_poison(true);

  // The commit point. Until here nothing durable has changed; from here on every member goes forward. A step whose
  // gradient is not finite on any rank is skipped by all: weights, moments, Adam's step and the schedule stay as they
  // are; the data position and the loss scale go on.
  const std::vector<std::int64_t>& skip = plan_.definition.skip_steps;
  const bool wanted = std::find(skip.begin(), skip.end(), step_) == skip.end();
  const Quirks& quirks = plan_.definition.quirks;
  const bool checked = checks_overflow(quirks, compute_type());
  const bool overflow_here = (checked && result.nonfinite > 0) || !wanted;
  const bool hasty = plan_.bug.is(Bug::commits_before_vote, rank_.id);
  const bool overflow = hasty ? overflow_here : !vote(kOfStep, (!checked || result.finite) && wanted);
  const bool apply_it = !skips(quirks, overflow_here, overflow);
  if (!overflow) look_for_divergence(result);
  const double lr = rate();
  if (apply_it) result.grad_norm = apply(result, lr);
  commit(result, apply_it, lr);
  if (hasty) {  // about the step that is already applied
    --step_;
    vote(kOfStep, true);
    ++step_;
  }
  if (!skips(quirks, false, overflow)) publish(false);  // where nothing overflowed an update was made
  report_replica();
  save_if_due();
}

// ---- before the commit point -------------------------------------------------------------------------------------

void Trainer::fetch(InFlight& flight) {
  const SampleRange& samples = samples_of_flight(flight);
  compute_.phase(Phase::data, flight.micro_batch);
  const std::int64_t replayed = plan_.bug.is(Bug::resume_replays_data) ? loaded_step_ : 0;
  const std::int64_t shifted = plan_.bug.is(Bug::samples_shifted, rank_.id) ? 1 : 0;
  const std::int64_t batch = batch_of_step(dropped_batches_, step_ - replayed);
  const std::int64_t first = batch * plan_.definition.global_batch + samples.begin + shifted;
  compute_.samples(first, std::int32_t(samples.size()));
  compute_.launch(
      OpKind::data_load, "tokens", SEEKSIM_SITE, memory_cost(2 * samples.size() * data_.context),
      [data = data_, first, count = samples.size()](Lane lane, Vec<std::int32_t> inputs, Vec<std::int32_t> targets) {
        std::vector<std::int32_t> tokens(static_cast<std::size_t>(data.context) + 1);
        std::vector<std::int32_t> all_inputs, all_targets;
        for (Index i = 0; i < count; ++i) {
          data.sample(first + i, tokens.data());
          if (inputs.n > 0) all_inputs.insert(all_inputs.end(), tokens.begin(), tokens.end() - 1);
          if (targets.n > 0) all_targets.insert(all_targets.end(), tokens.begin() + 1, tokens.end());
        }
        kernels::write_values(lane, all_inputs.data(), inputs);
        kernels::write_values(lane, all_targets.data(), targets);
      },
      flight.model->inputs(samples.size()), flight.model->targets(samples.size()));
}

std::vector<kernels::TreeNode> Trainer::nodes_of(const SampleRange& samples) const {
  return kernels::cover(samples.begin, samples.end, plan_.definition.global_batch);
}

std::vector<GradientBlock> Trainer::blocks_of(const SampleRange& samples) const {
  const std::vector<kernels::TreeNode> nodes = nodes_of(samples);
  std::vector<GradientBlock> blocks;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const Index first = kernels::first_leaf(nodes[i]);
    const Index end = i + 1 < nodes.size() ? kernels::first_leaf(nodes[i + 1]) : samples.end;
    blocks.push_back({first - samples.begin, end - first});
  }
  return blocks;
}

// A backward pass that makes gradients of parameters, into buckets or into nodes of the tree.
void Trainer::reduce_backward(InFlight& flight, std::size_t piece, InstructionKind kind) {
  const SampleRange& samples = samples_of_flight(flight);
  const std::vector<kernels::TreeNode> nodes = nodes_of(samples);
  if (buckets_) {  // gradients are sharded: each full bucket goes to its owners at once
    reducer_->begin_reduction(flight.micro_batch);
    buckets_->begin(compute_, Index(nodes.size()), average().before);
    backward_to(*buckets_, flight, piece, kind);
    reducer_->end_reduction();
  } else {
    GradientTree& tree = trees_[piece];
    const Index begin = parameters_.gradient_begin(piece), end = parameters_.gradient_end(piece);
    std::vector<VecView<float>> out;
    for (const kernels::TreeNode node : nodes) out.push_back(tree.open(node));
    NodeSink sink(out, begin);
    backward_to(sink, flight, piece, kind);
    for (const kernels::TreeNode node : nodes) tree.close(compute_, node);
    tree.round(compute_, accumulator(), std::min(end, parameters_.loss_offset()) - begin);
  }
  if (rerun_) run_again(flight);
}

std::uint64_t Trainer::dropout_seed() const {
  const std::uint64_t seed = plan_.definition.training_seed;
  return plan_.bug.is(Bug::rank_seeded_dropout) ? seed + std::uint64_t(rank_.id) : seed;
}

// The forward pass of a piece, and where the head is the loss, whose gradient is what backward begins with.
void Trainer::forward(InFlight& flight, std::size_t piece) {
  const SampleRange& samples = samples_of_flight(flight);
  compute_.phase(Phase::forward, flight.micro_batch);
  if (gathered_) gathered_->begin_pass(flight.micro_batch, true, piece);
  flight.model->forward(compute_, weights_in_use(), batch(samples));
  if (!parameters_.pieces()[piece].heads) return;
  const float at_loss = scale_.at_loss * token_weights_[std::size_t(flight.micro_batch)];
  flight.model->loss(compute_, samples.size(), at_loss * loss_factor(plan_.definition.quirks, scaler_.scale()));
}

void Trainer::backward(InFlight& flight, std::size_t piece, InstructionKind kind, GradientSink* sink) {
  const SampleRange& samples = samples_of_flight(flight);
  compute_.phase(Phase::backward, flight.micro_batch);
  const Batch about = batch(samples);
  if (gathered_ && kind != InstructionKind::backward_weight) gathered_->begin_pass(flight.micro_batch, false, piece);
  if (kind == InstructionKind::backward_input) return flight.model->backward_input(compute_, weights_in_use(), about);
  const float at_loss = scale_.at_loss * token_weights_[std::size_t(flight.micro_batch)];
  const std::vector<GradientBlock> blocks = blocks_of(samples);
  if (kind == InstructionKind::backward)
    flight.model->backward(compute_, weights_in_use(), about, at_loss, blocks, *sink);
  else
    flight.model->backward_weight(compute_, weights_in_use(), about, at_loss, blocks, *sink);
}

// The gradients that count: edited in a tagged run or by a bug, and digested where they are to be computed again.
void Trainer::backward_to(GradientSink& sink, InFlight& flight, std::size_t piece, InstructionKind kind) {
  const SampleRange& samples = samples_of_flight(flight);
  const std::vector<GradientBlock> blocks = blocks_of(samples);
  const GradientEdit edit = gradient_edit(samples, flight.micro_batch);
  EditedSink edited(sink, compute_, blocks, edit, [this](Index own) { return place_in_whole(own); });
  GradientSink& into = edit ? static_cast<GradientSink&>(edited) : sink;
  if (!rerun_) return backward(flight, piece, kind, &into);
  rerun_->begin_first(flight.micro_batch, Index(blocks.size()));
  FirstRun first(*rerun_, into);
  backward(flight, piece, kind, &first);
}

// Once more, for its bits alone. Whoever looks for the birth of a value looks at the run that counts.
void Trainer::run_again(InFlight& flight) {
  compute_.watched_by(nullptr);
  rerun_->begin_second();
  SecondRun second(*rerun_);
  forward(flight, 0);
  backward(flight, 0, InstructionKind::backward, &second);
  compute_.watched_by(provenance_ ? &*provenance_ : nullptr);
}

// What is done to the gradients of a micro-batch in a tagged run or by a planted bug; else nothing.
GradientEdit Trainer::gradient_edit(const SampleRange& samples, int micro_batch) const {
  GradientEdit edit;
  edit.tagged = plan_.tagged_gradients;
  edit.step = step_;
  edit.first_sample = samples.begin;
  edit.loss_offset = parameters_.loss_offset();
  const PlantedBug& bug = plan_.bug;
  if (samples.size() == 0) return edit;
  if (bug.is(Bug::sample_twice, rank_.id) && micro_batch == 0) edit.first_block_times = 2;
  if (bug.is(Bug::sample_lost, rank_.id) && micro_batch == 0) edit.first_block_times = 0;
  const int last = int(micro_batches_.size()) - 1;
  if (bug.is(Bug::wrong_weight, rank_.id)) edit.times = 1.0f / float(micro_batches_.size());
  if (bug.is(Bug::undivided_window)) edit.times = float(micro_batches_.size());
  if (bug.is(Bug::divided_by_ways)) edit.times = 1.0f / float(plan_.layout.parallel.tensor);
  if (bug.is(Bug::last_micro_batch_lost) && micro_batch == last) edit.times = 0;
  if (bug.is(Bug::only_last_micro_batch) && micro_batch != last) edit.times = 0;
  return edit;
}

// Of a step: true, all members have a finite gradient, apply it; false, skip it, everywhere. All members hear the same
// answer or none does. Throws where a member is missing.
bool Trainer::vote(const char* about, bool good) {
  Ballot ballot;
  ballot.words[kSkipWord] = good ? 0 : 1;
  ballot.words[kCorruptWord] = corrupt_ ? 1 + corrupt_->micro_batch : 0;
  ballot.words[kRangeWord] = corrupt_ ? corrupt_->offset : 0;
  ballot.words[kPoisonWord] = poison_.empty() ? 0 : poison_at_source_ ? 2 : 1;
  const bool of_step = std::string_view(about) == kOfStep;
  if (of_step) ballot.busy_ns = busy_since_last_step();
  if (writer_) ballot.checkpoint = writer_->ballot();
  const Agreement agreement = take_vote(about, ballot);
  if (writer_) writer_->heard(agreement);
  bool all_good = true;
  for (const Ballot& other : agreement.ballots) all_good = all_good && other.words[kSkipWord] == 0;
  if (of_step) look_for_stragglers(agreement, all_good);
  return all_good;
}

Op Trainer::commit_op(OpKind kind, const char* about, std::int64_t step, const char* site) const {
  Op op;
  op.kind = kind;
  op.phase = Phase::commit;
  op.epoch = comm_->epoch();
  op.rank = rank_.id;
  op.step = step;
  op.tensor = about;
  op.site = site;
  return op;
}

Agreement Trainer::ask_all(const Op& op, const Ballot& ballot, TimeNs deadline) {
  if (!plan_.bug.is(Bug::silence_is_consent)) return rank_.control.agree(op, comm_->epoch(), ballot, deadline);
  try {
    return rank_.control.agree(op, comm_->epoch(), ballot, deadline);
  } catch (const SeamError& error) {
    if (error.kind() != ErrorKind::fenced) throw;
  }
  Agreement alone;
  alone.epoch = comm_->epoch();
  alone.members = {rank_.id};
  alone.ballots = {ballot};
  return alone;
}

Agreement Trainer::take_vote(const char* about, Ballot ballot) {
  const Op op = commit_op(OpKind::vote, about, step_, SEEKSIM_SITE);
  ballot.last_committed = step_ - 1;
  ballot.last_joined = comm_->last_sequence();
  // Who misses this deadline is dead and fenced. A member that waits in vain in the reduction is not: its watchdog,
  // which ends a little after ours would, revokes the epoch and so cuts the vote short for all.
  const TimeNs patience = later(plan_.recovery.watchdog_ns, plan_.recovery.agree_ns);
  ballot.leaves_at_ns = rank_.control.notice();
  const Agreement agreement = ask_all(op, ballot, later(rank_.clock.now(), patience));
  if (!agreement.dead.empty()) {
    throw SeamError(ErrorKind::remote_error, op, "rank " + std::to_string(agreement.dead.front()) + " did not vote");
  }
  stop_if_poisoned(agreement);
  redo_where_bits_differ(op, agreement);
  if (plan_.bug.is(Bug::commit_heeds_revoke) && rank_.control.revoked(comm_->epoch()))
    throw SeamError(ErrorKind::revoked, op, "the epoch was revoked after the vote");
  hear_of_members(agreement);
  return agreement;
}

// What came of running each micro-batch twice.
void Trainer::compare_runs() {
  if (!has_values()) return;  // run twice for the time that it takes; there are no bits
  rank_.device.host_touches(compute_.last(), rerun_->result_range());
  RerunRecord record = rerun_->result();
  record.step = step_;
  record.epoch = comm_->epoch();
  corrupt_ = rerun_->corrupt();
  observer_.rerun(rank_.id, record);
}

// All heard in the same vote which ranks computed other bits the second time, and where: nobody uses what came of it.
void Trainer::redo_where_bits_differ(Op op, const Agreement& agreement) const {
  std::string detail;
  for (std::size_t i = 0; i < agreement.ballots.size(); ++i) {
    const Ballot& ballot = agreement.ballots[i];
    if (ballot.words[kCorruptWord] == 0) continue;
    const int culprit = agreement.members[i];
    const std::int64_t micro_batch = ballot.words[kCorruptWord] - 1;
    const char* const parameter = gradient_name(parameters_, Index(ballot.words[kRangeWord]));
    detail += (detail.empty() ? "rank " : ", rank ") + std::to_string(culprit) + " computed the gradient of '" +
              parameter + "' in micro-batch " + std::to_string(micro_batch) + " twice, with different bits";
    if (op.peer >= 0 && culprit != rank_.id) continue;  // who erred itself names itself
    op.peer = culprit;
    op.micro_batch = std::int32_t(micro_batch);
    op.tensor = parameter;
  }
  if (detail.empty()) return;
  op.kind = OpKind::compute;
  op.phase = Phase::backward;
  throw SeamError(ErrorKind::corrupt_compute, op, detail);
}

// Whoever has it at its source is named, not who saw first what came of it.
void Trainer::stop_if_poisoned(const Agreement& agreement) const {
  std::size_t worst = 0;
  for (std::size_t i = 0; i < agreement.ballots.size(); ++i) {
    if (agreement.ballots[i].words[kPoisonWord] > agreement.ballots[worst].words[kPoisonWord]) worst = i;
  }
  if (agreement.ballots[worst].words[kPoisonWord] == 0) return;
  if (agreement.members[worst] == rank_.id) throw UnwrittenMemory(poison_);
  const std::string here = poison_.empty() ? "" : "; and here, " + poison_;
  throw UnwrittenMemory("memory that nobody wrote reached a result of rank " +
                        std::to_string(agreement.members[worst]) + here);
}

// ---- after it ----------------------------------------------------------------------------------------------------

double Trainer::rate() const {
  const Definition& d = plan_.definition;
  const Optimizer& optimizer = keeper_ ? *keeper_->own().optimizer : *optimizer_;
  const std::int64_t applied = optimizer.steps() - optimizer_start(d.quirks).steps;
  const double lr =
      learning_rate(d.scheduler, d.optimizer.lr, schedule_steps(d.quirks, applied, skips_.skipped, comm_->size()));
  const bool drifts = plan_.bug.is(Bug::drifting_lr, rank_.id) && step_ >= plan_.bug.step;
  return drifts ? std::bit_cast<double>(std::bit_cast<std::uint64_t>(lr) ^ 1) : lr;
}

// Returns the norm to report.
float Trainer::apply(const StepResult& result, double lr) {
  at_home().phase(Phase::optimizer);
  const Definition& d = plan_.definition;
  const UnscaledGradient gradient{result.grad_norm, scaler_.scale(), scaler_.scale_after(false)};
  const bool forgotten = plan_.bug.is(Bug::clip_off_in_16_bit) && is_16_bit(compute_type());
  GradientFactor factor = gradient_factor(d.quirks, gradient, forgotten ? 0 : d.gradient_clipping);
  if (plan_.bug.is(Bug::clip_by_max))
    factor.factor = std::max(1.0f, static_cast<float>(d.gradient_clipping) / result.grad_norm);
  if (plan_.bug.is(Bug::clip_skips_replicated) && place_.way > 0) unclip_replicated(factor.factor);
  update(factor.factor * unscale_factor(scaler_.scale()), lr);
  return factor.reported_norm;
}

void Trainer::update(float grad_factor, double lr) {
  if (plan_.bug.is(Bug::update_lost)) return;
  if (keeper_) {
    try {
      keeper_->step(at_home(), grad_factor, lr);
    } catch (const SeamError& error) {
      if (error.kind() != ErrorKind::io || !keeper_->keeps_copies()) throw;
      throw DiskLost{error};
    }
  } else {
    const Index n = parameters_.trainable_size();
    const AnyVec weights = flat_weights().part(0, n), parameters = flat_parameters().part(0, n);
    const bool has_masters = weights.type == ElementType::f32;
    const VecView<float> masters = has_masters ? weights.as<float>() : VecView<float>{};
    optimizer_->step(compute_, {masters, parameters, flat_gradients(), {}, {}}, grad_factor, lr);
  }
}

void Trainer::commit(const StepResult& result, bool applied, double lr) {
  const bool files_too = !writer_ || !writer_->under_way();
  host_after_all(rank_, compute_.last(), plan_.recovery.watchdog_ns, Edge::update_applied, plan_.bug, files_too);
  if (plan_.bug.is(Bug::drifting_replica, rank_.id) && !keeper_ && step_ == plan_.bug.step) drift();
  record_digests();
  const std::int64_t step = step_++;
  if (hand_out_gradients_) {
    if (!keeper_ && !replica_) handed_out_ = replicated_gradients();
    observer_.gradients(rank_.id, step, gradients_to_hugging_face(whole(), plan_.definition.model, handed_out_));
  }
  StepRecord record;
  record.step = step;
  record.loss = result.loss;
  record.grad_norm = result.grad_norm;
  record.lr = lr;
  record.skipped = !applied;
  record.loss_scale = scaler_.scale();
  record.nonfinite = result.nonfinite;
  record.committed_ns = rank_.clock.now();
  record.epoch = comm_->epoch();
  record.data_position = data_position();
  record.optimizer_steps = (keeper_ ? *keeper_->own().optimizer : *optimizer_).steps();
  if (applied && !plan_.definition.precision.master_weights) tell_stagnation();
  skips_ = next(skips_, SkipEvent{step, !applied, scaler_.scale(), result.nonfinite});
  scaler_.update(!applied || (plan_.bug.is(Bug::local_loss_scale, rank_.id) && step == plan_.bug.step));
  committed_ = record;
  published_ = !keeper_;
  observer_.step_committed(rank_.id, record);
}

// Updated parameters, from their owners to all who hold them. The step is committed: whoever fails here is caught up in
// the next world, whose members publish again.
void Trainer::publish(bool new_world) {
  if (!keeper_) return;
  Queue& queue = rank_.device.communication_queue();
  if (gathered_) {
    if (!gathered_->has_persistent(new_world)) return;
    const Event published = gathered_->refresh_persistent(queue, step_ - 1, new_world);
    host_after(*comm_, published, gathered_->last_op(), Edge::persistent_published, plan_.bug);
    return;
  }
  const bool stale = plan_.bug.is(Bug::stale_publish, rank_.id) && step_ > plan_.bug.step;
  const Index bucket = plan_.layout.zero.allgather_bucket_elements;
  for (Index lo = 0; lo < parameters_.trainable_size(); lo += bucket) {
    const bool short_one = plants(Bug::wrong_count);
    const Index hi = std::min(lo + bucket, parameters_.trainable_size()) - (short_one ? 1 : 0);
    const std::vector<std::byte> old = stale && lo == 0 ? copy_of_weights(hi) : std::vector<std::byte>();
    std::vector<ShardInfo> shards;
    for (int member = 0; member < comm_->size(); ++member) {
      const ShardInfo shard = keeper_->partition().shard_in(member, lo, hi);
      shards.push_back({shard.offset - lo, shard.size});
    }
    Op op;
    op.kind = OpKind::publish;
    op.phase = Phase::publish;
    op.step = step_ - 1;
    op.tensor = "parameters";
    op.site = SEEKSIM_SITE;
    op = comm_->all_gather(queue, op, flat_parameters().part(lo, hi - lo), shards);
    host_after(*comm_, queue.record(), op, Edge::parameters_published, plan_.bug);
    restore_weights(old);
  }
  if (plan_.bug.is(Bug::drifting_replica, rank_.id) && step_ > plan_.bug.step) drift();
}

// Of what this rank holds for good: all parameters, or its shard of each.
void Trainer::record_digests() {
  Op op = commit_op(OpKind::compute, "", step_, SEEKSIM_SITE);
  if (!keeper_) {
    replicated_.clear();
    for (const ParameterInfo& p : parameters_.all()) {
      op.tensor = p.name;
      replicated_.emplace_back(p.name, digest_of(host_reads(SEEKSIM_SITE, weights_of(p))));
      rank_.recorder.mix(op, replicated_.back().second);
    }
    return;
  }
  auto mix = [&](ShardInfo shard, AnyVec values) {
    for (const ParameterPiece& piece : keeper_->partition().pieces(shard)) {
      op.tensor = piece.parameter->name;
      const AnyVec held = values.part(piece.offset() - shard.offset, piece.size);
      rank_.recorder.mix(op, digest_of(host_reads(SEEKSIM_SITE, held)));
    }
  };
  if (const SwappedState* files = keeper_->own().files.get()) {
    op.tensor = "weights in files";
    rank_.recorder.mix(op, files->digest(SwappedState::Kind::weights));
  } else {
    mix(keeper_->own().shard, keeper_->own().weights());
  }
  mix(keeper_->own().frozen_shard, keeper_->own().frozen);
}

// What rounding took from the step's updates, where there are no masters to keep them.
void Trainer::tell_stagnation() {
  Buffer* const counts = (keeper_ ? *keeper_->own().optimizer : *optimizer_).stagnation();
  if (counts == nullptr || !has_values()) return;
  const VecView<const kernels::Stagnation> view = vec<const kernels::Stagnation>(*counts);
  rank_.device.host_touches(compute_.last(), view.range());
  observer_.stagnation(rank_.id, step_ - 1, on_host(view)[0]);
}

std::string Trainer::stopped() const {
  const std::string scale = scaler_.stop_text();
  return scale.empty() ? stop_text(plan_.recovery.skip, skips_) : scale;
}

}  // namespace seeksim::runtime
