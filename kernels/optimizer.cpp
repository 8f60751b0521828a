#include "kernels/optimizer.h"

#include "kernels/check.h"
#include "kernels/isa/table.h"

namespace seeksim::kernels {

void adamw(Lane, const AdamWStep& step, Vec<const float> grad, Vec<float> param, Vec<float> m, Vec<float> v) {
  SEEKSIM_CHECK_EQ(grad.n, param.n);
  SEEKSIM_CHECK_EQ(m.n, param.n);
  SEEKSIM_CHECK_EQ(v.n, param.n);
  elements().adamw(step, grad.data, param.data, m.data, v.data, param.n);
}

}  // namespace seeksim::kernels
