// Gradients in fewer bits, block by block: what travels, what it stands for, and what it leaves out. The three add up
// exactly (docs/numerics.md#compression), so that what a step does not send can be added to the next one's gradient.
// Below: weights in 8 bits, of which what is left out is gone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/view.h"

namespace seeksim::kernels {

enum class Wire : std::uint8_t {
  fp16,
  bf16,
  int8,  // multiples of a power of two, a block's own
  sign,  // plus or minus the mean magnitude of the block
  top,   // the largest elements as they are, the others not at all
};

struct WireForm {
  Wire wire = Wire::bf16;
  int top = 0;  // how many elements of a block are sent, where only the largest are
};

// Elements [offset, offset + n) of a gradient: blocks of kBlock elements, the last one shorter where n is no multiple.
// They take wire_bytes(form, n) from byte `at` on.
struct WireRun {
  Index offset = 0;
  Index n = 0;
  Index at = 0;
};

// Bytes of a run of n elements: a multiple of 4 for each block.
Index wire_bytes(WireForm form, Index n);

// What is to be sent of a gradient: (values + second) * factor + kept, in that order of rounding. second: shorter than
// values, added to their front; kept: as long as values. Either may be empty.
struct OwedGradient {
  Vec<const float> values;
  Vec<const float> second;
  float factor = 1;
  Vec<const float> kept;
};

// wire = the runs in `form`; rest = what is owed and not sent, exactly. A block with a value that is not finite, or
// none in `form`, is not finite where it arrives either; its rest is worth nothing. Computes on the CPU only.
void compress(Lane lane, WireForm form, std::span<const WireRun> runs, const OwedGradient& owed, Vec<std::byte> wire,
              Vec<float> rest);

// values = what the runs stand for. wire and values begin where the first run does.
void decompress(Lane lane, WireForm form, std::span<const WireRun> runs, Vec<const std::byte> wire, Vec<float> values);

// count[0] = finite elements of which what was sent and the rest are not, exactly, what was owed.
void count_unconserved(Lane lane, WireForm form, std::span<const WireRun> runs, const OwedGradient& owed,
                       Vec<const std::byte> wire, Vec<const float> rest, Vec<std::int64_t> count);

// Where gradients come late: to[i] = come[i], or 0 where nothing comes (come is empty); but NaN where to[i] is not
// finite, so that a step whose own gradient is not finite is skipped, whatever it would apply. Computes on the CPU
// only.
void replace_finite(Lane lane, Vec<const float> come, Vec<float> to);

// ---- weights in 8 bits ---------------------------------------------------------------------------------------------
// By blocks of consecutive elements, with a scale in fp32 each: what ZeRO++ sends in place of weights
// (docs/quantised-weights.md). Of a block of n elements x
//
//   scale = max |x| / 127              NaN where an element is not finite
//   code  = x / scale                  rounded to nearest even, from -127 to 127; 0 where the scale is 0 or NaN
//   worth = code * scale               rounded to the type of the tensor
//
// and on the wire the scale comes first and the n codes, a byte each, after it.

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
