// Fused attention of a stretch of queries and a stretch of keys (ring attention): nodes of the sums of
// fused_attention.h, which are joined in any order and then give its bits.
//
// A sample is cut into chunks of 32 * 2^n tokens, so that a chunk is a node of each tree: of a row's over blocks of
// keys, and of a key's over blocks of queries. AttentionShape::tokens is the tokens of a chunk here; rows go by sample,
// then token of the chunk. A row of kv (B*T, K*2*D) holds [k | v] of each key head.
#pragma once

#include "kernels/fused_attention.h"

namespace seeksim::kernels {

struct FusedPlace {
  Index tokens = 0;  // of a whole sample, by which dropout numbers the probabilities
  Index query = 0;   // the first ones of the chunks, in the sample
  Index key = 0;
  bool before = false;  // the keys stand before all queries; else they are the same chunk, and the mask is causal
};

// Columns of a row's state: the sum of e * v, then the maximum and the sum of e.
constexpr Index fused_state_columns(const AttentionShape& shape) { return shape.head_dim + 2; }

// state (B*H*T, D+2): each row's node over the blocks of the chunk of keys.
template <class T = float>
void fused_part_forward(Lane lane, AttentionShape shape, FusedPlace place, InMat<T> qkv, InMat<T> kv, Mat<float> state,
                        const Dropout& drop = {});

// older = older and newer, joined; both (rows, D+2).
void fused_join(Lane lane, Mat<const float> newer, Mat<float> older);

// At the root: stats (B*H*T, 2) and out (B*T, H*D) of the forward pass.
template <class T = float>
void fused_root(Lane lane, AttentionShape shape, Mat<const float> state, Mat<float> stats, OutMat<T> out);

// dq (B*T, H*D): the node over the blocks of the chunk of keys. dkv, as kv: each key's node over the blocks of the
// chunk of queries. Both in fp32, to be added by their trees. dout, out (B*T, H*D) and stats are the queries'.
template <class T = float>
void fused_part_backward(Lane lane, AttentionShape shape, FusedPlace place, InMat<T> dout, InMat<T> qkv, InMat<T> kv,
                         InMat<T> out, Mat<const float> stats, Mat<float> dq, Mat<float> dkv, const Dropout& drop = {});

}  // namespace seeksim::kernels
