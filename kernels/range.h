// A summary of a tensor's values, for the range log and for the report on where the first non-finite value was born.
#pragma once

#include "kernels/view.h"

namespace seeksim::kernels {

// Minimum, maximum and mean are those of the finite elements; -0 counts as +0.
struct TensorRange {
  float min = __builtin_inff();  // +inf and -inf when no element is finite
  float max = -__builtin_inff();
  // Sum of the finite elements divided by their number; +0 when there are none. The sum is F4 in each block of 1024
  // elements of a row (others count as +0), then F3 over the blocks, row by row.
  float mean = 0;
  Index n = 0;
  Index zeros = 0;
  Index subnormals = 0;  // subnormal in the type in which the tensor is stored
  Index infinities = 0;
  Index nans = 0;
  Index first_nonfinite = -1;  // the lowest row * cols + column; -1: all are finite
};

// out[0] = range of x, whose elements are stored as T: float, bf16 or fp16.
template <class T = float>
void range(Lane lane, InMat<T> x, Vec<TensorRange> out);

// out[0] = the lowest row * cols + column of an element that is NaN or infinite, -1 if there is none (F5).
template <class T = float>
void first_nonfinite(Lane lane, InMat<T> x, Vec<std::int64_t> out);

}  // namespace seeksim::kernels
