// Between the flat canonical space and Hugging Face's GPT-2: names as in transformers' GPT2LMHeadModel without the
// prefix "transformer.", Conv1D matrices (in, out), c_attn's columns [all q | all k | all v]. GPT-2 has no scale on its
// logits: where the plan asks for one, the tensor "logit_scale" (1) is ours alone, and transformers will not know it.
#pragma once

#include <span>
#include <vector>

#include "runtime/observer.h"
#include "runtime/parameters.h"
#include "runtime/safetensors.h"

namespace seeksim::runtime {

// flat: at least parameters.size() floats.
std::vector<NamedTensor> to_hugging_face(const Parameters& parameters, const ModelPlan& plan,
                                         std::span<const float> flat);

// The same of trainable parameters only. flat: at least parameters.trainable_size() floats.
std::vector<NamedTensor> gradients_to_hugging_face(const Parameters& parameters, const ModelPlan& plan,
                                                   std::span<const float> flat);

// Fills flat. Accepts the prefix, the causal masks that old files carry, and a head equal to a tied wte. Throws
// std::runtime_error with every missing, unexpected, twice given or mis-shaped tensor, one a line.
void from_hugging_face(const Parameters& parameters, const ModelPlan& plan, const std::vector<TensorBytes>& tensors,
                       std::span<float> flat);

}  // namespace seeksim::runtime
