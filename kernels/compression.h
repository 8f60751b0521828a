// Gradients in fewer bits, block by block: what travels, what it stands for, and what it leaves out. The three add up
// exactly (docs/numerics.md#compression), so that what a step does not send can be added to the next one's gradient.
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

}  // namespace seeksim::kernels
