// Gradients in fewer bits, block by block: what travels, what it stands for, and what it leaves out. The three add up
// exactly (docs/numerics.md#compression), so that what a step does not send can be added to the next one's gradient.
// Below: codes of 8 and 4 bits, of which what is left out is gone.
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
// values, added to their front; kept: as long as values. Either may be empty. Of a momentum, where one is given, with
// g = (values + second) * factor: (moment * moment_factor + g * gradient_factor) + kept, each product rounded.
struct OwedGradient {
  Vec<const float> values;
  Vec<const float> second;
  float factor = 1;
  Vec<const float> kept;
  Vec<const float> moment = {};
  float moment_factor = 0;
  float gradient_factor = 1;
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

// ---- factors of a matrix -------------------------------------------------------------------------------------------
// What PowerSGD needs beside products (docs/low-rank.md). Computes on the CPU only.

// out = what is to be sent, element by element.
void owe(Lane lane, const OwedGradient& owed, Vec<float> out);

// count[0] += finite elements whose rest is not what was owed minus their share of the sum, rounded to nearest.
void count_share_unconserved(Lane lane, const OwedGradient& owed, Vec<const float> sum, float share,
                             Vec<const float> rest, Vec<std::int64_t> count);

// ---- codes of few bits ----------------------------------------------------------------------------------------------
// By blocks of consecutive elements, with a scale in fp32 each: what ZeRO++ sends in place of weights
// (docs/quantised-weights.md) and of gradients (docs/quantised-gradients.md). Of a block of n elements x, with a most
// of 127 for codes of 8 bits and of 7 for codes of 4
//
//   scale = max |x| / most             NaN where an element is not finite
//   code  = x / scale                  rounded to nearest even, from -most to most; 0 where the scale is 0 or NaN
//   worth = code * scale               rounded to the type of the tensor
//
// and on the wire the scale comes first and the n codes after it: a byte each, or two to a byte, the earlier one in the
// low half.

// Planted mistakes.
enum class CodeSlip : std::uint8_t {
  none,
  one_scale,         // all blocks of a call have the scale of the largest element of them all
  cut_off,           // codes are rounded towards zero
  as_fp16,           // bf16 elements are read as if their bits were fp16 ones
  neighbours_scale,  // a sum takes each block apart with the scale of the block before it
  codes_summed,      // a sum adds up codes, and multiplies with the scale of the first part
  halves_swapped,    // a sum takes the high half of a byte for the earlier code
};

struct CodeForm {
  Index block = kBlock;  // elements; a power of two, at most kBlock
  CodeSlip slip = CodeSlip::none;
  int bits = 8;  // or 4
};

// Bytes of n elements whose blocks begin with the first: their codes, and 4 a block.
constexpr SEEKSIM_INLINE Index code_bytes(Index n, Index block, int bits = 8) {
  const Index whole = n / block, rest = n % block, scale = Index(sizeof(float));
  return whole * (scale + (block * bits + 7) / 8) + (rest > 0 ? scale + (rest * bits + 7) / 8 : 0);
}

// Runs of a tensor, ascending; blocks begin again with each. Vectors of elements begin with element `first`, at the
// beginning of a block, and those of bytes with byte `at`; a run's offset and at count from 0.
struct CodePart {
  std::span<const WireRun> runs;
  Index first = 0;
  Index at = 0;
};

// wire = the blocks of x. Computes on the CPU only, as all here do.
template <class T = float>
void quantise(Lane lane, CodeForm form, CodePart part, InVec<T> x, Vec<std::byte> wire);

// y = what the blocks on the wire are worth. Elements of y that are in no run stay as they are.
template <class T = float>
void dequantise(Lane lane, CodeForm form, CodePart part, Vec<const std::byte> wire, OutVec<T> y);

// y = what x is worth, without a wire; blocks begin again with each `segment` elements.
template <class T = float>
void through_codes(Lane lane, CodeForm form, Index segment, InVec<T> x, OutVec<T> y);

// The same in place, by runs: elements that are in none stay as they are.
void through_codes(Lane lane, CodeForm form, CodePart part, Vec<float> x);

// What wires are worth together. Wire k begins `stride` bytes after wire k - 1 and is leaf k of a tree (F3) of `count`
// leaves. sum = the root times `factor` (applied once, skipped when it is 1); elements in no run stay as they are.
struct CodeWires {
  Index count = 1;
  Index stride = 0;
};
void sum_codes(Lane lane, CodeForm form, CodePart part, CodeWires wires, Vec<const std::byte> bytes, Vec<float> sum,
               float factor = 1.0f);

}  // namespace seeksim::kernels
