// Causal multi-head attention, forward and backward. A key head serves `group` consecutive query heads (1: each has its
// own; more: grouped-query attention). The row of qkv holds, key head by key head, [q of its query heads | k | v] of
// head_dim each, so that consecutive key heads are a contiguous slab. Masked keys are skipped, never multiplied by
// zero.
#pragma once

#include "kernels/dropout.h"
#include "kernels/view.h"

namespace seeksim::kernels {

struct AttentionShape {
  Index samples = 0;     // B
  Index tokens = 0;      // T
  Index heads = 0;       // H, of queries
  Index head_dim = 0;    // D
  Index first_head = 0;  // the number in the model of the first of these heads, where they are a slice
  Index group = 1;       // query heads of a key head

  constexpr SEEKSIM_INLINE Index key_heads() const { return heads / group; }
  constexpr SEEKSIM_INLINE Index group_columns() const { return (group + 2) * head_dim; }  // of qkv
};

// scores(i, j) = (F1 over D of q_i k_j) * scale for j <= i; probs = softmax over j <= i (max F5, sum F4);
// out (B*T, H*D) = F1 over keys j = 0..i of probs * v. scale = 1 / sqrt(D) as two roundings.
// probs (B*H*T, T): kept for backward; entries above the diagonal are +0.
// Tensors are stored as T (float, bf16, fp16). In 16 bits `out` is summed from the fp32 probabilities; those and `out`
// are rounded once, when they are stored. Backward sees the rounded ones.
// Dropout acts on what v is multiplied by; `probs` keeps the probabilities before it. The element number of the mask is
// (head * T + i) * T + j, where head is the number in the model.
template <class T = float>
void attention_forward(Lane lane, AttentionShape shape, InMat<T> qkv, OutMat<T> probs, OutMat<T> out,
                       const Dropout& drop = {});

// dqkv, as qkv, from dout (B*T, H*D). dP F1 over D; dot(dP, P) F4 over keys; dS = P * (dP - dot) * scale;
// dQ F1 over keys 0..i; dK, dV F1 over the group's heads in order and, in each, over queries i >= j ascending: one
// chain. scratch: (2*T, T) floats at least.
// With dropout, dP goes through the mask before it is used, and dV comes from the masked probabilities.
template <class T = float>
void attention_backward(Lane lane, AttentionShape shape, InMat<T> dout, InMat<T> qkv, InMat<T> probs,
                        Mat<float> scratch, OutMat<T> dqkv, const Dropout& drop = {});

}  // namespace seeksim::kernels
