// GPT-2, forward and backward, over one micro-batch: pre-norm blocks, learned positions, tied or untied head. It
// enqueues kernels and decides nothing: which samples, which weights and where the gradients go come from the caller.
#pragma once

#include <span>

#include "kernels/check.h"
#include "runtime/dropout.h"
#include "runtime/model.h"

namespace seeksim::runtime {

// S: the type in which parameters and activations are held.
template <class S>
class Gpt2 final : public Model {
 public:
  // Allocates the activations of `samples_max` samples; smaller micro-batches use their front.
  Gpt2(Device& device, const ModelPlan& plan, const Gpt2Parameters& parameters, Index samples_max);

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

  MatView<S> act(const BufferPtr& buffer, Index samples, Index cols, int layer = 0) const {
    SEEKSIM_CHECK(samples <= samples_max_, "%lld samples", static_cast<long long>(samples));
    return mat<S>(*buffer, layer * samples_max_ * s_.T * cols, samples * s_.T, cols);
  }
  VecView<float> row_values(const BufferPtr& buffer, Index samples, int layer) const {
    return vec<float>(*buffer, layer * samples_max_ * s_.T, samples * s_.T);
  }
  MatView<const S> weight(const Pass& p, const ParameterInfo& info) const {
    const VecView<const S> w = vector(p, info);
    return {w.buffer, w.offset, info.rows(), info.cols(), info.cols()};
  }
  VecView<const S> vector(const Pass& p, const ParameterInfo& info) const {
    return p.weights.of(info).template as<const S>();
  }

  void layer_forward(const Pass& p, int l);

  MatView<S> raw_logits(Index samples) const {
    return act(parameters_.logit_scale() != nullptr ? raw_logits_ : logits_, samples, s_.V);
  }
  void scale_logits(const Pass& p);
  void head_backward(const Pass& p);
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
  // R = samples_max * T rows. Kept for backward:
  BufferPtr inputs_, targets_;               // (R)
  BufferPtr x_;                              // (L + 1, R, C)  residual stream into each layer, and out of the last
  BufferPtr mid_;                            // (L, R, C)      residual stream between attention and mlp
  BufferPtr ln1_, ln2_, att_;                // (L, R, C)
  BufferPtr mean1_, rstd1_, mean2_, rstd2_;  // (L, R)
  BufferPtr qkv_;                            // (L, R, 3C)
  BufferPtr probs_;                          // (L, samples * H * T, T)
  BufferPtr fc_, gelu_;                      // (L, R, F)
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
