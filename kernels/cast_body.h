// fp32 <-> bf16 and fp16 for one lane by integer operations (R8): round to nearest even, denormals kept, every NaN
// becomes 0x7fff. 16-bit values travel in the low half of a 32-bit lane.
#pragma once

#include "kernels/scalar.h"

namespace seeksim::kernels::cast {

inline constexpr std::uint32_t kInf = 0x7f800000U;

template <class V>
SEEKSIM_HD typename V::U to_bf16(typename V::F x) {
  const auto u = V::bits(x);
  const auto rounded = (u + V::ulit(0x7fffU) + ((u >> 16) & V::ulit(1U))) >> 16;
  const auto is_nan = (u & V::ulit(0x7fffffffU)) > V::ulit(kInf);
  return is_nan ? V::ulit(0x7fffU) : rounded;
}

template <class V>
SEEKSIM_HD typename V::F from_bf16(typename V::U h) {
  return V::from_bits(h << 16);
}

template <class V>
SEEKSIM_HD typename V::U to_fp16(typename V::F x) {
  const auto u = V::bits(x);
  const auto sign = (u >> 16) & V::ulit(0x8000U);
  const auto a = u & V::ulit(0x7fffffffU);
  // Normal results: move the exponent's bias from 127 to 15 and round; a carry may reach infinity, rightly.
  const auto normal = (a - V::ulit(112U << 23) + V::ulit(0xfffU) + ((a >> 13) & V::ulit(1U))) >> 13;
  // Denormal results: adding 0.5 makes the hardware round at 2^-24.
  const auto denormal = V::bits(V::add(V::from_bits(a), V::lit(0.5F))) - V::ulit(0x3f000000U);
  auto h = a < V::ulit(113U << 23) ? denormal : normal;
  h = a >= V::ulit(143U << 23) ? V::ulit(0x7c00U) : h;
  return a > V::ulit(kInf) ? V::ulit(0x7fffU) : h | sign;
}

template <class V>
SEEKSIM_HD typename V::F from_fp16(typename V::U h) {
  const auto sign = (h & V::ulit(0x8000U)) << 16;
  const auto m = h & V::ulit(0x7fffU);
  const auto finite = V::bits(V::mul(V::from_bits(m << 13), V::lit(0x1p112F)));  // exact, denormals included
  auto u = m >= V::ulit(0x7c00U) ? V::ulit(kInf) : finite;
  u = u | sign;
  return V::from_bits(m > V::ulit(0x7c00U) ? V::ulit(0x7fffffffU) : u);
}

}  // namespace seeksim::kernels::cast
