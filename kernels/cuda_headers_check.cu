// Compiles the text that host and device share under nvcc, instantiated in kernels, before there is a CUDA backend. The
// flags are those of NUMERICS.md; tests/kernels/ptx_test.cpp reads the generated PTX and accepts only float arithmetic
// that rounds to nearest by name.

#include "kernels/cast_body.h"
#include "kernels/math.h"
#include "kernels/optimizer_body.h"
#include "kernels/philox_body.h"
#include "kernels/scalar.h"

namespace seeksim::kernels {

__global__ void unary_check(const float* x, float* y, long n, int which) {
  const long i = blockIdx.x * static_cast<long>(blockDim.x) + threadIdx.x;
  if (i >= n) return;
  switch (which) {
    case 0:
      y[i] = math::exp<FloatOps>(x[i]);
      break;
    case 1:
      y[i] = math::tanh<FloatOps>(x[i]);
      break;
    case 2:
      y[i] = math::log<FloatOps>(x[i]);
      break;
    case 3:
      y[i] = math::inverse_sqrt<FloatOps>(x[i]);
      break;
    case 4:
      y[i] = math::gelu<FloatOps>(x[i]);
      break;
    case 5:
      y[i] = math::gelu_grad<FloatOps>(x[i]);
      break;
    case 6:
      y[i] = math::silu<FloatOps>(x[i]);
      break;
    default:
      y[i] = math::silu_grad<FloatOps>(x[i]);
      break;
  }
}

__global__ void cast_check(const float* x, std::uint16_t* b, std::uint16_t* h, float* back, long n) {
  const long i = blockIdx.x * static_cast<long>(blockDim.x) + threadIdx.x;
  if (i >= n) return;
  b[i] = static_cast<std::uint16_t>(cast::to_bf16<FloatOps>(x[i]));
  h[i] = static_cast<std::uint16_t>(cast::to_fp16<FloatOps>(x[i]));
  back[i] = FloatOps::add(cast::from_bf16<FloatOps>(b[i]), cast::from_fp16<FloatOps>(h[i]));
}

template <bool kDecay, bool kDecoupled>
__global__ void adamw_check(AdamWStep step, const float* grad, float* p, float* m, float* v, long n) {
  const long i = blockIdx.x * static_cast<long>(blockDim.x) + threadIdx.x;
  if (i < n) adamw_body<FloatOps, kDecay, kDecoupled>(adamw_lanes<FloatOps>(step), grad[i], p[i], m[i], v[i]);
}
template __global__ void adamw_check<false, false>(AdamWStep, const float*, float*, float*, float*, long);
template __global__ void adamw_check<true, false>(AdamWStep, const float*, float*, float*, float*, long);
template __global__ void adamw_check<true, true>(AdamWStep, const float*, float*, float*, float*, long);

// Parameters without masters: widened, moved, rounded; the two parts of adamw_body.
template <bool kDecay, bool kDecoupled>
__global__ void adamw_rounding_check(AdamWStep step, const std::uint16_t* grad, std::uint16_t* p, float* m, float* v,
                                     long n) {
  const long i = blockIdx.x * static_cast<long>(blockDim.x) + threadIdx.x;
  if (i >= n) return;
  const auto s = adamw_lanes<FloatOps>(step);
  const float before = cast::from_bf16<FloatOps>(p[i]);
  const float update =
      adamw_moments<FloatOps, kDecay, kDecoupled>(s, cast::from_fp16<FloatOps>(grad[i]), before, m[i], v[i]);
  const float after = adamw_applied<FloatOps, kDecay, kDecoupled>(s, update, before);
  p[i] = static_cast<std::uint16_t>(cast::to_bf16<FloatOps>(after));
}
template __global__ void adamw_rounding_check<true, true>(AdamWStep, const std::uint16_t*, std::uint16_t*, float*,
                                                          float*, long);

__global__ void random_check(float* z, std::uint32_t op, std::uint64_t key, float stddev) {
  const std::uint32_t block = blockIdx.x * blockDim.x + threadIdx.x;
  std::uint32_t c[4] = {block, 0, op, 0xffffffffU};
  philox_body<OneCounter>(c, static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32));
  for (int w = 0; w < 4; ++w) z[4L * block + w] = FloatOps::mul(math::normal_quantile<FloatOps>(c[w] >> 8), stddev);
}

}  // namespace seeksim::kernels
