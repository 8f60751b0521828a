// Causal multi-head attention, forward and backward. The row of qkv holds, head by head, [q | k | v] of head_dim each,
// so that a contiguous group of heads is a contiguous slab. Masked keys are skipped, never multiplied by zero.
#pragma once

#include "kernels/view.h"

namespace seeksim::kernels {

struct AttentionShape {
  Index samples = 0;   // B
  Index tokens = 0;    // T
  Index heads = 0;     // H
  Index head_dim = 0;  // D
};

// scores(i, j) = (F1 over D of q_i k_j) * scale for j <= i; probs = softmax over j <= i (max F5, sum F4);
// out (B*T, H*D) = F1 over keys j = 0..i of probs * v. scale = 1 / sqrt(D) as two roundings.
// probs (B*H*T, T): kept for backward; entries above the diagonal are +0.
void attention_forward(Lane lane, AttentionShape shape, Mat<const float> qkv, Mat<float> probs, Mat<float> out);

// dqkv (B*T, H*3*D) from dout (B*T, H*D). dP F1 over D; dot(dP, P) F4 over keys; dS = P * (dP - dot) * scale;
// dQ F1 over keys 0..i; dK, dV F1 over queries i >= j ascending. scratch: (2*T, T) floats at least.
void attention_backward(Lane lane, AttentionShape shape, Mat<const float> dout, Mat<const float> qkv,
                        Mat<const float> probs, Mat<float> scratch, Mat<float> dqkv);

}  // namespace seeksim::kernels
