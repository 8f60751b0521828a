#include "pytorch/core/sums.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <random>

#include "kernels/cast.h"
#include "kernels/isa.h"
#include "kernels/tree.h"
#include "pytorch/core/number_formats.h"

namespace seeksim::pytorch {
namespace {

template <class T>
std::vector<T> reduced(DType type, ReduceName op, const std::vector<std::vector<T>>& ranks, double factor = 1) {
  std::vector<const std::byte*> inputs;
  for (const std::vector<T>& values : ranks) inputs.push_back(reinterpret_cast<const std::byte*>(values.data()));
  std::vector<T> out(ranks[0].size());
  reduce(type, op, inputs, reinterpret_cast<std::byte*>(out.data()), out.size(), factor);
  return out;
}

std::vector<std::vector<float>> random_ranks(std::size_t ranks, std::size_t n) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> all(ranks, std::vector<float>(n));
  for (auto& values : all) {
    for (float& x : values) x = normal(random) * std::exp(4 * normal(random));
  }
  return all;
}

TEST(RankSums, AreTheContractsTreeOverRanks) {
  for (const std::size_t ranks : {1U, 2U, 3U, 4U, 5U, 7U, 8U, 13U}) {
    const auto all = random_ranks(ranks, 1031);
    const std::vector<float> sum = reduced(DType::fp32, ReduceName::sum, all);
    for (std::size_t i = 0; i < sum.size(); ++i) {
      std::vector<float> leaves;
      for (const auto& values : all) leaves.push_back(values[i]);
      const float wanted = kernels::tree_fold({leaves.data(), kernels::Index(leaves.size())});
      ASSERT_EQ(std::bit_cast<std::uint32_t>(sum[i]), std::bit_cast<std::uint32_t>(wanted)) << ranks << " ranks, " << i;
    }
  }
}

TEST(RankSums, AChainOverRanksWouldBeSeen) {
  const auto all = random_ranks(4, 1031);
  const std::vector<float> sum = reduced(DType::fp32, ReduceName::sum, all);
  int other = 0;
  for (std::size_t i = 0; i < sum.size(); ++i) other += ((all[0][i] + all[1][i]) + all[2][i]) + all[3][i] != sum[i];
  EXPECT_GT(other, 50);
}

TEST(RankSums, DoNotDependOnHowATensorIsCutOrOnNeighboursSummedFirst) {
  const auto all = random_ranks(8, 600);
  const std::vector<float> whole = reduced(DType::fp32, ReduceName::sum, all);
  std::vector<std::vector<float>> part(8), halves;
  for (std::size_t r = 0; r < 8; ++r) part[r].assign(all[r].begin() + 501, all[r].begin() + 540);
  EXPECT_EQ(reduced(DType::fp32, ReduceName::sum, part), std::vector<float>(whole.begin() + 501, whole.begin() + 540));
  for (std::size_t r = 0; r < 8; r += 4) {
    const std::vector<std::vector<float>> half(all.begin() + std::ptrdiff_t(r), all.begin() + std::ptrdiff_t(r + 4));
    halves.push_back(reduced(DType::fp32, ReduceName::sum, half));
  }
  EXPECT_EQ(reduced(DType::fp32, ReduceName::sum, halves), whole);
}

// How many elements of `all` another order rounds otherwise. Each has to mean the same: a mean is not a third of it.
int rounded_otherwise(const std::vector<std::vector<float>>& all, ReduceName reduction, SumOrder order) {
  const double divisor = reduction == ReduceName::avg ? double(all.size()) : 1;
  const double factor = reduction == ReduceName::premul_sum ? 0.75 : 1;
  std::vector<const std::byte*> inputs;
  for (const auto& values : all) inputs.push_back(reinterpret_cast<const std::byte*>(values.data()));
  std::vector<float> canonical(all[0].size()), sum(all[0].size());
  const auto into = [&](std::vector<float>& to, SumOrder by) {
    reduce(DType::fp32, reduction, inputs, reinterpret_cast<std::byte*>(to.data()), to.size(), factor, by);
  };
  into(canonical, SumOrder::canonical);
  into(sum, order);
  int other = 0;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    double size = 0;
    for (const auto& values : all) size += std::fabs(double(values[i]));
    EXPECT_LE(std::fabs(double(sum[i]) - double(canonical[i])), size / divisor * 3e-6) << name(order) << ' ' << i;
    other += sum[i] != canonical[i];
  }
  return other;
}

TEST(RankSums, OtherOrdersRoundOtherwiseAndMeanTheSame) {
  for (const std::size_t ranks : {2U, 3U, 4U, 8U}) {
    const auto all = random_ranks(ranks, 1031);
    for (int o = 1; o < int(SumOrder::count_); ++o) {
      const auto order = SumOrder(o);
      const bool parts = order == SumOrder::two_parts || order == SumOrder::three_parts;
      for (const ReduceName reduction : {ReduceName::sum, ReduceName::avg, ReduceName::premul_sum}) {
        SCOPED_TRACE(testing::Message() << name(order) << ", " << name(reduction) << " of " << ranks);
        const int other = rounded_otherwise(all, reduction, order);
        if (ranks == 2 && !parts) {
          EXPECT_EQ(other, 0);  // two operands commute
        } else {
          EXPECT_GT(other, 50);
        }
      }
      EXPECT_EQ(sum_order(name(order)), order);
    }
  }
}

TEST(RankSums, WhatIsNotFiniteIsNotCut) {
  const float infinite = std::numeric_limits<float>::infinity(), large = 0x1.8p+127F;
  const std::vector<std::vector<float>> all = {{infinite, large, -0.0F}, {1, -large, -0.0F}};
  std::vector<const std::byte*> inputs;
  for (const auto& values : all) inputs.push_back(reinterpret_cast<const std::byte*>(values.data()));
  for (const SumOrder order : {SumOrder::two_parts, SumOrder::three_parts}) {
    std::vector<float> sum(3);
    reduce(DType::fp32, ReduceName::sum, inputs, reinterpret_cast<std::byte*>(sum.data()), 3, 1, order);
    EXPECT_EQ(sum[0], infinite);
    EXPECT_EQ(sum[1], 0);
    EXPECT_EQ(sum[2], 0);
  }
}

TEST(RankSums, OnlySumsOfFloatingPointHaveAnotherOrder) {
  using I = std::vector<std::vector<std::int32_t>>;
  const I ints = {{7}, {-3}, {5}};
  std::vector<const std::byte*> inputs;
  for (const auto& values : ints) inputs.push_back(reinterpret_cast<const std::byte*>(values.data()));
  std::int32_t sum = 0;
  reduce(DType::int32, ReduceName::sum, inputs, reinterpret_cast<std::byte*>(&sum), 1, 1, SumOrder::three_parts);
  EXPECT_EQ(sum, 9);
}

TEST(RankSums, MinusZeroStays) {
  const std::vector<float> sum = reduced<float>(DType::fp32, ReduceName::sum, {{-0.0F}, {-0.0F}, {-0.0F}});
  EXPECT_TRUE(std::signbit(sum[0]));
}

TEST(RankSums, SixteenBitsAreSummedInFp32AndRoundedOnce) {
  // In bf16 1 + 2^-9 is 1, whichever way it is rounded in between; both small ones together count.
  const auto b = [](float x) { return Bf16::narrow(x).bits; };
  using Ranks = std::vector<std::vector<std::uint16_t>>;
  const Ranks ranks = {{b(1)}, {b(0x1p-8F)}, {b(0x1p-8F)}, {b(0)}};
  EXPECT_EQ(reduced(DType::bf16, ReduceName::sum, ranks)[0], b(1 + 0x1p-7F));
  const auto h = [](float x) { return Fp16::narrow(x).bits; };
  EXPECT_EQ(reduced(DType::fp16, ReduceName::sum, Ranks{{h(60000)}, {h(60000)}, {h(-60000)}})[0], h(60000));
}

TEST(RankSums, EveryReductionOfEveryKindOfNumber) {
  using F = std::vector<std::vector<float>>;
  const F f = {{3, -2}, {5, 7}};
  EXPECT_EQ(reduced(DType::fp32, ReduceName::avg, f), (std::vector<float>{4, 2.5}));
  EXPECT_EQ(reduced(DType::fp32, ReduceName::product, f), (std::vector<float>{15, -14}));
  EXPECT_EQ(reduced(DType::fp32, ReduceName::min, f), (std::vector<float>{3, -2}));
  EXPECT_EQ(reduced(DType::fp32, ReduceName::max, f), (std::vector<float>{5, 7}));
  EXPECT_EQ(reduced(DType::fp32, ReduceName::premul_sum, f, 0.5), (std::vector<float>{4, 2.5}));
  using I = std::vector<std::vector<std::int8_t>>;
  EXPECT_EQ(reduced(DType::int8, ReduceName::sum, I{{100}, {100}})[0], std::int8_t(200));  // wraps
  EXPECT_EQ(reduced(DType::int8, ReduceName::avg, I{{-3}, {-4}})[0], -3);
  EXPECT_EQ(reduced(DType::int8, ReduceName::min, I{{-3}, {4}})[0], -3);
  EXPECT_EQ(reduced(DType::int8, ReduceName::product, I{{-3}, {4}})[0], -12);
  using L = std::vector<std::vector<std::int64_t>>;
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(reduced(DType::int64, ReduceName::sum, L{{kMost}, {1}})[0], std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(reduced(DType::int64, ReduceName::band, L{{12}, {10}})[0], 8);
  EXPECT_EQ(reduced(DType::int64, ReduceName::bor, L{{12}, {10}})[0], 14);
  EXPECT_EQ(reduced(DType::int64, ReduceName::bxor, L{{12}, {10}})[0], 6);
  using B = std::vector<std::vector<std::uint8_t>>;
  EXPECT_EQ(reduced(DType::boolean, ReduceName::sum, B{{1, 1, 0}, {1, 0, 0}}), (std::vector<std::uint8_t>{1, 1, 0}));
  EXPECT_EQ(reduced(DType::boolean, ReduceName::min, B{{1, 1, 0}, {1, 0, 0}}), (std::vector<std::uint8_t>{1, 0, 0}));
  EXPECT_EQ(reduced(DType::boolean, ReduceName::bxor, B{{1, 1, 0}, {1, 0, 0}}), (std::vector<std::uint8_t>{0, 1, 0}));
  using C = std::complex<float>;
  using Cs = std::vector<std::vector<C>>;
  EXPECT_EQ(reduced(DType::complex64, ReduceName::product, Cs{{C(1, 2)}, {C(3, -1)}})[0], C(5, 5));
  EXPECT_EQ(reduced(DType::complex64, ReduceName::avg, Cs{{C(1, 2)}, {C(3, -1)}})[0], C(2, 0.5));
}

TEST(RankSums, NanIsNeverLostInAMinimumOrMaximum) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const ReduceName op : {ReduceName::min, ReduceName::max}) {
    for (const std::vector<std::vector<float>>& ranks :
         {std::vector<std::vector<float>>{{nan}, {1}, {2}}, {{1}, {nan}, {2}}, {{1}, {2}, {nan}}}) {
      EXPECT_TRUE(std::isnan(reduced(DType::fp32, op, ranks)[0]));
    }
  }
}

TEST(RankSums, WhatHasNoMeaningIsRefused) {
  EXPECT_EQ(refusal(DType::fp32, ReduceName::band), "band of fp32");
  EXPECT_EQ(refusal(DType::complex64, ReduceName::max), "max of complex64");
  EXPECT_EQ(refusal(DType::boolean, ReduceName::avg), "avg of bool");
  EXPECT_EQ(refusal(DType::other, ReduceName::sum), "sum of other");
  EXPECT_EQ(refusal(DType::int32, ReduceName::bxor), "");
  EXPECT_EQ(refusal(DType::fp8_e4m3, ReduceName::sum), "");
}

// -------------------------------------------------------------------------------------------------------- formats

TEST(NumberFormats, SixteenBitsAreTheKernels) {
  std::vector<float> x;
  std::mt19937 random(3);
  for (int i = 0; i < 200000; ++i) x.push_back(std::bit_cast<float>(std::uint32_t(random())));
  for (const float special : {0.0F, -0.0F, 65504.0F, 65519.99F, 65520.0F, 0x1p-24F, 0x1p-25F, 0x1.8p-25F, 3.4e38F}) {
    x.push_back(special);
  }
  const auto n = kernels::Index(x.size());
  std::vector<kernels::bf16> b(x.size());
  std::vector<kernels::fp16> h(x.size());
  kernels::narrow<kernels::bf16>({}, {x.data(), n}, {b.data(), n});
  kernels::narrow<kernels::fp16>({}, {x.data(), n}, {h.data(), n});
  for (std::size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(Bf16::narrow(x[i]).bits, b[i].bits) << x[i];
    ASSERT_EQ(Fp16::narrow(x[i]).bits, h[i].bits) << x[i];
  }
  std::vector<kernels::fp16> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i].bits = std::uint16_t(i);
  std::vector<float> wide(all.size());
  kernels::widen<kernels::fp16>({}, {all.data(), 65536}, {wide.data(), 65536});
  for (std::size_t i = 0; i < all.size(); ++i) {
    const float mine = Fp16::widen({std::uint16_t(i)});
    if (std::isnan(mine) && std::isnan(wide[i])) continue;  // a NaN's payload is outside the contract (R9)
    ASSERT_EQ(std::bit_cast<std::uint32_t>(mine), std::bit_cast<std::uint32_t>(wide[i])) << i;
  }
}

// The definition: mantissa and exponent of a finite number.
double defined(int bits, int mantissa, int bias) {
  const int m = bits & ((1 << mantissa) - 1), e = (bits & 0x7f) >> mantissa;
  const double x = e == 0 ? std::ldexp(m, 1 - bias - mantissa) : std::ldexp((1 << mantissa) + m, e - bias - mantissa);
  return (bits & 0x80) != 0 ? -x : x;
}

template <class Format>
void hold_to_definition(int mantissa, int bias, int finite) {
  for (int i = 0; i < finite; ++i) {
    const double x = defined(i, mantissa, bias);
    ASSERT_EQ(double(Format::widen({std::uint8_t(i)})), x) << i;
    ASSERT_EQ(double(Format::widen({std::uint8_t(i | 0x80)})), -x) << i;
    ASSERT_EQ(Format::narrow(float(x)).bits, i);
    if (i + 1 == finite) break;
    const double middle = (x + defined(i + 1, mantissa, bias)) / 2;
    ASSERT_EQ(Format::narrow(float(middle)).bits, i % 2 == 0 ? i : i + 1) << "a tie goes to the even one";
    ASSERT_EQ(Format::narrow(std::nextafter(float(middle), 0.0F)).bits, i);
    ASSERT_EQ(Format::narrow(std::nextafter(float(middle), 1e9F)).bits, i + 1);
  }
}

TEST(NumberFormats, EightBitsRoundToTheNearest) {
  hold_to_definition<Fp8E4M3>(3, 7, 0x7f);
  hold_to_definition<Fp8E5M2>(2, 15, 0x7c);
}

TEST(NumberFormats, EightBitsOutsideTheirRange) {
  EXPECT_EQ(Fp8E4M3::narrow(465.0F).bits, 0x7e);  // 480 does not exist: 448 is the largest
  EXPECT_EQ(Fp8E4M3::narrow(-1e30F).bits, 0xfe);
  EXPECT_EQ(Fp8E4M3::narrow(std::numeric_limits<float>::infinity()).bits, 0x7e);
  EXPECT_EQ(Fp8E4M3::narrow(std::numeric_limits<float>::quiet_NaN()).bits, 0x7f);
  EXPECT_TRUE(std::isnan(Fp8E4M3::widen({0x7f})));
  EXPECT_EQ(Fp8E5M2::narrow(1e30F).bits, 0x7c);
  EXPECT_TRUE(std::isinf(Fp8E5M2::widen({0xfc})));
  EXPECT_TRUE(std::isnan(Fp8E5M2::widen({0x7d})));
  EXPECT_EQ(Fp8E5M2::narrow(std::numeric_limits<float>::quiet_NaN()).bits, 0x7f);
}

}  // namespace
}  // namespace seeksim::pytorch
