// Dropout: each element is kept with probability 1 - rate and multiplied by 1 / (1 - rate), or becomes +0. Which ones
// is a pure function of (seed, step, sample of the step, place in the model, element of the sample): a mask is drawn
// wherever it is needed, again in backward, and never kept.
#pragma once

#include <cstdint>

#include "kernels/view.h"

namespace seeksim::kernels {

// Element e of a sample uses word number e % 64 / 16 of the Philox block whose counter is (e / 64 * 16 + e % 16,
// sample, op, step): 16 blocks give the words of 64 elements, in vectors. The element is kept if the uniform number of
// its word, (word >> 8) * 2^-24, is at least the rate (R7).
struct Dropout {
  std::uint64_t key = 0;           // the training seed
  std::uint32_t op = 0;            // the place in the model
  std::uint32_t step = 0;          // the training step
  std::uint32_t first_sample = 0;  // the sample of the step with which a tensor begins
  std::uint32_t threshold = 0;     // least upper 24 bits of a word that is kept; 0: everything is kept
  float factor = 1;                // multiplies what is kept

  SEEKSIM_INLINE bool on() const { return threshold > 0; }
};

// Threshold and factor of a rate in [0, 1); the counters are left to the caller.
Dropout dropout_of(double rate);

// y = dropout of x (samples * tokens, cols); element = (first_token + token) * cols + column. Rows may be a stretch of
// tokens of each sample that begins with first_token. y may be x.
// In 16 bits the product is rounded once, when it is stored.
template <class T = float>
void dropout(Lane lane, const Dropout& drop, Index tokens, InMat<T> x, OutMat<T> y, Index first_token = 0);

}  // namespace seeksim::kernels
