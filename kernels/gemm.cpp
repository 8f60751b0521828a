#include "kernels/gemm.h"

#include "kernels/check.h"
#include "kernels/isa/table.h"

namespace seeksim::kernels {

void gemm(Lane, Trans ta, Trans tb, Mat<const float> a, Mat<const float> b, Mat<float> c, Index segment,
          Vec<const float> bias) {
  const bool a_flipped = ta == Trans::yes, b_flipped = tb == Trans::yes;
  SEEKSIM_CHECK_EQ(a_flipped ? a.cols : a.rows, c.rows);
  SEEKSIM_CHECK_EQ(b_flipped ? b.rows : b.cols, c.cols);
  SEEKSIM_CHECK_EQ(a_flipped ? a.rows : a.cols, b_flipped ? b.cols : b.rows);
  SEEKSIM_CHECK(a.stride >= a.cols && b.stride >= b.cols && c.stride >= c.cols, "strides %lld %lld %lld",
                static_cast<long long>(a.stride), static_cast<long long>(b.stride), static_cast<long long>(c.stride));
  SEEKSIM_CHECK(segment >= 0, "segment %lld", static_cast<long long>(segment));
  if (bias.n > 0) SEEKSIM_CHECK_EQ(bias.n, c.cols);
  products().gemm(a_flipped, b_flipped, a, b, c, segment, bias.n > 0 ? bias.data : nullptr);
}

}  // namespace seeksim::kernels
