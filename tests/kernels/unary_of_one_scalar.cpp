#include "kernels/math.h"
#include "tests/kernels/unary_of_one.h"

namespace seeksim::kernels::test {

float unary_of_one(Unary f, float x) {
  switch (f) {
    case Unary::exp:
      return math::exp<FloatOps>(x);
    case Unary::tanh:
      return math::tanh<FloatOps>(x);
    case Unary::log:
      return math::log<FloatOps>(x);
    case Unary::inverse_sqrt:
      return math::inverse_sqrt<FloatOps>(x);
    case Unary::gelu:
      return math::gelu<FloatOps>(x);
    case Unary::gelu_grad:
      return math::gelu_grad<FloatOps>(x);
    case Unary::silu:
      return math::silu<FloatOps>(x);
    case Unary::silu_grad:
      return math::silu_grad<FloatOps>(x);
  }
  return 0;
}

}  // namespace seeksim::kernels::test
