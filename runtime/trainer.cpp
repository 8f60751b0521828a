// Read train_step first: it is one training step, in the order in which things happen. What a failure does to it stands
// in recovery.cpp.
#include "runtime/trainer.h"

#include <algorithm>

#include "kernels/check.h"
#include "kernels/digest.h"
#include "kernels/norms.h"
#include "kernels/pointwise.h"
#include "kernels/tree.h"
#include "runtime/host_math.h"
#include "runtime/schedule.h"
#include "runtime/weights.h"

namespace seeksim::runtime {

using kernels::kBlock;
using kernels::kSlabs;
using kernels::Lane;
using kernels::Vec;

void Trainer::train_step() {
  compute_.at(comm_->epoch(), step_);
  hand_out_gradients_ = observer_.wants_gradients(rank_.id, step_);
  tree_->begin(plan_.definition.global_batch);

  // Every micro-batch adds nodes to the gradient tree; what they are depends on the samples, never on the cut.
  for (int k = 0; k < int(micro_batches_.size()); ++k) {
    fetch(micro_batches_[k], k);
    forward_backward(micro_batches_[k], k);
  }
  wait_for(compute_.last());

  reduce_gradients();  // subtree roots of all ranks -> the gradient of the global batch, the same bits on every rank
  add_tied_gradients();
  measure_gradients();
  const StepResult result = read_result();

  // The commit point. Until here nothing durable has changed; from here on every member goes forward.
  const bool apply_it = vote(result.finite);
  const double lr = learning_rate(plan_.definition.scheduler, plan_.definition.optimizer.lr, optimizer_->steps());
  if (apply_it) apply(result, lr);
  commit(result, apply_it, lr);
}

// ---- before the commit point -------------------------------------------------------------------------------------

void Trainer::fetch(const SampleRange& samples, int micro_batch) {
  compute_.phase(Phase::data, micro_batch);
  const std::int64_t first = step_ * plan_.definition.global_batch + samples.begin;
  compute_.launch(
      OpKind::data_load, "tokens", SEEKSIM_SITE, memory_cost(2 * samples.size() * data_.context),
      [data = data_, first](Lane, Vec<std::int32_t> inputs, Vec<std::int32_t> targets) {
        std::vector<std::int32_t> tokens(static_cast<std::size_t>(data.context) + 1);
        for (Index at = 0; at < inputs.n; at += data.context) {
          data.sample(first + at / data.context, tokens.data());
          std::copy(tokens.begin(), tokens.end() - 1, inputs.data + at);
          std::copy(tokens.begin() + 1, tokens.end(), targets.data + at);
        }
      },
      model_->inputs(samples.size()), model_->targets(samples.size()));
}

void Trainer::forward_backward(const SampleRange& samples, int micro_batch) {
  compute_.phase(Phase::forward, micro_batch);
  model_->forward(compute_, *weights_, samples.size());
  model_->loss(compute_, samples.size(), scale_.at_loss);

  compute_.phase(Phase::backward, micro_batch);
  const std::vector<kernels::TreeNode> nodes =
      kernels::cover(samples.begin, samples.end, plan_.definition.global_batch);
  std::vector<GradientBlock> blocks;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const Index first = kernels::first_leaf(nodes[i]);
    const Index end = i + 1 < nodes.size() ? kernels::first_leaf(nodes[i + 1]) : samples.end;
    blocks.push_back({first - samples.begin, end - first, tree_->open(nodes[i])});
  }
  model_->backward(compute_, *weights_, samples.size(), scale_.at_loss, blocks);
  for (const kernels::TreeNode node : nodes) tree_->close(compute_, node);
}

void Trainer::reduce_gradients() {
  Op op;
  op.phase = Phase::grad_reduce;
  op.step = step_;
  op.tensor = "gradients";
  op.site = SEEKSIM_SITE;
  Queue& queue = rank_.device.communication_queue();
  queue.wait(compute_.queue().record());
  const std::vector<VecView<const float>> parts = tree_->parts();
  op = comm_->all_reduce(queue, op, ownership_, parts, scale_.at_root,
                         vec<float>(*gradients_, 0, parameters_.gradient_size()));
  const Event reduced = queue.record();
  comm_->wait(reduced, op);
  compute_.queue().wait(reduced);
}

void Trainer::add_tied_gradients() {
  if (!parameters_.tied()) return;
  compute_.phase(Phase::grad_reduce);
  const ParameterInfo& wte = parameters_.wte();
  compute_(
      wte.name, SEEKSIM_SITE, memory_cost(3 * wte.size, 1.0 / 3),
      [](Lane lane, Vec<float> embedding_use, Vec<const float> head_use) {
        kernels::tree_add(lane, embedding_use, head_use, embedding_use);
      },
      vector_of<float>(*gradients_, wte), vec<const float>(*gradients_, parameters_.head_gradient_offset(), wte.size));
}

// The count of non-finite values, and norm^2 by the tree: blocks inside slabs, slabs, parameters in their order.
void Trainer::measure_gradients() {
  compute_.phase(Phase::grad_reduce);
  const Index count = Index(parameters_.all().size());
  compute_(
      "gradients", SEEKSIM_SITE, memory_cost(parameters_.size()),
      [](Lane lane, Vec<const float> x, Vec<std::int64_t> n) {
        n[0] = 0;
        kernels::count_nonfinite(lane, x, n);
      },
      vec<const float>(*gradients_, 0, parameters_.size()), vec<std::int64_t>(*nonfinite_));
  for (Index i = 0; i < count; ++i) {
    const ParameterInfo& p = parameters_.all()[i];
    compute_(
        p.name, SEEKSIM_SITE, memory_cost(p.size, 2),
        [slab = p.slab](Lane lane, Vec<const float> x, Vec<float> blocks, Vec<float> norm) {
          float slabs[kSlabs];
          Index n = 0;
          for (Index at = 0; at < x.n; at += slab, ++n) {
            const Index size = std::min(slab, x.n - at);
            const Vec<float> of_slab{blocks.data, (size + kBlock - 1) / kBlock};
            kernels::norm2_blocks(lane, {x.data + at, size}, of_slab);
            slabs[n] = kernels::tree_fold(of_slab);
          }
          norm[0] = kernels::tree_fold({slabs, n});
        },
        vector_of<const float>(*gradients_, p), vec<float>(*norm_blocks_), vec<float>(*norms_, i, 1));
  }
  compute_(
      "gradients", SEEKSIM_SITE, memory_cost(count),
      [](Lane, Vec<const float> of_parameters, Vec<float> norm) { norm[0] = kernels::tree_fold(of_parameters); },
      vec<const float>(*norms_, 0, count), vec<float>(*norms_, count, 1));
  wait_for(compute_.last());
}

Trainer::StepResult Trainer::read_result() const {
  const Index count = Index(parameters_.all().size());
  StepResult result;
  result.loss = vec<const float>(*gradients_, parameters_.loss_offset(), 1).get()[0];
  result.grad_norm = host_sqrt(vec<const float>(*norms_, count, 1).get()[0]);
  // A norm beyond fp32 cannot be clipped to anything sensible; DeepSpeed calls that an overflow too.
  result.finite = vec<const std::int64_t>(*nonfinite_).get()[0] == 0 && host_finite(result.grad_norm);
  return result;
}

// True: all members have a finite gradient, apply it. False: skip it, everywhere. Throws where a member is missing.
bool Trainer::vote(bool finite) {
  Op op;
  op.kind = OpKind::vote;
  op.phase = Phase::commit;
  op.epoch = comm_->epoch();
  op.rank = rank_.id;
  op.step = step_;
  op.tensor = "step";
  op.site = SEEKSIM_SITE;
  Ballot ballot;
  ballot.last_committed = step_ - 1;
  ballot.last_joined = comm_->last_sequence();
  ballot.words[0] = finite ? 0 : 1;
  // Who misses this deadline is dead and fenced. A member that waits in vain in the reduction is not: its watchdog,
  // which ends a little after ours would, revokes the epoch and so cuts the vote short for all.
  const TimeNs patience = later(plan_.recovery.watchdog_ns, plan_.recovery.agree_ns);
  const Agreement agreement = rank_.control.agree(op, comm_->epoch(), ballot, later(rank_.clock.now(), patience));
  if (!agreement.dead.empty()) {
    throw SeamError(ErrorKind::remote_error, op, "rank " + std::to_string(agreement.dead.front()) + " did not vote");
  }
  bool all_finite = true;
  for (const Ballot& other : agreement.ballots) all_finite = all_finite && other.words[0] == 0;
  return all_finite;
}

// ---- after it ----------------------------------------------------------------------------------------------------

void Trainer::apply(const StepResult& result, double lr) {
  compute_.phase(Phase::optimizer);
  const float factor = clip_coefficient(plan_.definition.gradient_clipping, result.grad_norm);
  optimizer_->step(compute_, *weights_, *gradients_, factor, lr);
}

void Trainer::commit(const StepResult& result, bool applied, double lr) {
  // Only kernels are pending, so this ends; and it cannot be cut short by a revoke, as a wait could.
  rank_.device.drain();
  record_digests();
  const std::int64_t step = step_++;
  if (hand_out_gradients_) {
    const std::span<const float> reduced = host_floats(*gradients_, parameters_.size());
    observer_.gradients(rank_.id, step, to_hugging_face(parameters_, plan_.definition.model, reduced));
  }
  StepRecord record;
  record.step = step;
  record.loss = result.loss;
  record.grad_norm = result.grad_norm;
  record.lr = lr;
  record.skipped = !applied;
  record.committed_ns = rank_.clock.now();
  observer_.step_committed(rank_.id, record);
}

void Trainer::record_digests() {
  Op op;
  op.phase = Phase::commit;
  op.epoch = comm_->epoch();
  op.rank = rank_.id;
  op.step = step_;
  op.site = SEEKSIM_SITE;
  for (const ParameterInfo& p : parameters_.all()) {
    op.tensor = p.name;
    rank_.recorder.mix(op, kernels::digest(vector_of<const float>(*weights_, p).get()));
  }
}

// ---- around the steps --------------------------------------------------------------------------------------------

Trainer::Trainer(Rank& rank, const TrainPlan& plan, Observer& observer)
    : rank_(rank),
      plan_(plan),
      observer_(observer),
      parameters_(plan.definition.model, plan.definition.optimizer.decay_all),
      scale_(Index(plan.definition.global_batch) * plan.definition.model.context),
      data_(data_source(plan.definition)),
      compute_(rank.device.compute_queue(), rank.id) {}

void Trainer::prepare() {
  if (optimizer_) return;
  // First all memory, then given weights, then the first launch: when memory is short or the weights are bad, nothing
  // may be pending that refers to the buffers.
  allocate();
  compute_.at(0, -1);
  compute_.phase(Phase::init);
  initial_weights();
  optimizer_->reset(compute_);
}

void Trainer::allocate() {
  Device& device = rank_.device;
  auto floats = [&](Index n, MemoryTag tag, const char* name) {
    return device.allocate(static_cast<std::size_t>(n) * sizeof(float), tag, name);
  };
  Index largest_slab = 0;
  for (const ParameterInfo& p : parameters_.all()) largest_slab = std::max(largest_slab, p.slab);
  weights_ = floats(parameters_.size(), MemoryTag::parameters, "weights");
  gradients_ = floats(parameters_.gradient_size(), MemoryTag::gradients, "gradients");
  norm_blocks_ = floats((largest_slab + kBlock - 1) / kBlock, MemoryTag::scratch, "norm blocks");
  norms_ = floats(Index(parameters_.all().size()) + 1, MemoryTag::scratch, "norms");
  nonfinite_ = device.allocate(sizeof(std::int64_t), MemoryTag::scratch, "non-finite count");
  const Index samples = std::min(plan_.layout.micro_batch, plan_.definition.global_batch);
  model_.emplace(device, plan_.definition.model, parameters_, samples);
  tree_.emplace(device, parameters_.gradient_size());
  optimizer_.emplace(device, plan_.definition.optimizer, parameters_);
}

void Trainer::initial_weights() {
  const Definition& d = plan_.definition;
  if (!d.initial_weights.empty()) {
    const auto flat = vec<float>(*weights_).get();
    from_hugging_face(parameters_, d.model, read_safetensors(d.initial_weights),
                      {flat.data, static_cast<std::size_t>(flat.n)});
    return;
  }
  for (std::uint32_t i = 0; i < parameters_.all().size(); ++i) {
    const ParameterInfo& p = parameters_.all()[i];
    compute_(
        p.name, SEEKSIM_SITE, memory_cost(p.size, 20),
        [model = &d.model, seed = d.training_seed, init = p.init, i](Lane, Vec<float> out) {
          draw_parameter(*model, seed, init, i, out);
        },
        vector_of<float>(*weights_, p));
  }
}

void Trainer::connect(std::uint32_t epoch, std::vector<int> members) {
  comm_.reset();
  comm_.emplace(rank_, Axis::data, epoch, std::move(members), plan_.recovery.watchdog_ns);
  ownership_ = {plan_.definition.global_batch, comm_->size()};
  const SampleRange mine = samples_of(plan_.definition.global_batch, comm_->size(), comm_->position());
  micro_batches_ = micro_batches(mine, plan_.layout.micro_batch);
}

void Trainer::abandon() {
  if (comm_) comm_->abort();
  rank_.device.drain();
  comm_.reset();
}

void Trainer::wait_for(const Op& op) { comm_->wait(compute_.queue().record(), op); }

std::span<const float> Trainer::host_floats(const Buffer& buffer, Index n) const {
  return {reinterpret_cast<const float*>(buffer.data), static_cast<std::size_t>(n)};
}

StateDigest Trainer::state() const {
  StateDigest state;
  state.data_position = step_ * plan_.definition.global_batch;
  if (!optimizer_) return state;
  state.optimizer_steps = optimizer_->steps();
  auto digest_of = [](Buffer& buffer, const ParameterInfo& p) {
    return kernels::digest(vector_of<const float>(buffer, p).get());
  };
  for (const ParameterInfo& p : parameters_.all()) {
    const std::uint64_t digest = digest_of(*weights_, p);
    state.by_tensor.emplace_back(p.name, digest);
    state.params = kernels::combine(state.params, digest);
    state.optimizer = kernels::combine(state.optimizer, digest_of(optimizer_->first_moments(), p));
    state.optimizer = kernels::combine(state.optimizer, digest_of(optimizer_->second_moments(), p));
  }
  return state;
}

std::vector<NamedTensor> Trainer::weights() const {
  return to_hugging_face(parameters_, plan_.definition.model, host_floats(*weights_, parameters_.size()));
}

float clip_coefficient(double limit, float norm) {
  if (limit <= 0) return 1.0f;
  const float coefficient = static_cast<float>(limit) / (norm + 1e-6f);
  return coefficient < 1.0f ? coefficient : 1.0f;
}

}  // namespace seeksim::runtime
