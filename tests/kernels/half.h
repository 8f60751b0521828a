// Tensors in 16 bits for tests: what they hold as floats, and rounding by the definition of the formats, independent of
// the kernels' own.
#pragma once

#include <cmath>
#include <type_traits>

#include "kernels/cast.h"
#include "tests/kernels/reference.h"

namespace seeksim::kernels::test {

// Value of a 16-bit pattern with `exponent_bits`, from the definition of the format.
inline double value_of(std::uint16_t h, int exponent_bits) {
  const int mantissa_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (h & 0x7fff) >> mantissa_bits, mantissa = h & ((1 << mantissa_bits) - 1);
  const double sign = h & 0x8000 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1) return mantissa ? NAN : sign * INFINITY;
  const double fraction = std::ldexp(static_cast<double>(mantissa), -mantissa_bits);
  return exponent == 0 ? sign * std::ldexp(fraction, 1 - bias) : sign * std::ldexp(1 + fraction, exponent - bias);
}

// Round to nearest, ties to even, by looking at the two neighbours of |x| among the format's values.
inline std::uint16_t rounded(float x, int exponent_bits) {
  if (std::isnan(x)) return 0x7fff;
  const std::uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  const auto infinity = static_cast<std::uint16_t>(((1 << exponent_bits) - 1) << (15 - exponent_bits));
  const double a = std::fabs(static_cast<double>(x));
  std::uint16_t low = 0, high = infinity;  // low <= a; values grow with their patterns
  while (low + 1 < high) {
    const auto middle = static_cast<std::uint16_t>((low + high) / 2);
    (value_of(middle, exponent_bits) <= a ? low : high) = middle;
  }
  if (a == INFINITY) return static_cast<std::uint16_t>(sign | infinity);
  const double below = value_of(low, exponent_bits);
  // Beyond the largest value, infinity takes the place of the next power of two.
  const double above =
      high == infinity ? 2 * value_of(static_cast<std::uint16_t>(infinity - (1 << (15 - exponent_bits))), exponent_bits)
                       : value_of(high, exponent_bits);
  const double middle = below + (above - below) / 2;
  const bool up = a > middle || (a == middle && (low & 1));
  return static_cast<std::uint16_t>(sign | (up ? high : low));
}

template <class T>
constexpr int kExponentBits = std::is_same_v<T, bf16> ? 8 : 5;

template <class T>
T round_one(float x) {
  return {rounded(x, kExponentBits<T>)};
}
template <class T>
float widen_one(T h) {
  return static_cast<float>(value_of(h.bits, kExponentBits<T>));
}

// A tensor stored as T and the same values as floats.
template <class T>
struct Tensor {
  std::vector<T> stored;
  Floats wide;

  Tensor() = default;
  explicit Tensor(const Floats& values) {
    for (float x : values) {
      stored.push_back(round_one<T>(x));
      wide.push_back(widen_one(stored.back()));
    }
  }
  std::size_t size() const { return stored.size(); }
  Mat<const T> mat(std::size_t rows, std::size_t cols, std::size_t stride = 0) const {
    return {stored.data(), static_cast<Index>(rows), static_cast<Index>(cols),
            static_cast<Index>(stride ? stride : cols)};
  }
  Mat<T> out(std::size_t rows, std::size_t cols, std::size_t stride = 0) {
    return {stored.data(), static_cast<Index>(rows), static_cast<Index>(cols),
            static_cast<Index>(stride ? stride : cols)};
  }
  Vec<const T> vec() const { return {stored.data(), static_cast<Index>(stored.size())}; }
  Vec<T> out() { return {stored.data(), static_cast<Index>(stored.size())}; }
};

// Mostly ordinary values; `odd` in 1 of them is a zero of either sign, a denormal of T, close to a tie or an end of its
// range. With `poison` also infinities and NaNs.
template <class T>
Tensor<T> draw(Rng& rng, std::size_t n, unsigned odd, bool poison) {
  const bool wide_range = std::is_same_v<T, bf16>;
  const float tiny = wide_range ? 0x1p-133F : 0x1p-24F, smallest = wide_range ? 0x1p-126F : 0x1p-14F,
              huge = wide_range ? 0x1p60F : 60000.0F;
  const float special[] = {0.0F, -0.0F, tiny,     -3 * tiny, smallest, -smallest / 2,
                           huge, -huge, INFINITY, -INFINITY, NAN};
  Floats values(n);
  for (float& x : values)
    x = rng() % odd != 0 ? uniform(rng) : special[rng() % (std::size(special) - (poison ? 0 : 3))];
  return Tensor<T>(values);
}

// Empty when `got` is `want` rounded once, NaNs being canonical; else names the first difference.
template <class T>
std::string difference_rounded(const std::vector<T>& got, const Floats& want) {
  if (got.size() != want.size()) return "sizes differ";
  for (std::size_t i = 0; i < got.size(); ++i) {
    const T right = round_one<T>(want[i]);
    if (got[i].bits == right.bits) continue;
    char text[160];
    std::snprintf(text, sizeof text, "element %zu: got %.9g (%04x), want %.9g (%04x), rounded from %.9g", i,
                  static_cast<double>(widen_one(got[i])), got[i].bits, static_cast<double>(widen_one(right)),
                  right.bits, static_cast<double>(want[i]));
    return text;
  }
  return "";
}

}  // namespace seeksim::kernels::test
