// What the kernels must compute, straight from docs/numerics.md: one float at a time, no blocking, no
// vectors. The tests hold every instruction set against this, bit for bit.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/emulated.h"
#include "kernels/isa.h"
#include "kernels/view.h"

namespace seeksim::kernels::test {

using Floats = std::vector<float>;

inline std::uint32_t bits(float x) { return std::bit_cast<std::uint32_t>(x); }
inline float from_bits(std::uint32_t u) { return std::bit_cast<float>(u); }
inline std::uint32_t canonical(float x) { return std::isnan(x) ? 0x7fffffffU : bits(x); }  // R9

// The correctly rounded fma; glibc's is exact whether or not the CPU has the instruction.
inline float fma1(float a, float b, float c) { return std::fmaf(a, b, c); }

// F3 over values, by the definition of a node rather than by a counter.
inline float tree(const Floats& v, std::size_t begin, std::size_t width) {
  if (width == 1) return v[begin];
  const float left = tree(v, begin, width / 2);
  if (begin + width / 2 >= v.size()) return left;  // no right child: no add
  return left + tree(v, begin + width / 2, width / 2);
}
inline float tree(const Floats& v) { return v.empty() ? 0.0F : tree(v, 0, std::bit_ceil(v.size())); }

// F4: lane i mod 128, then halves. step(lane, i) returns the lane after element i.
template <class Step>
float lanes(std::size_t n, Step step) {
  Floats s(128, 0.0F);
  for (std::size_t i = 0; i < n; ++i) s[i % 128] = step(s[i % 128], i);
  for (std::size_t w = 64; w > 0; w /= 2)
    for (std::size_t l = 0; l < w; ++l) s[l] = s[l] + s[l + w];
  return s[0];
}

// F1 inside each segment of K, F3 over the segments, for n products a[k * a_step] * b[k * b_step].
inline float segchain(const float* a, std::size_t a_step, const float* b, std::size_t b_step, std::size_t n,
                      std::size_t segment) {
  Floats parts;
  for (std::size_t begin = 0; begin < n; begin += segment) {
    float acc = 0.0F;
    for (std::size_t k = begin; k < n && k < begin + segment; ++k) acc = fma1(a[k * a_step], b[k * b_step], acc);
    parts.push_back(acc);
  }
  return tree(parts);
}
inline float segchain(const Floats& a, const Floats& b, std::size_t segment) {
  return segchain(a.data(), 1, b.data(), 1, a.size(), segment);
}

// Empty when equal after mapping NaNs; else names the first difference.
inline std::string difference(const Floats& got, const Floats& want) {
  if (got.size() != want.size()) return "sizes differ";
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (canonical(got[i]) == canonical(want[i])) continue;
    char text[160];
    std::snprintf(text, sizeof text, "element %zu: got %.9g (%08x), want %.9g (%08x)", i, got[i], bits(got[i]), want[i],
                  bits(want[i]));
    return text;
  }
  return "";
}

using Rng = std::mt19937_64;

inline float uniform(Rng& rng, float low = -1.0F, float high = 1.0F) {
  return low + (high - low) * (static_cast<float>(rng() >> 40) * 0x1p-24F);
}
inline Floats uniforms(Rng& rng, std::size_t n, float low = -1.0F, float high = 1.0F) {
  Floats v(n);
  for (float& x : v) x = uniform(rng, low, high);
  return v;
}
// Mostly ordinary values; `odd` in 1 of them is a zero of either sign, a denormal, huge, tiny, infinite or a NaN.
inline float wild(Rng& rng, unsigned odd) {
  if (rng() % odd != 0) return uniform(rng);
  const float special[] = {0.0F,   -0.0F,  0x1p-149F, -0x1.8p-130F, 0x1p-126F, 3e38F,
                           -3e38F, 1e-30F, -1e-25F,   INFINITY,     -INFINITY, NAN};
  return special[rng() % std::size(special)];
}
// Without infinities and NaNs, so that a whole row does not drown.
inline float tame(Rng& rng, unsigned odd) {
  for (;;) {
    const float x = wild(rng, odd);
    if (std::isfinite(x) && std::fabs(x) < 1e30F) return x;
  }
}
inline Floats wilds(Rng& rng, std::size_t n, unsigned odd) {
  Floats v(n);
  for (float& x : v) x = wild(rng, odd);
  return v;
}
inline Floats tames(Rng& rng, std::size_t n, unsigned odd = 8) {
  Floats v(n);
  for (float& x : v) x = tame(rng, odd);
  return v;
}
inline std::size_t between(Rng& rng, std::size_t low, std::size_t high) { return low + rng() % (high - low + 1); }

inline Mat<float> mat(Floats& v, std::size_t rows, std::size_t cols, std::size_t stride = 0) {
  return {v.data(), static_cast<Index>(rows), static_cast<Index>(cols), static_cast<Index>(stride ? stride : cols)};
}
inline Mat<const float> mat(const Floats& v, std::size_t rows, std::size_t cols, std::size_t stride = 0) {
  return {v.data(), static_cast<Index>(rows), static_cast<Index>(cols), static_cast<Index>(stride ? stride : cols)};
}
inline Vec<float> vec(Floats& v) { return {v.data(), static_cast<Index>(v.size())}; }
inline Vec<const float> vec(const Floats& v) { return {v.data(), static_cast<Index>(v.size())}; }

// What a test runs on: an instruction set of the CPU, or the text of the kernels for GPUs, run on the host with the
// threads of a block in one order or the other.
enum class Target { scalar, avx2, avx512, gpu_emulated, gpu_emulated_backwards };

// A test that runs once for every target; those that the CPU lacks are reported as skipped, with the reason.
class OnEveryIsa : public ::testing::TestWithParam<Target> {
 protected:
  void SetUp() override {
    if (on_gpu()) {
      emulate_threads_backwards(GetParam() == Target::gpu_emulated_backwards);
      force_device(&emulated_device());
      return;
    }
    const Isa isa = static_cast<Isa>(GetParam());
    if (!cpu_has(isa)) GTEST_SKIP() << "this CPU has no " << name(isa);
    force_isa(isa);
  }
  void TearDown() override { force_device(nullptr); }
  static bool on_gpu() { return GetParam() >= Target::gpu_emulated; }
};
static_assert(static_cast<int>(Isa::scalar) == 0 && static_cast<int>(Isa::avx512) == 2);
inline std::string isa_name(const ::testing::TestParamInfo<Target>& info) {
  if (info.param == Target::gpu_emulated) return "gpu_emulated";
  if (info.param == Target::gpu_emulated_backwards) return "gpu_emulated_backwards";
  return name(static_cast<Isa>(info.param));
}
#define SEEKSIM_ON_EVERY_CPU_ISA(Suite) \
  INSTANTIATE_TEST_SUITE_P(Isa, Suite, ::testing::Values(Target::scalar, Target::avx2, Target::avx512), isa_name)
#define SEEKSIM_ON_EVERY_ISA(Suite)                                                             \
  SEEKSIM_ON_EVERY_CPU_ISA(Suite);                                                              \
  INSTANTIATE_TEST_SUITE_P(Emulated, Suite, ::testing::Values(Target::gpu_emulated), isa_name); \
  INSTANTIATE_TEST_SUITE_P(Slow, Suite, ::testing::Values(Target::gpu_emulated_backwards), isa_name)

}  // namespace seeksim::kernels::test
