// GPT-2, forward and backward, over one micro-batch: pre-norm blocks, learned positions, tied or untied head. It
// enqueues kernels and decides nothing: which samples, which weights and where the gradients go come from the caller.
#pragma once

#include <span>

#include "runtime/gpt2_parameters.h"
#include "runtime/launcher.h"
#include "runtime/seams.h"

namespace seeksim::runtime {

// Samples [first, first + count) of a micro-batch that form one tree node.
struct GradientBlock {
  Index first = 0;
  Index count = 0;
};

// Where a backward pass puts gradients: ranges of the gradient space (Gpt2Parameters), from its end to its front.
class GradientSink {
 public:
  virtual ~GradientSink() = default;
  // To be filled entirely by launches on the compute queue, for one block.
  virtual VecView<float> open(Index block, Index offset, Index size) = 0;
  // All launches that fill it, for every block, are enqueued.
  virtual void close(Index offset, Index size) = 0;
};

// The whole space of each block, side by side.
class NodeSink final : public GradientSink {
 public:
  explicit NodeSink(std::span<const VecView<float>> nodes) : nodes_(nodes) {}
  VecView<float> open(Index block, Index offset, Index size) override { return nodes_[block].part(offset, size); }
  void close(Index, Index) override {}

 private:
  std::span<const VecView<float>> nodes_;
};

// Where the parameters are. Modules: 0 the embeddings, 1..L the layers, L + 1 the last norm and the head.
class Weights {
 public:
  virtual ~Weights() = default;
  // The following launches use this module's parameters, until it is released.
  virtual void fetch(int module) = 0;
  virtual void release(int module) = 0;
  // Of the module that was fetched last.
  virtual VecView<const float> of(const ParameterInfo& parameter) = 0;
};

// The flat space, always there.
class ReplicatedWeights final : public Weights {
 public:
  explicit ReplicatedWeights(Buffer& flat) : flat_(flat) {}
  void fetch(int) override {}
  void release(int) override {}
  VecView<const float> of(const ParameterInfo& p) override { return vector_of<const float>(flat_, p); }

 private:
  Buffer& flat_;
};

class Gpt2 {
 public:
  // Allocates the activations of `samples_max` samples; smaller micro-batches use their front.
  Gpt2(Device& device, const ModelPlan& plan, const Gpt2Parameters& parameters, Index samples_max);

  // To be filled before forward: (samples * T) input and target tokens.
  VecView<std::int32_t> inputs(Index samples) const { return {inputs_.get(), 0, samples * s_.T}; }
  VecView<std::int32_t> targets(Index samples) const { return {targets_.get(), 0, samples * s_.T}; }

  // Activations of all layers, and logits.
  void forward(Launcher& launch, Weights& weights, Index samples);
  // Loss of each token and of each sample; the logits become their own gradient, times `scale`.
  void loss(Launcher& launch, Index samples, float scale);
  // Gradients of every parameter and, times `scale`, the loss, of each block.
  void backward(Launcher& launch, Weights& weights, Index samples, float scale, std::span<const GradientBlock> blocks,
                GradientSink& sink);

 private:
  // One stretch of a pass: what every line of it needs.
  struct Pass {
    Launcher& launch;
    Weights& weights;
    Index samples;
    std::span<const GradientBlock> blocks;
    GradientSink* sink;
  };

  MatView<float> act(const BufferPtr& buffer, Index samples, Index cols, int layer = 0) const;
  VecView<float> row_values(const BufferPtr& buffer, Index samples, int layer) const;
  MatView<const float> weight(const Pass& p, const ParameterInfo& info) const {
    const VecView<const float> w = p.weights.of(info);
    return {w.buffer, w.offset, info.rows(), info.cols(), info.cols()};
  }
  VecView<const float> vector(const Pass& p, const ParameterInfo& info) const { return p.weights.of(info); }

  void layer_forward(const Pass& p, int l);
  MatView<float> raw_logits(Index samples) const {
    return act(parameters_.logit_scale() != nullptr ? raw_logits_ : logits_, samples, s_.V);
  }
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
  void linear_grad(const Pass& p, const ParameterInfo& w, const ParameterInfo* bias, bool column,
                   MatView<const float> x, MatView<const float> dy, Index weight_offset);
  void bias_grad(const Pass& p, const ParameterInfo& bias, MatView<const float> dy);
  void norm_grad(const Pass& p, const ParameterInfo& gamma, const ParameterInfo& beta, MatView<const float> dy,
                 MatView<const float> x, VecView<const float> mean, VecView<const float> rstd);

  Gpt2Shape s_;
  const Gpt2Parameters& parameters_;
  float eps_;
  Index samples_max_;
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
