#include "kernels/cast.h"

#include "kernels/check.h"
#include "kernels/isa/table.h"

namespace seeksim::kernels {

static_assert(sizeof(bf16) == 2 && sizeof(fp16) == 2);

void to_bf16(Lane, Vec<const float> x, Vec<bf16> y) {
  SEEKSIM_CHECK_EQ(x.n, y.n);
  elements().to_bf16(x.data, &y.data->bits, x.n);
}

void to_fp16(Lane, Vec<const float> x, Vec<fp16> y) {
  SEEKSIM_CHECK_EQ(x.n, y.n);
  elements().to_fp16(x.data, &y.data->bits, x.n);
}

void from_bf16(Lane, Vec<const bf16> x, Vec<float> y) {
  SEEKSIM_CHECK_EQ(x.n, y.n);
  elements().from_bf16(&x.data->bits, y.data, x.n);
}

void from_fp16(Lane, Vec<const fp16> x, Vec<float> y) {
  SEEKSIM_CHECK_EQ(x.n, y.n);
  elements().from_fp16(&x.data->bits, y.data, x.n);
}

}  // namespace seeksim::kernels
