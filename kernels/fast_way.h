// How `fast` arithmetic computes (fast.h), as the instruction sets' kernels see it.
#pragma once

#include <cstdint>

namespace seeksim::kernels {

// Planted mistakes that a vendor's kernel could make, so that the bound can be seen to notice them.
enum class FastSlip : std::uint8_t {
  none,
  last_k_left_out,  // products leave out the last k of each tile of K
  sums_in_bf16,     // products accumulate in bf16
  ring_in_bf16,     // what goes round the ring is rounded to bf16 at each hop
};

struct FastWay {
  bool tf32 = false;  // operands of fp32 products are rounded to 10 bits behind the point
  FastSlip slip = FastSlip::none;
};

}  // namespace seeksim::kernels
