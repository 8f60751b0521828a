// Tensors in 8 bits by blocks of consecutive elements, with a scale in fp32 each: what ZeRO++ sends in place of weights
// (docs/quantised-weights.md). Of a block of n elements x
//
//   scale = max |x| / 127              NaN where an element is not finite
//   code  = x / scale                  rounded to nearest even, from -127 to 127; 0 where the scale is 0 or NaN
//   worth = code * scale               rounded to the type of the tensor
//
// and on the wire the scale comes first and the n codes, a byte each, after it.
#pragma once

#include <cstddef>
#include <span>

#include "kernels/compression.h"
#include "kernels/view.h"

namespace seeksim::kernels {

// Planted mistakes.
enum class Int8Slip : std::uint8_t {
  none,
  one_scale,  // all blocks of a call have the scale of the largest element of them all
  cut_off,    // codes are rounded towards zero
  as_fp16,    // bf16 elements are read as if their bits were fp16 ones
};

struct Int8Form {
  Index block = kBlock;  // elements; a power of two, at most kBlock
  Int8Slip slip = Int8Slip::none;
};

// Bytes of n elements whose blocks begin with the first: n and 4 for each block.
constexpr SEEKSIM_INLINE Index int8_bytes(Index n, Index block) {
  return n + Index(sizeof(float)) * ((n + block - 1) / block);
}

// Runs of a tensor, ascending; blocks begin again with each. Vectors of elements begin with element `first`, at the
// beginning of a block, and those of bytes with byte `at`; a run's offset and at count from 0.
struct Int8Part {
  std::span<const WireRun> runs;
  Index first = 0;
  Index at = 0;
};

// wire = the blocks of x. Computes on the CPU only, as all here do.
template <class T = float>
void quantise(Lane lane, Int8Form form, Int8Part part, InVec<T> x, Vec<std::byte> wire);

// y = what the blocks on the wire are worth. Elements of y that are in no run stay as they are.
template <class T = float>
void dequantise(Lane lane, Int8Form form, Int8Part part, Vec<const std::byte> wire, OutVec<T> y);

// y = what x is worth, without a wire; blocks begin again with each `segment` elements.
template <class T = float>
void through_int8(Lane lane, Int8Form form, Index segment, InVec<T> x, OutVec<T> y);

}  // namespace seeksim::kernels
