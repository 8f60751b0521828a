// Conversions to and from 16 bits: all 2^16 values of each format, every 257th float, and the rounding rules
// themselves.

#include "kernels/cast.h"

#include <cmath>
#include <cstring>

#include "tests/kernels/half.h"

namespace seeksim::kernels::test {
namespace {

class Cast : public OnEveryIsa {};
SEEKSIM_ON_EVERY_ISA(Cast);

TEST_P(Cast, WideningIsExactForAllPatterns) {
  std::vector<bf16> b(65536);
  std::vector<fp16> h(65536);
  for (std::uint32_t i = 0; i < 65536; ++i) b[i].bits = h[i].bits = static_cast<std::uint16_t>(i);
  Floats from_b(65536), from_h(65536);
  widen<bf16>({}, {b.data(), 65536}, vec(from_b));
  widen<fp16>({}, {h.data(), 65536}, vec(from_h));
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const auto u = static_cast<std::uint16_t>(i);
    ASSERT_EQ(canonical(from_b[i]), canonical(static_cast<float>(value_of(u, 8)))) << i;
    ASSERT_EQ(canonical(from_h[i]), canonical(static_cast<float>(value_of(u, 5)))) << i;
  }
}

TEST_P(Cast, RoundTripsGiveBackEveryPattern) {
  std::vector<bf16> b(65536), b2(65536);
  std::vector<fp16> h(65536), h2(65536);
  for (std::uint32_t i = 0; i < 65536; ++i) b[i].bits = h[i].bits = static_cast<std::uint16_t>(i);
  Floats wide(65536);
  widen<bf16>({}, {b.data(), 65536}, vec(wide));
  narrow<bf16>({}, vec(std::as_const(wide)), {b2.data(), 65536});
  widen<fp16>({}, {h.data(), 65536}, vec(wide));
  narrow<fp16>({}, vec(std::as_const(wide)), {h2.data(), 65536});
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const bool b_nan = std::isnan(value_of(b[i].bits, 8)), h_nan = std::isnan(value_of(h[i].bits, 5));
    ASSERT_EQ(b2[i].bits, b_nan ? 0x7fff : i);
    ASSERT_EQ(h2[i].bits, h_nan ? 0x7fff : i);
  }
}

TEST_P(Cast, NarrowingRoundsToNearestEven) {
  Rng rng(1);
  Floats x;
  for (std::uint32_t i = 0; i < 0x7f80; i += 7)  // around every tie of bf16, and so on down
    for (std::uint32_t low : {0x0000U, 0x0001U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU})
      for (std::uint32_t sign : {0U, 0x80000000U}) x.push_back(from_bits(sign | i << 16 | low));
  for (std::uint32_t e = 100; e < 145; ++e)  // and of fp16, denormals and overflow included
    for (std::uint32_t m = 0; m < 0x800000; m += 0x1000 * 37)
      for (std::uint32_t low : {0U, 1U, 0xfffU}) x.push_back(from_bits(e << 23 | m | low));
  for (int i = 0; i < 20000; ++i) x.push_back(from_bits(static_cast<std::uint32_t>(rng())));
  std::vector<bf16> b(x.size());
  std::vector<fp16> h(x.size());
  narrow<bf16>({}, vec(std::as_const(x)), {b.data(), static_cast<Index>(x.size())});
  narrow<fp16>({}, vec(std::as_const(x)), {h.data(), static_cast<Index>(x.size())});
  for (std::size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(b[i].bits, rounded(x[i], 8)) << std::hex << bits(x[i]);
    ASSERT_EQ(h[i].bits, rounded(x[i], 5)) << std::hex << bits(x[i]);
  }
}

void expect_equal_on_every_set(std::uint64_t step) {
  constexpr std::size_t kChunk = 1 << 14;
  Floats x(kChunk);
  std::vector<bf16> b(kChunk), want_b(kChunk);
  std::vector<fp16> h(kChunk), want_h(kChunk);
  const auto convert = [&](std::vector<bf16>& as_b, std::vector<fp16>& as_h) {
    narrow<bf16>({}, vec(std::as_const(x)), {as_b.data(), kChunk});
    narrow<fp16>({}, vec(std::as_const(x)), {as_h.data(), kChunk});
  };
  for (std::uint64_t begin = 0; begin < 1ULL << 32; begin += step * kChunk) {
    for (std::size_t i = 0; i < kChunk; ++i) x[i] = from_bits(static_cast<std::uint32_t>(begin + i * step));
    force_isa(Isa::scalar);
    convert(want_b, want_h);
    for (Isa isa : {Isa::avx2, Isa::avx512}) {
      if (!cpu_has(isa)) continue;
      force_isa(isa);
      convert(b, h);
      ASSERT_EQ(std::memcmp(b.data(), want_b.data(), 2 * kChunk), 0) << "bf16 " << name(isa) << " from " << begin;
      ASSERT_EQ(std::memcmp(h.data(), want_h.data(), 2 * kChunk), 0) << "fp16 " << name(isa) << " from " << begin;
    }
  }
}

TEST(CastSweep, EqualOnEverySetForEvery257thFloat) { expect_equal_on_every_set(257); }
TEST(CastSweepNightly, EqualOnEverySetForAllFloats) { expect_equal_on_every_set(1); }

}  // namespace
}  // namespace seeksim::kernels::test
