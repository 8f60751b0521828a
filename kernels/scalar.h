// The only float operations that the contract knows (docs/numerics.md). Each rounds once, to nearest even, and is
// written so that neither a host compiler nor nvcc may fuse or reorder it. `FloatOps` is one lane of them; isa/simd.inl
// has the same names for whole vectors. Functions built on them (math.h, optimizer_body.h, ...) are templates over such
// a set of operations, so that scalar, AVX2, AVX-512 and CUDA code share one text.
//
// Include this only in files compiled with -mfma (named *_scalar.cpp, *_avx2.cpp, *_avx512.cpp) or by nvcc: without it
// fma would become a call into libm.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define SEEKSIM_HD static __host__ __device__ __forceinline__
#elif defined(__FMA__)
// Internal linkage: files of different instruction sets must not share one definition.
#define SEEKSIM_HD static inline __attribute__((always_inline))
#else
#error "kernels/scalar.h needs -mfma: rename this file to *_scalar.cpp (cmake/SeeksimFlags.cmake)"
#endif

namespace seeksim::kernels {

struct FloatOps {
  using F = float;
  using U = std::uint32_t;
  using I = std::int32_t;

#if defined(__CUDA_ARCH__)
  SEEKSIM_HD F fma(F a, F b, F c) { return __fmaf_rn(a, b, c); }
  SEEKSIM_HD F add(F a, F b) { return __fadd_rn(a, b); }
  SEEKSIM_HD F sub(F a, F b) { return __fsub_rn(a, b); }
  SEEKSIM_HD F mul(F a, F b) { return __fmul_rn(a, b); }
  SEEKSIM_HD F div(F a, F b) { return __fdiv_rn(a, b); }
  SEEKSIM_HD F sqrt(F a) { return __fsqrt_rn(a); }
  SEEKSIM_HD U bits(F a) { return __float_as_uint(a); }
  SEEKSIM_HD F from_bits(U a) { return __uint_as_float(a); }
  SEEKSIM_HD F from_int(I a) { return __int2float_rn(a); }
#else
  SEEKSIM_HD F fma(F a, F b, F c) { return __builtin_fmaf(a, b, c); }
  SEEKSIM_HD F add(F a, F b) { return a + b; }
  SEEKSIM_HD F sub(F a, F b) { return a - b; }
  SEEKSIM_HD F mul(F a, F b) { return a * b; }
  SEEKSIM_HD F div(F a, F b) { return a / b; }
  SEEKSIM_HD F sqrt(F a) { return __builtin_sqrtf(a); }
  SEEKSIM_HD U bits(F a) {
    U u;
    __builtin_memcpy(&u, &a, sizeof u);
    return u;
  }
  SEEKSIM_HD F from_bits(U a) {
    F f;
    __builtin_memcpy(&f, &a, sizeof f);
    return f;
  }
  SEEKSIM_HD F from_int(I a) { return static_cast<F>(a); }  // exact for |a| < 2^24; not to be used beyond
#endif
  SEEKSIM_HD F lit(float a) { return a; }
  SEEKSIM_HD U ulit(std::uint32_t a) { return a; }
  SEEKSIM_HD I as_int(U a) { return static_cast<I>(a); }
  SEEKSIM_HD U as_unsigned(I a) { return static_cast<U>(a); }
};

}  // namespace seeksim::kernels
