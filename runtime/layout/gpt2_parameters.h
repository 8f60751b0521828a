// Sizes of a model, of either family, and what a layer of a GPT-2 has. A column-parallel weight is stored (out, in), a
// row-parallel one (in, out), and the rows of c_attn go head by head, [q | k | v] each, so that what tensor parallelism
// may split lies in contiguous rows. Hugging Face's layouts are made in weights.cpp.
#pragma once

#include "kernels/attention.h"
#include "runtime/layout/parameters.h"

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
  router_weight,  // before the experts, whose parts are c_fc_weight and mlp_proj_weight
  shared_fc_weight,
  shared_proj_weight,  // of the expert that every token goes to
  count_
};

// One mlp: F width inside, U columns that go into its activation (F, or 2F where a gate is among them).
struct MlpShape {
  Index F = 0, U = 0;
  // K-segments of sums over F and U.
  Index segment() const { return kernels::slab_size(F); }
  Index up_segment() const { return F > 0 ? U / F * segment() : 0; }
};

// In the letters that shapes use: V vocabulary, T context, C width, H heads, K key heads of G query heads each, D head
// size, Q = K (G + 2) D columns of q, k and v, F width inside the mlp, U columns that go into its activation (F, or 2F
// where a gate is among them), E experts, k of them for a token.
struct ModelShape {
  explicit ModelShape(const ModelPlan& plan);
  Index V, T, C, H, K, G, D, Q, F, U, E, k;  // without experts E is 0 and k 1
  int L;
  MlpShape dense;    // of a layer without experts
  MlpShape shared;   // of the expert that every token goes to; 0: there is none
  int first_routed;  // the first layer with experts; L: there is none
  bool routed(int l) const { return l >= first_routed; }
  // K-segments of sums over a dimension that tensor parallelism splits: the rows of one slab.
  Index vocab_segment() const { return kernels::slab_size(V); }
  Index heads_segment() const { return kernels::slab_size(K) * G * D; }
  Index qkv_segment() const { return kernels::slab_size(K) * (G + 2) * D; }
  Index mlp_segment() const { return kernels::slab_size(F); }
  Index up_segment() const { return U / F * mlp_segment(); }
  kernels::AttentionShape attention(Index samples) const {
    return {.samples = samples, .tokens = T, .heads = H, .head_dim = D, .group = G};
  }
};

std::vector<ParameterInfo> gpt2_parameters(const ModelPlan& plan, bool decay_all);

}  // namespace seeksim::runtime
