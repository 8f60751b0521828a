// Model: what the trainer asks of a family of models, whatever its layers are and in whatever type it computes; and the
// two things that it hands to one: where the parameters are, and where the gradients go.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "runtime/launch/any_vec.h"
#include "runtime/launch/launcher.h"
#include "runtime/layout/parameters.h"
#include "runtime/numbers/fp8_amaxes.h"
#include "runtime/seams/seams.h"

namespace seeksim::runtime {

// A document of a sample that holds several.
struct PackedDocument {
  Index first = 0;  // token of the micro-batch
  Index tokens = 0;
  bool ends = true;  // its last token has no target: what follows is another document
};

// A micro-batch: what a pass is about, and all that its dropout depends on.
struct Batch {
  Index samples = 0;
  Index first_sample = 0;  // of the step
  std::int64_t step = 0;
  std::uint64_t seed = 0;       // of the training
  bool trains = true;           // false: nothing is dropped
  float loss_scale = 0;         // that loss() multiplies gradients by; losses of a layer are so on every stage
  Index learned = 0;            // tokens of each sample that have a loss, the first ones; 0: all
  std::int32_t separator = -1;  // the token that ends a document; -1: each sample is one
  const std::vector<PackedDocument>* documents = nullptr;  // of all samples, in order; null: each is one document
  Fp8Pass fp8 = {};                                        // how operands of linear layers are cast
  Buffer* choices = nullptr;  // (micro-batches, layers, 2 E): of the step's experts; null: they are not counted
};

// Samples [first, first + count) of a micro-batch that form one tree node.
struct GradientBlock {
  Index first = 0;
  Index count = 0;
};

// Where a backward pass puts gradients, in fp32: ranges of the gradient space (Parameters), from its end to its
// front.
class GradientSink {
 public:
  virtual ~GradientSink() = default;
  // To be filled entirely by launches on the compute queue, for one block.
  virtual VecView<float> open(Index block, Index offset, Index size) = 0;
  // All launches that fill it, for every block, are enqueued.
  virtual void close(Index offset, Index size) = 0;
};

// All gradients of a piece, of each block, side by side. begin: of the gradient space, where the piece's begin.
class NodeSink final : public GradientSink {
 public:
  explicit NodeSink(std::span<const VecView<float>> nodes, Index begin = 0) : nodes_(nodes), begin_(begin) {}
  VecView<float> open(Index block, Index offset, Index size) override {
    return nodes_[block].part(offset - begin_, size);
  }
  void close(Index, Index) override {}

 private:
  std::span<const VecView<float>> nodes_;
  Index begin_;
};

// Where the parameters are, in the type to compute in. Modules: 0 the embeddings, 1..L the layers, L + 1 the last norm
// and the head.
class Weights {
 public:
  virtual ~Weights() = default;
  // The following launches use this module's parameters, until it is released.
  virtual void fetch(int module) = 0;
  virtual void release(int module) = 0;
  // The weights of a parameter of the module that was fetched last.
  virtual AnyVec of(const ParameterInfo& parameter) = 0;
};

// The flat space, always there.
class ReplicatedWeights final : public Weights {
 public:
  explicit ReplicatedWeights(AnyVec flat) : flat_(flat) {}
  void fetch(int) override {}
  void release(int) override {}
  AnyVec of(const ParameterInfo& p) override { return flat_.part(p.offset, p.size); }

 private:
  AnyVec flat_;
};

class ContextGroup;
class ExpertGroup;
class TensorAxis;

// A piece of a model (all of it, where there is no pipeline) with room for the activations of one micro-batch. Without
// the embeddings it begins with arriving(), without the head it ends with leaving().
class Model {
 public:
  virtual ~Model() = default;

  // To be filled before forward: (samples * T) input tokens where the embeddings are, target tokens where the head is;
  // else empty.
  virtual VecView<std::int32_t> inputs(Index samples) const = 0;
  virtual VecView<std::int32_t> targets(Index samples) const = 0;
  // The residual stream between pieces, (samples * T, C): into this one, to be filled before forward; out of it.
  virtual AnyVec arriving(Index samples) = 0;
  virtual AnyVec leaving(Index samples) = 0;
  // What goes along with it: losses of tokens that layers before the head have, in fp32, to be added where it is. Those
  // of all layers before this piece; of its own too. Empty where there are none.
  virtual VecView<float> arriving_losses(Index /*samples*/) { return {}; }
  virtual VecView<float> leaving_losses(Index /*samples*/) { return {}; }
  // The gradient of leaving(), to be filled before backward, which makes it that of arriving().
  virtual AnyVec gradient_in(Index samples) = 0;
  virtual AnyVec gradient_out(Index samples) = 0;

  // Activations of all layers, and logits.
  virtual void forward(Launcher& launch, Weights& weights, const Batch& batch) = 0;
  // Loss of each token and of each sample; the logits become their own gradient, times `scale`.
  virtual void loss(Launcher& launch, Index samples, float scale) = 0;
  // Of loss(), in fp32, where the head is. A family that has none cannot be evaluated between steps.
  virtual VecView<const float> sample_losses(Index /*samples*/) const { return {}; }
  // Gradients of every parameter and, times `loss_factor`, the loss, of each block.
  virtual void backward(Launcher& launch, Weights& weights, const Batch& batch, float loss_factor,
                        std::span<const GradientBlock> blocks, GradientSink& sink) = 0;
  // The same in two parts, for a plan whose schedule is zero_bubble: the gradient of the piece's input, then those of
  // its parameters, any time later.
  virtual void backward_input(Launcher& launch, Weights& weights, const Batch& batch) = 0;
  virtual void backward_weight(Launcher& launch, Weights& weights, const Batch& batch, float loss_factor,
                               std::span<const GradientBlock> blocks, GradientSink& sink) = 0;
};

// `count` of them for piece number `piece` of the rank's parameters, which share what needs no keeping. Allocates the
// activations of `samples_max` samples; smaller micro-batches use their front. Parameters and activations are held in
// the plan's type to compute in; arithmetic inside an operation, sums over rows and gradients of parameters are fp32.
// tensor: what the ways exchange through, where the parameters are those of one of several ways. group: what goes to
// and from experts of other ranks goes through it. context: what ranks with other tokens of the same samples exchange.
std::vector<std::unique_ptr<Model>> make_models(Device& device, const TrainPlan& plan, const Parameters& parameters,
                                                std::size_t piece, Index samples_max, int count,
                                                TensorAxis* tensor = nullptr, ExpertGroup* group = nullptr,
                                                ContextGroup* context = nullptr);

}  // namespace seeksim::runtime
