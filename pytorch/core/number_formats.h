// Storage formats of numbers: widening is exact, narrowing rounds once, to nearest even (docs/numerics.md, R8). A NaN
// becomes the format's canonical one. fp8 as torch 2.15 has it: float8_e4m3fn has no infinity, so what is too large
// becomes its largest number; float8_e5m2 has one.
#pragma once

#include <bit>
#include <cstdint>

namespace seeksim::pytorch {

inline constexpr std::uint32_t kFloatInf = 0x7f800000U;
inline constexpr std::uint32_t kFloatMagnitude = 0x7fffffffU;  // and the canonical NaN

struct Bf16 {
  std::uint16_t bits = 0;
  static float widen(Bf16 x) { return std::bit_cast<float>(std::uint32_t(x.bits) << 16); }
  static Bf16 narrow(float x) {
    const auto u = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t rounded = (u + 0x7fffU + ((u >> 16) & 1U)) >> 16;
    return {std::uint16_t((u & kFloatMagnitude) > kFloatInf ? 0x7fffU : rounded)};
  }
};

struct Fp16 {
  std::uint16_t bits = 0;
  static float widen(Fp16 x) {
    const std::uint32_t sign = (x.bits & 0x8000U) << 16, m = x.bits & 0x7fffU;
    const auto finite = std::bit_cast<std::uint32_t>(std::bit_cast<float>(m << 13) * 0x1p112F);
    const std::uint32_t u = (m >= 0x7c00U ? kFloatInf : finite) | sign;
    return std::bit_cast<float>(m > 0x7c00U ? kFloatMagnitude : u);
  }
  static Fp16 narrow(float x) {
    const auto u = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t sign = (u >> 16) & 0x8000U, a = u & kFloatMagnitude;
    const std::uint32_t normal = (a - (112U << 23) + 0xfffU + ((a >> 13) & 1U)) >> 13;
    // Adding 0.5 makes the hardware round at 2^-24, the step of subnormal results.
    const std::uint32_t tiny = std::bit_cast<std::uint32_t>(std::bit_cast<float>(a) + 0.5F) - 0x3f000000U;
    std::uint32_t h = a < (113U << 23) ? tiny : normal;
    h = a >= (143U << 23) ? 0x7c00U : h;
    return {std::uint16_t(a > kFloatInf ? 0x7fffU : h | sign)};
  }
};

// An 8-bit format with `kMantissa` bits of fraction and exponent bias `kBias`; kTop: the first magnitude that stands
// for no finite number.
template <int kMantissa, int kBias, std::uint32_t kTop, std::uint32_t kTooLarge>
struct Fp8 {
  std::uint8_t bits = 0;
  static float widen(Fp8 x) {
    const std::uint32_t sign = (x.bits & 0x80U) << 24, m = x.bits & 0x7fU;
    if (m > kTop || m == kNan) return std::bit_cast<float>(kFloatMagnitude);
    if (m == kTop) return std::bit_cast<float>(kFloatInf | sign);
    const float scale = std::bit_cast<float>(std::uint32_t(127 + 127 - kBias) << 23);
    const float magnitude = std::bit_cast<float>(m << (23 - kMantissa)) * scale;  // exact, subnormals included
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  static Fp8 narrow(float x) {
    const auto u = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t sign = (u >> 24) & 0x80U, a = u & kFloatMagnitude;
    if (a > kFloatInf) return {0x7fU};
    constexpr int kDrop = 23 - kMantissa;
    constexpr std::uint32_t kLeastNormal = std::uint32_t(127 - kBias + 1) << 23;
    std::uint32_t h = 0;
    if (a < kLeastNormal) {
      // A sum with the least power of two whose last bit is this format's least subnormal rounds there.
      constexpr std::uint32_t kMagic = std::uint32_t(127 - kBias + 1 + 23 - kMantissa) << 23;
      h = std::bit_cast<std::uint32_t>(std::bit_cast<float>(a) + std::bit_cast<float>(kMagic)) - kMagic;
    } else {
      const std::uint32_t rebased = a - (std::uint32_t(127 - kBias) << 23);
      h = (rebased + ((1U << (kDrop - 1)) - 1) + ((rebased >> kDrop) & 1U)) >> kDrop;
    }
    return {std::uint8_t((h >= kTop ? kTooLarge : h) | sign)};
  }

 private:
  static constexpr std::uint32_t kNan = 0x7fU;
};
using Fp8E4M3 = Fp8<3, 7, 0x7f, 0x7e>;   // torch.float8_e4m3fn
using Fp8E5M2 = Fp8<2, 15, 0x7c, 0x7c>;  // torch.float8_e5m2

}  // namespace seeksim::pytorch
