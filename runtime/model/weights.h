// Between the flat canonical space and Hugging Face's files. GPT-2: names as in transformers' GPT2LMHeadModel without
// the prefix "transformer.", Conv1D matrices (in, out), c_attn's columns [all q | all k | all v]. Llama: names as in
// LlamaForCausalLM, matrices (out, in); our qkv_proj is their q_proj, k_proj and v_proj, our gate_up_proj their
// gate_proj and up_proj. A Llama with experts: as in MixtralForCausalLM, whose experts.N.w1, w3 and w2 are
// gate, up and down. Neither has a scale on its logits: where the plan asks for one, the tensor "logit_scale" (1)
// is ours alone, and transformers will not know it.
#pragma once

#include <span>
#include <vector>

#include "runtime/files/named_tensor.h"
#include "runtime/files/safetensors.h"
#include "runtime/layout/parameters.h"

namespace seeksim::runtime {

// flat: at least parameters.size() floats.
std::vector<NamedTensor> to_hugging_face(const Parameters& parameters, const ModelPlan& plan,
                                         std::span<const float> flat);

// The same of trainable parameters only. flat: at least parameters.trainable_size() floats.
std::vector<NamedTensor> gradients_to_hugging_face(const Parameters& parameters, const ModelPlan& plan,
                                                   std::span<const float> flat);

// Fills flat. Widens F16 and BF16. Accepts the prefix, the constants that old files carry, and a head equal to a tied
// embedding. Throws std::runtime_error with every missing, unexpected, twice given or mis-shaped tensor, one a line.
void from_hugging_face(const Parameters& parameters, const ModelPlan& plan, const std::vector<TensorBytes>& tensors,
                       std::span<float> flat);

}  // namespace seeksim::runtime
