// GPT-2, forward and backward, over one micro-batch: pre-norm blocks, learned positions, tied or untied head. It
// enqueues kernels and decides nothing: which samples, which weights and where the gradients go come from the caller.
//
// Activations lie in slots. A layer whose activations are kept has one of its own; the layers of recomputed segments
// (segments.h) share theirs, and of such a segment only the residual stream into it is kept (checkpoint_store.h).
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "kernels/check.h"
#include "runtime/checkpoint_store.h"
#include "runtime/dropout.h"
#include "runtime/model.h"
#include "runtime/segments.h"

namespace seeksim::runtime {

// S: the type in which parameters and activations are held.
template <class S>
class Gpt2 final : public Model {
 public:
  // Allocates the activations of `samples_max` samples; smaller micro-batches use their front.
  Gpt2(Device& device, const TrainPlan& plan, const Gpt2Parameters& parameters, Index samples_max);

  VecView<std::int32_t> inputs(Index samples) const override { return {inputs_.get(), 0, samples * s_.T}; }
  VecView<std::int32_t> targets(Index samples) const override { return {targets_.get(), 0, samples * s_.T}; }

  void forward(Launcher& launch, Weights& weights, const Batch& batch) override;
  void loss(Launcher& launch, Index samples, float scale) override;
  void backward(Launcher& launch, Weights& weights, const Batch& batch, float loss_factor,
                std::span<const GradientBlock> blocks, GradientSink& sink) override;

 private:
  // One stretch of a pass: what every line of it needs.
  struct Pass {
    Launcher& launch;
    Weights& weights;
    const Batch& batch;
    std::span<const GradientBlock> blocks;
    GradientSink* sink;
  };

  // Where layer l's activations are, and the residual stream into it.
  struct LayerSlots {
    int activations = 0;
    int residual = 0;     // in x_, or
    int checkpoint = -1;  // in checkpoints_
  };

  MatView<S> act(const BufferPtr& buffer, Index samples, Index cols, int slot = 0) const {
    SEEKSIM_CHECK(samples <= samples_max_, "%lld samples", static_cast<long long>(samples));
    return mat<S>(*buffer, slot * samples_max_ * s_.T * cols, samples * s_.T, cols);
  }
  VecView<float> row_values(const BufferPtr& buffer, Index samples, int slot) const {
    return vec<float>(*buffer, slot * samples_max_ * s_.T, samples * s_.T);
  }
  // The residual stream into layer l; out of the last one: l = L.
  MatView<S> residual(Index samples, int l) {
    const LayerSlots& slots = slots_[std::size_t(l)];
    if (slots.checkpoint < 0) return act(x_, samples, s_.C, slots.residual);
    return mat<S>(checkpoints_->place(slots.checkpoint), 0, samples * s_.T, s_.C);
  }
  int slot(int l) const { return slots_[std::size_t(l)].activations; }
  Index checkpoint_elements(Index samples) const { return samples * s_.T * s_.C; }
  MatView<const S> weight(const Pass& p, const ParameterInfo& info) const {
    const VecView<const S> w = vector(p, info);
    return {w.buffer, w.offset, info.rows(), info.cols(), info.cols()};
  }
  VecView<const S> vector(const Pass& p, const ParameterInfo& info) const {
    return p.weights.of(info).template as<const S>();
  }

  void lay_out_slots(Device& device, const TrainPlan& plan);
  // Around the launches that write the residual stream into layer l.
  void residual_begins(const Pass& p, int l);
  void residual_ends(const Pass& p, int l);
  void layer_forward(const Pass& p, int l);  // all that backward looks at
  void layer_output(const Pass& p, int l);   // what the next layer needs
  void recompute(const Pass& p, const Segment& segment);

  MatView<S> raw_logits(Index samples) const {
    return act(parameters_.logit_scale() != nullptr ? raw_logits_ : logits_, samples, s_.V);
  }
  void scale_logits(const Pass& p);
  void head_backward(const Pass& p);
  void segment_backward(const Pass& p, const Segment& segment);
  void logit_scale_dots(const Pass& p);
  void logit_scale_grad(const Pass& p);
  void mlp_backward(const Pass& p, int l);
  void attention_backward(const Pass& p, int l);
  void embedding_backward(const Pass& p);
  void loss_nodes(const Pass& p, float scale);

  int head_module() const { return s_.L + 1; }

  // Frozen parameters have no gradient: what follows launches nothing for them.
  // dW and db of a linear layer whose input is x and whose output's gradient is dy, for each block. `column`: stored
  // (out, in), dW = dy^T x; else stored (in, out), dW = x^T dy.
  void linear_grad(const Pass& p, const ParameterInfo& w, const ParameterInfo* bias, bool column, MatView<const S> x,
                   MatView<const S> dy, Index weight_offset);
  template <class D>
  void bias_grad(const Pass& p, const ParameterInfo& bias, MatView<const D> dy);
  void norm_grad(const Pass& p, const ParameterInfo& gamma, const ParameterInfo& beta, MatView<const S> dy,
                 MatView<const S> x, VecView<const float> mean, VecView<const float> rstd);

  Gpt2Shape s_;
  const Gpt2Parameters& parameters_;
  float eps_;
  Index samples_max_;
  kernels::Dropout drop_embedding_, drop_attention_, drop_residual_;  // rates
  PlantedBug bug_;
  std::vector<Segment> segments_;
  std::vector<LayerSlots> slots_;  // of each layer, and of what comes out of the last
  int residual_slots_ = 0;         // in x_
  int layer_slots_ = 0;
  std::optional<CheckpointStore> checkpoints_;  // where a segment is recomputed
  // R = samples_max * T rows, A = layer_slots_. Kept for backward:
  BufferPtr inputs_, targets_;               // (R)
  BufferPtr x_;                              // (residual_slots_, R, C)  residual stream
  BufferPtr mid_;                            // (A, R, C)      residual stream between attention and mlp
  BufferPtr ln1_, ln2_, att_;                // (A, R, C)
  BufferPtr mean1_, rstd1_, mean2_, rstd2_;  // (A, R)
  BufferPtr qkv_;                            // (A, R, 3C)
  BufferPtr probs_;                          // (A, samples * H * T, T)
  BufferPtr fc_, gelu_;                      // (A, R, F)
  BufferPtr lnf_, meanf_, rstdf_;            // (R, C), (R), (R)
  BufferPtr logits_;                         // (R, V)  then their gradient
  BufferPtr raw_logits_, logit_dots_;        // (R, V), (R)  where a parameter scales the logits: before it, and their
                                             // dot products with the gradient
  BufferPtr token_losses_, sample_losses_;   // (R), (samples)
  // Working space:
  BufferPtr branch_;       // (R, C)  what a branch adds to the residual stream; backward: the gradient in a branch
  BufferPtr dx_, dmid_;    // (R, C)  gradient of the residual stream
  BufferPtr dqkv_;         // (R, 3C)
  BufferPtr dgelu_, dfc_;  // (R, F)
  BufferPtr scratch_;      // (2T, T)
  BufferPtr unused_;       // (C)  the gradient of a frozen bias whose norm's weight is trained
};

}  // namespace seeksim::runtime
