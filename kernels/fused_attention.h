// Causal multi-head attention that keeps no probabilities: two numbers a row are kept, and backward computes the
// probabilities again. Inputs, heads and groups as in attention.h. Its sums are not those of attention.h, and so its
// bits are its own; they depend on the fixed size of a block and on nothing else.
#pragma once

#include "kernels/attention.h"
#include "kernels/dropout.h"
#include "kernels/view.h"

namespace seeksim::kernels {

constexpr Index kFusedBlock = 32;  // keys, or queries, of a block; part of the contract

// Row i sees the blocks of keys 0 .. i/32, the last one up to key i. Of a block: m = the largest score (F5), e = exp of
// score - m, l = sum of e (F4), o = F1 over its keys of e * v. Blocks are joined by the tree over their numbers (F3);
// where that adds, older and newer are joined: m = the larger m; a, b = exp(m_older - m), exp(m_newer - m);
// l = fma(l_newer, b, l_older * a); o likewise. At the root out (B*T, H*D) = o * (1 / l), rounded once.
// stats (B*H*T, 2): m and 1 / l of each row.
// Scores and scale as in attention.h. Dropout acts on what v is multiplied by, with the same masks as there.
template <class T = float>
void fused_attention_forward(Lane lane, AttentionShape shape, InMat<T> qkv, Mat<float> stats, OutMat<T> out,
                             const Dropout& drop = {});

// dqkv, as qkv, from dout (B*T, H*D), and out and stats of the forward pass. P = exp(score - m) * (1 / l);
// delta = dot(dout, out) of a row (F4); dP F1 over D; dS = P * (dP - delta) * scale. dQ: F1 over the keys of a block,
// F3 over blocks. dK, dV: in a block of queries F1 over the group's heads in order and, in each, over queries i >= j;
// F3 over the blocks j/32 and up, by their numbers.
// With dropout, dP goes through the mask before it is used, and dV comes from the masked probabilities.
template <class T = float>
void fused_attention_backward(Lane lane, AttentionShape shape, InMat<T> dout, InMat<T> qkv, InMat<T> out,
                              Mat<const float> stats, OutMat<T> dqkv, const Dropout& drop = {});

// ---- chunks --------------------------------------------------------------------------------------------------------

// Fused attention of a chunk of queries and a chunk of keys (ring attention): nodes of the sums above, which are joined
// in any order and then give their bits.
//
// A sample is cut into chunks of 32 * 2^n tokens, so that a chunk is a node of each tree: of a row's over blocks of
// keys, and of a key's over blocks of queries. AttentionShape::tokens is the tokens of a chunk here; rows go by sample,
// then token of the chunk. A row of kv (B*T, K*2*D) holds [k | v] of each key head.

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
