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

// Cross-entropy over a slice of the vocabulary, in stages. Between them the slices' owners exchange a few floats a row.
// Columns [first, first + logits.cols) of `vocabulary`, whole segments of slab_size(vocabulary); a slice may be empty.
//   slice_maxima -> max_over_ways (slabs.h) -> slice_sums -> add_ways -> slice_cross_entropy
// and at_target goes through select_rows. Rows and shapes as above.
struct VocabularySlice {
  Index vocabulary = 0;
  Index first = 0;
};

// maxima (R): the maximum of each row of the slice (F5); -infinity where the slice is empty. at_target (R): the logit
// of the target where the slice has it, else a NaN: it is selected from its owner, never added.
template <class T = float>
void slice_maxima(Lane lane, InMat<T> logits, VocabularySlice slice, Vec<const std::int32_t> targets, Vec<float> maxima,
                  Vec<float> at_target);

// sums (R): the tree node over the slice's segments of sum exp(logit - maxima), where maxima are those of whole rows.
// A NaN where the slice is empty.
template <class T = float>
void slice_sums(Lane lane, InMat<T> logits, VocabularySlice slice, Vec<const float> maxima, Vec<float> sums);

// losses (R), and the slice's columns of dlogits, from maxima, sums and at_target of whole rows. dlogits may be logits.
template <class T = float>
void slice_cross_entropy(Lane lane, InMat<T> logits, VocabularySlice slice, Vec<const std::int32_t> targets,
                         float scale, Vec<const float> maxima, Vec<const float> sums, Vec<const float> at_target,
                         Vec<float> losses, OutMat<T> dlogits);

// out (samples): F3 over the tokens of each sample. losses (samples * tokens).
void sample_losses(Lane lane, Vec<const float> losses, Index tokens, Vec<float> out);

}  // namespace seeksim::kernels
