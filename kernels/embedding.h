// Token and position embeddings. Tokens are int32 indices below the vocabulary size (asserted). Tables, x and dx are
// stored as T (float, bf16, fp16); gradients of the tables are floats.
#pragma once

#include "kernels/view.h"

namespace seeksim::kernels {

// x (R, C): x[r] = wte[tokens[r]] + wpe[r % tokens_per_sample]. Where wpe has no data: x[r] = wte[tokens[r]].
template <class T = float>
void embedding_forward(Lane lane, Vec<const std::int32_t> tokens, Index tokens_per_sample, InMat<T> wte, InMat<T> wpe,
                       OutMat<T> x);

// As above where wte holds rows [first, first + wte.rows) of `vocabulary`. Rows of x whose tokens it lacks become NaNs:
// they are selected from the rank that has them (select_rows in slabs.h), never added.
template <class T = float>
void embedding_forward_slice(Lane lane, Vec<const std::int32_t> tokens, Index tokens_per_sample, Index vocabulary,
                             Index first, InMat<T> wte, InMat<T> wpe, OutMat<T> x);

// dwte (V, C): the tree node of R / tokens_per_sample consecutive samples; in a sample the chain runs over positions.
// Rows that no token names become +0.
template <class T = float>
void embedding_backward(Lane lane, Vec<const std::int32_t> tokens, Index tokens_per_sample, InMat<T> dx,
                        Mat<float> dwte);

// Rows [first, first + dwte.rows) of the same, out of `vocabulary`.
template <class T = float>
void embedding_backward_slice(Lane lane, Vec<const std::int32_t> tokens, Index tokens_per_sample, Index vocabulary,
                              Index first, InMat<T> dx, Mat<float> dwte);

// If dx holds the same stretch of tokens of each sample, dwpe holds those tokens' positions.
// dwpe (context, C): row t gets the tree over samples of (+0 + dx[s, t]); rows past tokens_per_sample become +0.
template <class T = float>
void position_backward(Lane lane, InMat<T> dx, Index tokens_per_sample, Mat<float> dwpe);

}  // namespace seeksim::kernels
