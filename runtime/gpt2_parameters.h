// GPT-2's sizes and what a layer of it has. A column-parallel weight is stored (out, in), a row-parallel one (in, out),
// and the rows of c_attn go head by head, [q | k | v] each, so that what tensor parallelism may split lies in
// contiguous rows. Hugging Face's layouts are made in weights.cpp.
#pragma once

#include "runtime/parameters.h"

namespace seeksim::runtime {

// The parts of a layer in registration order.
enum class LayerPart : std::uint8_t {
  ln_1_weight,
  ln_1_bias,
  c_attn_weight,
  c_attn_bias,
  c_proj_weight,
  c_proj_bias,
  ln_2_weight,
  ln_2_bias,
  c_fc_weight,
  c_fc_bias,
  mlp_proj_weight,
  mlp_proj_bias,
  count_
};

// Sizes of a model, in the letters that shapes use: V vocabulary, T context, C width, H heads, D head size, F = 4C.
struct Gpt2Shape {
  explicit Gpt2Shape(const ModelPlan& plan);
  Index V, T, C, H, D, F;
  int L;
  // K-segments of sums over a dimension that tensor parallelism splits: the rows of one slab.
  Index vocab_segment() const { return kernels::slab_size(V); }
  Index heads_segment() const { return kernels::slab_size(H) * D; }
  Index qkv_segment() const { return kernels::slab_size(H) * 3 * D; }
  Index mlp_segment() const { return kernels::slab_size(F); }
};

std::vector<ParameterInfo> gpt2_parameters(const ModelPlan& plan, bool decay_all);

}  // namespace seeksim::runtime
