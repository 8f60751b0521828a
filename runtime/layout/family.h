// ModelFamily: models of one's own. GPT-2 and Llama are built in; a program that links seeksim may add others, and all
// ZeRO stages, schedules of micro-batches, offload, recovery and oracles work on them as on those.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/layout/parameters.h"
#include "runtime/plan/plan.h"

namespace seeksim::runtime {

class Device;      // seams/seams.h
class Model;       // model/model.h: include it where you make one
class TensorAxis;  // comm/tensor_parallel.h

// What has to hold, so that the result depends on no layout:
// - Sums over samples are made block by block (GradientBlock), each block a node of the tree: kernels/ has them. Sums
//   over rows inside a sample are kernels' forms. Never sum by hand in an order that follows the micro-batch.
// - Each pass fetches and releases every module of its piece in turn, also one of which it uses nothing: forward from
//   the first to the last, backward from the last to the first. What is gathered ahead relies on it, and asserts it.
// - A launch calls kernels of kernels/ with the lane that it is given, and touches no memory itself: then it runs on a
//   GPU too.
// - Randomness is a function of (seed, step, first_sample + i, place), never of what was drawn before.
// - Gradients are opened and closed from the end of the gradient space to its front (parameters.h): of a tied model the
//   head's share (head_gradient_offset()) first, then module after module backwards, each in reverse order; the loss
//   (loss_offset()) before all of them. Frozen parameters have none.
class ModelFamily {
 public:
  virtual ~ModelFamily() = default;

  // A whole model's parameters in registration order, as ParameterList makes them. Names must outlive every run.
  // Module 0 has EmbeddingPart::tokens (V, C), module layers + 1 HeadPart::head (V, C) unless the plan is tied.
  virtual std::vector<ParameterInfo> parameters(const ModelPlan& plan, bool decay_all) const = 0;

  // As runtime::make_models: `count` models that hold piece number `piece`, with room for `samples_max` samples.
  virtual std::vector<std::unique_ptr<Model>> models(Device& device, const TrainPlan& plan,
                                                     const Parameters& parameters, std::size_t piece, Index samples_max,
                                                     int count, TensorAxis* tensor) const = 0;

  // What the plan asks for and a model of this family cannot do (tensor parallelism, 16-bit types, recomputation, whose
  // backward fetches modules once more, a backward in two parts); empty: it can do all. The loader refuses the scenario
  // with these words.
  virtual std::string problem(const TrainPlan& plan) const {
    static_cast<void>(plan);
    return {};
  }
};

}  // namespace seeksim::runtime
