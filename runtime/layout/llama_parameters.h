// What a Llama has: no biases, no positions to learn, and two pairs of tensors that Hugging Face keeps apart stored as
// one each, so that a way of tensor parallelism has contiguous rows: qkv_proj, key head by key head [q of its query
// heads | k | v], and gate_up_proj, slab by slab [gate | up]. weights.cpp takes them apart. With experts (a Mixtral), a
// router before them, and gate_up_proj and down_proj of all experts stored as one each, expert below expert; behind
// them a shared expert (a DeepSeek), stored as an mlp is. Parts are called by LayerPart: what does the same is called
// the same.
#pragma once

#include "runtime/layout/parameters.h"

namespace seeksim::runtime {

std::vector<ParameterInfo> llama_parameters(const ModelPlan& plan, bool decay_all);

}  // namespace seeksim::runtime
