#include "pytorch/core/digest.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace seeksim::pytorch {
namespace {

template <class T>
std::span<const std::byte> bytes(const std::vector<T>& v) {
  return std::as_bytes(std::span<const T>(v));
}

std::vector<float> some_numbers(std::size_t n) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (float& value : x) value = normal(random);
  return x;
}

TEST(Digests, DifferWithEveryBit) {
  std::vector<float> x = some_numbers(10000);
  const std::uint64_t before = digest(DType::fp32, bytes(x), false).hash;
  for (const std::size_t i : {0U, 4095U, 4096U, 9999U}) {
    const float was = x[i];
    x[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(was) ^ 1U);
    EXPECT_NE(digest(DType::fp32, bytes(x), false).hash, before) << i;
    x[i] = was;
  }
  EXPECT_EQ(digest(DType::fp32, bytes(x), false).hash, before);
}

TEST(Digests, DoNotDependOnHowTensorsAreCut) {
  const std::vector<float> x = some_numbers(9001);
  Digester parts(DType::fp32, true);
  parts.add(bytes(x).first(4 * 17));
  parts.add(bytes(x).subspan(4 * 17, 4 * 8000));
  parts.add(bytes(x).subspan(4 * 8017));
  const Digest whole = digest(DType::fp32, bytes(x), true);
  EXPECT_EQ(parts.done().hash, whole.hash);
  EXPECT_EQ(parts.done().measure.norm, whole.measure.norm);
  EXPECT_EQ(parts.done().measure.probe, whole.measure.probe);
}

TEST(Digests, EveryNanIsTheSameOneAndMinusZeroIsNotZero) {
  const auto hash = [](std::uint32_t bits) {
    return digest(DType::fp32, bytes(std::vector<std::uint32_t>{bits, 1}), false).hash;
  };
  EXPECT_EQ(hash(0x7fc00000U), hash(0xff800001U));
  EXPECT_NE(hash(0x7f800000U), hash(0x7fc00000U));
  EXPECT_NE(hash(0x00000000U), hash(0x80000000U));
}

template <class Word>
bool nonfinite(DType type, Word word) {
  std::vector<Word> x(100, Word(0));
  x[77] = word;
  return digest(type, bytes(x), false).nonfinite;
}

TEST(Digests, SeeWhatIsNotFiniteInEveryType) {
  EXPECT_TRUE(nonfinite<std::uint32_t>(DType::fp32, 0xff800000U));
  EXPECT_FALSE(nonfinite<std::uint32_t>(DType::fp32, 0x7f7fffffU));
  EXPECT_TRUE(nonfinite<std::uint64_t>(DType::fp64, 0x7ff0000000000000U));
  EXPECT_FALSE(nonfinite<std::uint64_t>(DType::fp64, 0xffefffffffffffffU));
  EXPECT_TRUE(nonfinite<std::uint16_t>(DType::bf16, 0x7f80));
  EXPECT_FALSE(nonfinite<std::uint16_t>(DType::bf16, 0x7f7f));
  EXPECT_TRUE(nonfinite<std::uint16_t>(DType::fp16, 0xfc00));
  EXPECT_FALSE(nonfinite<std::uint16_t>(DType::fp16, 0x7f7f - 0x0400));
  EXPECT_TRUE(nonfinite<std::uint8_t>(DType::fp8_e4m3, 0xff));
  EXPECT_FALSE(nonfinite<std::uint8_t>(DType::fp8_e4m3, 0x7e));
  EXPECT_TRUE(nonfinite<std::uint8_t>(DType::fp8_e5m2, 0x7c));
  EXPECT_FALSE(nonfinite<std::uint8_t>(DType::fp8_e5m2, 0x7b));
  EXPECT_FALSE(nonfinite<std::int32_t>(DType::int32, -1));
}

TEST(Digests, OfNothingAreNoHash) {
  Digester digester(DType::fp32, false);
  EXPECT_EQ(digester.done().hash, 0U);
  digester.add({});
  EXPECT_NE(digester.done().hash, 0U) << "an empty tensor was looked at";
  digester.again();
  EXPECT_EQ(digester.done().hash, 0U);
}

TEST(Digests, MeasureEveryType) {
  const std::vector<std::uint16_t> bf16 = {0x4040, 0xc080};  // 3, -4
  EXPECT_EQ(digest(DType::bf16, bytes(bf16), true).measure.norm, 5);
  const std::vector<std::uint16_t> fp16 = {0x4200, 0xc400};
  EXPECT_EQ(digest(DType::fp16, bytes(fp16), true).measure.norm, 5);
  const std::vector<double> fp64 = {3, -4};
  EXPECT_EQ(digest(DType::fp64, bytes(fp64), true).measure.norm, 5);
  const std::vector<std::uint8_t> e4m3 = {0x44, 0xc8};
  EXPECT_EQ(digest(DType::fp8_e4m3, bytes(e4m3), true).measure.norm, 5);
  EXPECT_EQ(digest(DType::fp64, bytes(fp64), false).measure.norm, 0);
}

TEST(Digests, TheProbeEstimatesHowFarApartTensorsAre) {
  const std::vector<float> x = some_numbers(100000);
  std::vector<float> y = x;
  std::mt19937 random(9);
  std::normal_distribution<float> noise(0, 1e-3F);
  double distance = 0;
  for (float& value : y) {
    const float before = value;
    value += noise(random);
    distance += double(value - before) * double(value - before);
  }
  const Digest a = digest(DType::fp32, bytes(x), true), b = digest(DType::fp32, bytes(y), true);
  const double estimate = std::abs(a.measure.probe - b.measure.probe);
  EXPECT_GT(estimate, 0.01 * std::sqrt(distance));
  EXPECT_LT(estimate, 5 * std::sqrt(distance));
  EXPECT_NEAR(a.measure.norm, std::sqrt(100000.0), 3);
}

}  // namespace
}  // namespace seeksim::pytorch
