#include "kernels/norms.h"

#include "kernels/check.h"
#include "kernels/isa/table.h"

namespace seeksim::kernels {

void norm2_blocks(Lane, Vec<const float> x, Vec<float> out) {
  SEEKSIM_CHECK_EQ(out.n, (x.n + kBlock - 1) / kBlock);
  for (Index b = 0; b < out.n; ++b) {
    const Index begin = b * kBlock, left = x.n - begin;
    out[b] = elements().norm2(x.data + begin, left < kBlock ? left : kBlock);
  }
}

void count_nonfinite(Lane, Vec<const float> x, Vec<std::int64_t> out) {
  SEEKSIM_CHECK(out.n >= 1, "nowhere to put the count");
  out[0] += elements().count_nonfinite(x.data, x.n);
}

}  // namespace seeksim::kernels
