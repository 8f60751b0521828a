// Casts to 8 bits: codes against a second text of the formats' definition and against what PyTorch's casts made of
// 4,684 numbers at every boundary (golden/pytorch/fp8_casts.py); what a cast is worth on every instruction set against
// those codes; scales and blocks.
#include "kernels/fp8.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>

#include "tests/kernels/half.h"

namespace seeksim::kernels::test {
namespace {

class Fp8Casts : public OnEveryIsa {};
SEEKSIM_ON_EVERY_ISA(Fp8Casts);

constexpr Fp8 kFormats[] = {Fp8::e4m3, Fp8::e5m2};

// The definition of the format: sign, exponent and mantissa as the specification has them.
double value_of_code(Fp8 format, int code) {
  const int mantissa_bits = format == Fp8::e4m3 ? 3 : 2, bias = format == Fp8::e4m3 ? 7 : 15;
  const int exponent = (code & 0x7f) >> mantissa_bits, mantissa = code & ((1 << mantissa_bits) - 1);
  const double sign = (code & 0x80) != 0 ? -1 : 1;
  if (format == Fp8::e4m3 && (code & 0x7f) == 0x7f) return NAN;
  if (format == Fp8::e5m2 && exponent == 31) return mantissa == 0 ? sign * INFINITY : NAN;
  const double fraction = std::ldexp(mantissa, -mantissa_bits);
  return sign * (exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias));
}

// The nearest finite value, of two equally near ones that with an even code, by looking at all of them.
float nearest(Fp8 format, float x) {
  if (!std::isfinite(x)) return NAN;
  const int most = format == Fp8::e4m3 ? 0x7e : 0x7b;
  const double a = std::min(std::fabs(double(x)), value_of_code(format, most));
  int best = 0;
  for (int code = 1; code <= most; ++code) {
    const double gap = std::fabs(a - value_of_code(format, code));
    const double least = std::fabs(a - value_of_code(format, best));
    if (gap < least || (gap == least && code % 2 == 0)) best = code;
  }
  return std::copysign(float(value_of_code(format, best)), x);
}

struct TorchCast {
  Fp8 format;
  float value;
  int code;
};
std::vector<TorchCast> torch_casts() {
  std::ifstream in("golden/pytorch/fp8/casts.txt");
  std::vector<TorchCast> all;
  for (std::string format, bits_text, code; in >> format >> bits_text >> code;)
    all.push_back({format == "e4m3" ? Fp8::e4m3 : Fp8::e5m2,
                   from_bits(static_cast<std::uint32_t>(std::stoul(bits_text, nullptr, 16))),
                   std::stoi(code, nullptr, 16)});
  return all;
}

float cast_one(const Fp8Cast& cast, float x) {
  float y = 0;
  fp8_cast<float>({}, cast, {&x, 1, 1, 1}, {&y, 1, 1, 1});
  return y;
}

TEST(Fp8Codes, EveryCodeHasTheValueThatTheFormatDefines) {
  for (const Fp8 format : kFormats) {
    for (int code = 0; code < 256; ++code) {
      const float want = float(value_of_code(format, code)), is = from_fp8(format, static_cast<std::uint8_t>(code));
      ASSERT_EQ(canonical(is), canonical(want)) << code;
      if (!std::isfinite(want)) continue;
      ASSERT_EQ(to_fp8(format, want), code);
    }
  }
}

// torch saturates e4m3, infinities too, and lets e5m2 overflow; ours makes NaN of infinities.
TEST(Fp8Codes, AreThoseOfPyTorchAtEveryBoundary) {
  const std::vector<TorchCast> all = torch_casts();
  ASSERT_EQ(all.size(), 4684U);
  for (const TorchCast& one : all) {
    if (!std::isfinite(one.value)) continue;
    ASSERT_EQ(to_fp8(one.format, one.value, one.format == Fp8::e4m3), one.code) << std::hex << bits(one.value);
  }
}

TEST_P(Fp8Casts, AreWorthWhatTheirCodesAre) {
  for (const TorchCast& one : torch_casts()) {
    const float is = cast_one({one.format, 1, true}, one.value);
    ASSERT_EQ(canonical(is), canonical(nearest(one.format, one.value))) << std::hex << bits(one.value);
    if (!std::isfinite(one.value)) continue;
    ASSERT_EQ(canonical(is), canonical(from_fp8(one.format, to_fp8(one.format, one.value))));
  }
}

TEST_P(Fp8Casts, SaturateAndWithoutThatAreNan) {
  EXPECT_EQ(cast_one({Fp8::e4m3, 1, true}, 1e30F), 448);
  EXPECT_EQ(cast_one({Fp8::e5m2, 0x1p100F, true}, -0x1p100F), -57344 * 0x1p-100F);
  EXPECT_TRUE(std::isnan(cast_one({Fp8::e4m3, 1, false}, 470)));
  EXPECT_EQ(cast_one({Fp8::e4m3, 1, false}, 460), 448);
  EXPECT_TRUE(std::isnan(cast_one({Fp8::e4m3, 1, true}, INFINITY)));
  EXPECT_TRUE(std::isnan(cast_one({Fp8::e5m2, 1, true}, NAN)));
}

TEST_P(Fp8Casts, MultiplyByTheScaleRoundAndDivide) {
  Rng rng(1);
  for (const Fp8 format : kFormats) {
    for (int i = 0; i < 3000; ++i) {
      const float scale = std::ldexp(1 + float(rng() % 1000) / 1000, int(rng() % 40) - 20);
      const float x = std::ldexp(float(rng() % 2000) - 1000, int(rng() % 30) - 25);
      ASSERT_EQ(canonical(cast_one({format, scale, true}, x)), canonical(nearest(format, x * scale) * (1 / scale)));
    }
  }
}

// Every 251st float, on every set; each tail length.
TEST(Fp8Sets, HaveEqualBits) {
  constexpr std::size_t kChunk = 4099;
  Floats x(kChunk), want(kChunk), y(kChunk);
  const Index n = Index(kChunk);
  for (std::uint64_t begin = 0; begin < 1ULL << 32; begin += 251ULL * kChunk) {
    for (std::size_t i = 0; i < kChunk; ++i) x[i] = from_bits(static_cast<std::uint32_t>(begin + i * 251));
    const Fp8 format = kFormats[begin / (251 * kChunk) % 2];
    force_isa(Isa::scalar);
    fp8_cast<float>({}, {format, 3.7F, true}, {x.data(), 1, n, n}, {want.data(), 1, n, n});
    for (const Isa isa : {Isa::avx2, Isa::avx512}) {
      if (!cpu_has(isa)) continue;
      force_isa(isa);
      fp8_cast<float>({}, {format, 3.7F, true}, {x.data(), 1, n, n}, {y.data(), 1, n, n});
      for (std::size_t i = 0; i < kChunk; ++i) ASSERT_EQ(canonical(y[i]), canonical(want[i])) << std::hex << bits(x[i]);
    }
  }
}

TEST(Fp8Scale, IsTransformerEngines) {
  EXPECT_EQ(fp8_scale({Fp8::e4m3}, 2, 5), 224);
  EXPECT_EQ(fp8_scale({Fp8::e4m3, 2}, 2, 5), 56);
  EXPECT_EQ(fp8_scale({Fp8::e5m2, 0, true}, 3, 5), 16384);  // of 19114.67
  EXPECT_EQ(fp8_scale({Fp8::e4m3}, 0, 5), 5);
  EXPECT_EQ(fp8_scale({Fp8::e4m3}, INFINITY, 5), 5);
  EXPECT_EQ(fp8_scale({Fp8::e4m3}, NAN, 5), 5);
  EXPECT_EQ(fp8_scale({Fp8::e4m3}, 0x1p-149F, 5), std::numeric_limits<float>::max());
}

// By the definition: the least power of two with which nothing saturates, found by trying.
void expect_block(Fp8 format, const Floats& x, const Floats& y) {
  float most = 0;
  bool finite = true;
  for (const float one : x) most = std::max(most, std::fabs(one)), finite = finite && std::isfinite(one);
  int e = -127;
  while (double(largest(format)) * std::ldexp(1.0, e) < double(most)) ++e;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float want =
        finite ? float(double(nearest(format, float(std::ldexp(double(x[i]), -e)))) * std::ldexp(1.0, e)) : NAN;
    ASSERT_EQ(canonical(y[i]), canonical(want)) << i << ' ' << x[i] << " by 2^" << e;
  }
}

TEST_P(Fp8Casts, OfBlocksHaveTheLeastPowerOfTwoThatSaturatesNothing) {
  Rng rng(2);
  constexpr Index kRows = 45, kCols = 71, kSegment = 37;
  for (const Fp8 format : kFormats) {
    Floats x(kRows * kCols), along(x.size()), down(x.size());
    for (float& one : x) one = std::ldexp(float(rng() % 4096) - 2048, int(rng() % 60) - 40);
    for (Index c = 0; c < kCols; ++c) x[std::size_t(c)] = 0;
    for (std::size_t i = 100; i < 132; ++i) x[i] = 1.75F * (i % 2 == 0 ? 1 : 0x1.000002p0F);  // just above the boundary
    x[500] = NAN, x[900] = INFINITY, x[1300] = 0x1p-149F, x[1400] = std::numeric_limits<float>::max();
    mx_cast<float>({}, format, false, kSegment, {x.data(), kRows, kCols, kCols}, {along.data(), kRows, kCols, kCols});
    mx_cast<float>({}, format, true, kSegment, {x.data(), kRows, kCols, kCols}, {down.data(), kRows, kCols, kCols});
    const auto take = [&](const Floats& from, Index first, Index size, Index step) {
      Floats block;
      for (Index i = 0; i < size; ++i) block.push_back(from[std::size_t(first + i * step)]);
      return block;
    };
    const auto blocks = [&](Index n, auto each) {
      for (Index s = 0; s < n; s += kSegment)
        for (Index at = s; at < std::min(n, s + kSegment); at += 32)
          each(at, std::min<Index>(32, std::min(n, s + kSegment) - at));
    };
    for (Index r = 0; r < kRows; ++r)
      blocks(kCols, [&](Index at, Index size) {
        expect_block(format, take(x, r * kCols + at, size, 1), take(along, r * kCols + at, size, 1));
      });
    for (Index c = 0; c < kCols; ++c)
      blocks(kRows, [&](Index at, Index size) {
        expect_block(format, take(x, at * kCols + c, size, kCols), take(down, at * kCols + c, size, kCols));
      });
  }
}

TEST_P(Fp8Casts, OfSamplesDependOnNoOtherSample) {
  Rng rng(3);
  Floats x(6 * 21), all(x.size()), one(x.size());
  for (float& value : x) value = float(rng() % 1000) - 500;
  const Fp8Rule rule{Fp8::e4m3};
  fp8_cast_samples<float>({}, rule, 2, {x.data(), 6, 21, 21}, {all.data(), 6, 21, 21});
  for (Index s = 0; s < 3; ++s)
    fp8_cast_samples<float>({}, rule, 2, {x.data() + s * 42, 2, 21, 21}, {one.data() + s * 42, 2, 21, 21});
  EXPECT_EQ(all, one);
}

TEST_P(Fp8Casts, LargestMagnitudesAreFoldedAndKnowWhatIsNotFinite) {
  Floats x(53, -1.5F);
  x[52] = -7;
  float most = 2;
  fold_magnitude<float>({}, {x.data(), 1, 53, 53}, {&most, 1});
  EXPECT_EQ(most, 7);
  fold_magnitude<float>({}, {x.data(), 1, 20, 20}, {&most, 1});
  EXPECT_EQ(most, 7);
  x[3] = NAN;
  fold_magnitude<float>({}, {x.data(), 1, 53, 53}, {&most, 1});
  EXPECT_EQ(most, INFINITY);
}

// In 16 bits the values are widened, and nothing else differs.
TEST_P(Fp8Casts, OfTensorsIn16BitsAreThoseOfTheirValues) {
  Rng rng(4);
  std::vector<bf16> stored(777);
  Floats wide(stored.size()), is(stored.size()), want(stored.size());
  for (bf16& one : stored) one.bits = static_cast<std::uint16_t>(rng());
  widen<bf16>({}, {stored.data(), 777}, vec(wide));
  fp8_cast<bf16>({}, {Fp8::e5m2, 9, true}, {stored.data(), 1, 777, 777}, {is.data(), 1, 777, 777});
  fp8_cast<float>({}, {Fp8::e5m2, 9, true}, {wide.data(), 1, 777, 777}, {want.data(), 1, 777, 777});
  for (std::size_t i = 0; i < is.size(); ++i) ASSERT_EQ(canonical(is[i]), canonical(want[i]));
}

}  // namespace
}  // namespace seeksim::kernels::test
