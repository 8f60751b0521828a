// Softmax cross-entropy over the vocabulary, per token. The row sum is F4 inside each of 8 fixed vocabulary segments of
// ceil(V / 8), then F3 over the segments, so that a split vocabulary gives the same bits.
#pragma once

#include "kernels/view.h"

namespace seeksim::kernels {

// losses (R): log(sum exp(logit - max)) + max - logit[target]. When dlogits has data (may be logits itself):
// dlogits (R, V) = (softmax - onehot(target)) * scale. `scale` carries the loss scale and 2^-ceil(log2(tokens of the
// step)). Logits and their gradient are stored as T (float, bf16, fp16); what overflows T becomes an infinity there.
template <class T = float>
void softmax_cross_entropy(Lane lane, InMat<T> logits, Vec<const std::int32_t> targets, float scale, Vec<float> losses,
                           OutMat<T> dlogits);

// out (samples): F3 over the tokens of each sample. losses (samples * tokens).
void sample_losses(Lane lane, Vec<const float> losses, Index tokens, Vec<float> out);

}  // namespace seeksim::kernels
