// Transcendental functions by the contract's operations only (F0): no library function, no branch, no table. V is a set
// of operations (FloatOps, or a vector of them): the same text gives the same bits on every machine.
//
// Errors relative to double libm. tests/kernels/unary_test.cpp measures them on every 257th bit pattern, and fails if
// they grow:
//   exp 1.01 ulp    tanh 1.32 ulp    log 0.78 ulp    inverse_sqrt 1.5 ulp (two roundings)
//   gelu, silu and their gradients: see there.
// Every NaN result of these is 0x7fffffff or what the last operation gave: the payload is outside the contract (R9).
#pragma once

#include "kernels/scalar.h"

namespace seeksim::kernels::math {

inline constexpr std::uint32_t kSignBit = 0x80000000U;

template <class V>
SEEKSIM_HD typename V::F negate(typename V::F x) {
  return V::from_bits(V::bits(x) ^ V::ulit(kSignBit));
}

// min(x, high) and max(x, low) that let a NaN through.
template <class V>
SEEKSIM_HD typename V::F clamp(typename V::F x, float low, float high) {
  x = x > V::lit(high) ? V::lit(high) : x;
  return x < V::lit(low) ? V::lit(low) : x;
}

// e^x by x = n ln2 + r, |r| <= ln2 / 2, a polynomial in r, and 2^n as two factors (so that denormal results round
// once).
template <class V>
SEEKSIM_HD typename V::F exp(typename V::F x) {
  const auto xc = clamp<V>(x, -104.0F, 89.0F);
  const auto shifted = V::fma(xc, V::lit(0x1.715476p0F), V::lit(0x1.8p23F));  // the low bits hold round(x / ln2)
  const auto n = V::sub(shifted, V::lit(0x1.8p23F));
  auto r = V::fma(n, V::lit(-0x1.62e4p-1F), xc);  // ln2 in two parts; the first product is exact
  r = V::fma(n, V::lit(-0x1.7f7d1cp-20F), r);
  auto p = V::lit(0x1.67b6f8p-10F);
  p = V::fma(p, r, V::lit(0x1.123bd8p-7F));
  p = V::fma(p, r, V::lit(0x1.555c9ep-5F));
  p = V::fma(p, r, V::lit(0x1.55548ep-3F));
  p = V::fma(p, r, V::lit(0x1.fffff6p-2F));
  const auto y = V::add(V::lit(1.0F), V::fma(V::mul(r, r), p, r));
  const auto k = V::as_int(V::bits(shifted) - V::ulit(0x4B400000U));
  const auto half = k >> 1;
  const auto power1 = V::from_bits((V::as_unsigned(half) + V::ulit(127U)) << 23);
  const auto power2 = V::from_bits((V::as_unsigned(k - half) + V::ulit(127U)) << 23);
  const auto result = V::mul(V::mul(y, power1), power2);
  return x != x ? V::from_bits(V::ulit(0x7fffffffU)) : result;
}

// Odd polynomial below 0.625, else 1 - 2 / (e^2a + 1); the sign is copied.
template <class V>
SEEKSIM_HD typename V::F tanh(typename V::F x) {
  const auto a = V::from_bits(V::bits(x) & V::ulit(~kSignBit));
  const auto z = V::mul(a, a);
  auto q = V::lit(-0x1.8f29fcp-8F);
  q = V::fma(q, z, V::lit(0x1.57ee14p-6F));
  q = V::fma(q, z, V::lit(-0x1.b92226p-5F));
  q = V::fma(q, z, V::lit(0x1.110e04p-3F));
  q = V::fma(q, z, V::lit(-0x1.555552p-2F));
  const auto small = V::fma(V::mul(a, z), q, a);
  const auto capped = a > V::lit(20.0F) ? V::lit(20.0F) : a;
  const auto e = exp<V>(V::add(capped, capped));
  const auto large = V::sub(V::lit(1.0F), V::div(V::lit(2.0F), V::add(e, V::lit(1.0F))));
  const auto magnitude = a < V::lit(0.625F) ? small : large;
  const auto y = V::from_bits(V::bits(magnitude) | (V::bits(x) & V::ulit(kSignBit)));
  return x != x ? V::from_bits(V::ulit(0x7fffffffU)) : y;
}

// Natural logarithm: x = m 2^e with m in [sqrt(1/2), sqrt(2)), a polynomial in m - 1. Denormals are scaled up first.
template <class V>
SEEKSIM_HD typename V::F log(typename V::F x) {
  const auto denormal = V::bits(x) < V::ulit(0x00800000U);
  const auto scaled = denormal ? V::mul(x, V::lit(0x1p23F)) : x;
  const auto u = V::bits(scaled);
  const auto e = V::as_int(u - V::ulit(0x3f3504f3U)) >> 23;
  const auto m = V::from_bits(u - (V::as_unsigned(e) << 23));
  const auto ef = V::add(V::from_int(e), denormal ? V::lit(-23.0F) : V::lit(0.0F));
  const auto f = V::sub(m, V::lit(1.0F));
  auto q = V::lit(0x1.20373cp-4F);
  q = V::fma(q, f, V::lit(-0x1.d77b1ap-4F));
  q = V::fma(q, f, V::lit(0x1.de3896p-4F));
  q = V::fma(q, f, V::lit(-0x1.fcbfc4p-4F));
  q = V::fma(q, f, V::lit(0x1.23d506p-3F));
  q = V::fma(q, f, V::lit(-0x1.555c8cp-3F));
  q = V::fma(q, f, V::lit(0x1.999d46p-3F));
  q = V::fma(q, f, V::lit(-0x1.fffff8p-3F));
  q = V::fma(q, f, V::lit(0x1.555554p-2F));
  const auto z = V::mul(f, f);
  auto t = V::mul(V::mul(z, f), q);
  t = V::fma(ef, V::lit(0x1.7f7d1cp-20F), t);
  t = V::fma(z, V::lit(-0.5F), t);
  auto y = V::fma(ef, V::lit(0x1.62e4p-1F), V::add(f, t));
  y = x == V::lit(0.0F) ? V::from_bits(V::ulit(0xff800000U)) : y;
  y = x == V::from_bits(V::ulit(0x7f800000U)) ? x : y;
  y = x < V::lit(0.0F) ? V::from_bits(V::ulit(0x7fffffffU)) : y;
  return x != x ? V::from_bits(V::ulit(0x7fffffffU)) : y;
}

template <class V>
SEEKSIM_HD typename V::F inverse_sqrt(typename V::F x) {
  return V::div(V::lit(1.0F), V::sqrt(x));
}

// GPT-2's gelu, 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), as x * sigmoid(2u): one exp, no cancellation.
// |error| <= 4 ulp for x >= -1, and <= 2^-21 |x| absolute below (where e^-2u magnifies the rounding of u).
template <class V>
SEEKSIM_HD typename V::F gelu(typename V::F x) {
  const auto slope = V::fma(V::mul(x, x), V::lit(0.07135481628F), V::lit(1.5957691216F));  // 2u / x
  const auto e = exp<V>(negate<V>(V::mul(x, slope)));
  return V::div(x, V::add(V::lit(1.0F), e));
}

// gelu' = s + x s (1 - s) 2u', s = sigmoid(2u). x is clamped to +-10, where gelu' is 1 or below 1e-35 and e^-2u is
// finite, so that no Inf * 0 can arise. |error| <= 2^-20 absolute.
template <class V>
SEEKSIM_HD typename V::F gelu_grad(typename V::F x_any) {
  const auto x = clamp<V>(x_any, -10.0F, 10.0F);
  const auto z = V::mul(x, x);
  const auto slope = V::fma(z, V::lit(0.07135481628F), V::lit(1.5957691216F));
  const auto slope_grad = V::fma(z, V::lit(0.2140644488F), V::lit(1.5957691216F));  // d(2u) / dx
  const auto e = exp<V>(negate<V>(V::mul(x, slope)));
  const auto s = V::div(V::lit(1.0F), V::add(V::lit(1.0F), e));
  const auto spread = V::mul(s, V::mul(e, s));  // s (1 - s) without the cancellation
  return V::fma(V::mul(x, spread), slope_grad, s);
}

// x * sigmoid(x). |error| <= 4 ulp for x >= -1, and <= 2^-21 |x| absolute below.
template <class V>
SEEKSIM_HD typename V::F silu(typename V::F x) {
  return V::div(x, V::add(V::lit(1.0F), exp<V>(negate<V>(x))));
}

// silu' = s + x s (1 - s), s = sigmoid(x). x is clamped to +-80, where silu' is 1 or below 2e-33 and e^-x is finite.
// |error| <= 2^-21 absolute.
template <class V>
SEEKSIM_HD typename V::F silu_grad(typename V::F x_any) {
  const auto x = clamp<V>(x_any, -80.0F, 80.0F);
  const auto e = exp<V>(negate<V>(x));
  const auto s = V::div(V::lit(1.0F), V::add(V::lit(1.0F), e));
  const auto spread = V::mul(s, V::mul(e, s));  // s (1 - s) without the cancellation
  return V::fma(x, spread, s);
}

// The standard normal quantile of (k + 1/2) 2^-24 for k in [0, 2^24): Wichura's AS 241 (PPND7) on the lower half,
// mirrored for the upper, so that the distribution is exactly symmetric. |z| <= 5.42; relative error <= 4e-7.
template <class V>
SEEKSIM_HD typename V::F normal_quantile(typename V::U k) {
  const auto upper = k >= V::ulit(0x800000U);
  const auto tail = upper ? V::ulit(0xffffffU) - k : k;
  const auto p = V::mul(V::add(V::from_int(V::as_int(tail)), V::lit(0.5F)), V::lit(0x1p-24F));  // exact, < 1/2
  const auto d = V::sub(V::lit(0.5F), p);
  const auto c = V::fma(negate<V>(d), d, V::lit(0.180625F));
  auto num = V::fma(V::lit(59.10937472F), c, V::lit(159.29113202F));
  num = V::fma(num, c, V::lit(50.434271938F));
  num = V::fma(num, c, V::lit(3.3871327179F));
  auto den = V::fma(V::lit(67.18756360F), c, V::lit(78.757757664F));
  den = V::fma(den, c, V::lit(17.895169469F));
  den = V::fma(den, c, V::lit(1.0F));
  const auto central = V::div(V::mul(d, num), den);
  const auto r = V::sub(V::sqrt(negate<V>(log<V>(p))), V::lit(1.6F));
  auto tail_num = V::fma(V::lit(0.17023821103F), r, V::lit(1.3067284816F));
  tail_num = V::fma(tail_num, r, V::lit(2.7568153900F));
  tail_num = V::fma(tail_num, r, V::lit(1.4234372777F));
  auto tail_den = V::fma(V::lit(0.12021132975F), r, V::lit(0.73700164250F));
  tail_den = V::fma(tail_den, r, V::lit(1.0F));
  const auto magnitude = d <= V::lit(0.425F) ? central : V::div(tail_num, tail_den);
  return upper ? magnitude : negate<V>(magnitude);
}

}  // namespace seeksim::kernels::math
