// Each oracle seen to fail: the classic ways of breaking the contract, applied on purpose, must change a compared bit.
// A mutation that no test data can see would mean that the tests above prove nothing.

#include <xmmintrin.h>

#include "kernels/gemm.h"
#include "kernels/isa.h"
#include "kernels/layer_norm.h"
#include "kernels/norms.h"
#include "kernels/tree.h"
#include "tests/kernels/half.h"

namespace seeksim::kernels::test {

float contracted_square_difference(float a, float c);  // mutation_contracted_avx2.cpp
float separate_square_difference(float a, float c);

namespace {

constexpr std::size_t kN = 300;

// F4 with lanes 0 and 1 swapped after `swap_at` halvings.
float lanes_swapped(const Floats& x, std::size_t level) {
  Floats s(128, 0.0F);
  for (std::size_t i = 0; i < x.size(); ++i) s[i % 128] = fma1(x[i], x[i], s[i % 128]);
  for (std::size_t w = 64; w > 0; w /= 2) {
    if (w == level) std::swap(s[0], s[w]), std::swap(s[1], s[0]);
    for (std::size_t l = 0; l < w; ++l) s[l] = s[l] + s[l + w];
  }
  return s[0];
}

TEST(Mutation, TwoSwappedLanesAreSeen) {
  Rng rng(1);
  int seen = 0;
  for (int round = 0; round < 50; ++round) {
    const Floats x = uniforms(rng, kN);
    Floats out(1);
    norm2_blocks({}, vec(x), vec(out));
    ASSERT_EQ(bits(out[0]), bits(lanes(kN, [&](float s, std::size_t i) { return fma1(x[i], x[i], s); })));
    seen += bits(out[0]) != bits(lanes_swapped(x, 64));
  }
  EXPECT_GT(seen, 5);
}

TEST(Mutation, APaddingLeafOfPlusZeroIsSeen) {
  const Floats leaves = {-0.0F, -0.0F, -0.0F};
  Floats padded = leaves;
  padded.push_back(0.0F);
  EXPECT_EQ(bits(tree_fold(vec(leaves))), bits(-0.0F));
  EXPECT_NE(bits(tree_fold(vec(padded))), bits(tree_fold(vec(leaves))));
  Floats out(1);
  const TreePart parts[] = {{{1, 0}, &leaves[0]}, {{0, 2}, &leaves[2]}};
  tree_sum({}, parts, 2, 3, vec(out));
  EXPECT_EQ(bits(out[0]), bits(-0.0F));
}

TEST(Mutation, OneExtraAccumulatorIsSeen) {
  Rng rng(2);
  int seen = 0;
  for (int round = 0; round < 20; ++round) {
    const Floats a = uniforms(rng, kN), b = uniforms(rng, kN);
    Floats c(1);
    gemm({}, Trans::no, Trans::no, mat(a, 1, kN), mat(b, kN, 1), mat(c, 1, 1));
    ASSERT_EQ(bits(c[0]), bits(segchain(a, b, kN)));
    float even = 0, odd = 0;
    for (std::size_t k = 0; k < kN; k += 2) even = fma1(a[k], b[k], even), odd = fma1(a[k + 1], b[k + 1], odd);
    seen += bits(c[0]) != bits(even + odd);
  }
  EXPECT_GT(seen, 10);
}

TEST(Mutation, OneSegmentTooManyIsSeen) {
  Rng rng(3);
  const Floats a = uniforms(rng, kN), b = uniforms(rng, kN);
  Floats chain(1), segments(1);
  gemm({}, Trans::no, Trans::no, mat(a, 1, kN), mat(b, kN, 1), mat(chain, 1, 1), 0);
  int seen = 0;
  for (Index segment = 20; segment < 120; segment += 7) {
    gemm({}, Trans::no, Trans::no, mat(a, 1, kN), mat(b, kN, 1), mat(segments, 1, 1), segment);
    seen += bits(chain[0]) != bits(segments[0]);
  }
  EXPECT_GT(seen, 5);
}

TEST(Mutation, PaddingAlongKIsSeen) {
  // -1e-30 * 1e-30 underflows to -0 behind a chain of +0: one more product of zeros turns it into +0.
  const Floats a = {-1e-30F, 0.0F}, b = {1e-30F, 0.0F};
  Floats c(1);
  gemm({}, Trans::no, Trans::no, mat(a, 1, 1), mat(b, 1, 1), mat(c, 1, 1));
  EXPECT_EQ(bits(c[0]), bits(-0.0F));
  gemm({}, Trans::no, Trans::no, mat(a, 1, 2), mat(b, 2, 1), mat(c, 1, 1));
  EXPECT_EQ(bits(c[0]), bits(0.0F));
}

TEST(Mutation, FlushToZeroIsSeenBySelfTestAndByBits) {
  ASSERT_EQ(self_test(), "");
  ASSERT_TRUE(float_environment_ok());
  const Floats a = {0x1p-100F}, b = {0x1p-40F};
  Floats kept(1), flushed(1);
  gemm({}, Trans::no, Trans::no, mat(a, 1, 1), mat(b, 1, 1), mat(kept, 1, 1));
  const unsigned before = _mm_getcsr();
  for (unsigned mode : {0x8000U, 0x8040U}) {  // FTZ, FTZ and DAZ
    _mm_setcsr(before | mode);
    const std::string complaint = self_test();
    const bool ok = float_environment_ok();
    gemm({}, Trans::no, Trans::no, mat(a, 1, 1), mat(b, 1, 1), mat(flushed, 1, 1));
    _mm_setcsr(before);
    EXPECT_NE(complaint, "");
    EXPECT_FALSE(ok);
    EXPECT_NE(bits(kept[0]), bits(flushed[0]));
  }
  EXPECT_EQ(kept[0], 0x1p-140F);
}

TEST(Mutation, AnotherRoundingModeIsSeenBySelfTest) {
  const unsigned before = _mm_getcsr();
  for (unsigned mode : {0x2000U, 0x4000U, 0x6000U}) {
    _mm_setcsr(before | mode);
    const std::string complaint = self_test();
    const bool ok = float_environment_ok();
    _mm_setcsr(before);
    EXPECT_NE(complaint, "") << mode;
    EXPECT_FALSE(ok);
  }
  _mm_setcsr(before | 0x3fU);  // sticky flags alone are nothing
  EXPECT_TRUE(float_environment_ok());
  _mm_setcsr(before);
}

// The self-test's own probe, in a file compiled with contraction allowed and in one without.
TEST(Mutation, ContractionIsSeenByTheProbe) {
  EXPECT_EQ(separate_square_difference(0x1.001p0F, -0x1.002p0F), 0.0F);
  EXPECT_EQ(contracted_square_difference(0x1.001p0F, -0x1.002p0F), 0x1p-24F);
}

TEST(Mutation, DividingByTheWorldBeforeTheSumIsSeen) {
  Rng rng(4);
  int seen = 0;
  for (int round = 0; round < 50; ++round) {
    const Floats leaves = uniforms(rng, 6);
    Floats scaled = leaves;
    for (float& x : scaled) x = x * (1.0F / 3.0F);
    Floats out(1);
    std::vector<TreePart> parts;
    for (Index i = 0; i < 6; ++i) parts.push_back({{0, i}, &leaves[static_cast<std::size_t>(i)]});
    tree_sum({}, parts.data(), 6, 6, vec(out), 1.0F / 3.0F);
    ASSERT_EQ(bits(out[0]), bits(tree(leaves) * (1.0F / 3.0F)));
    seen += bits(out[0]) != bits(tree(scaled));
  }
  EXPECT_GT(seen, 10);
}

TEST(Mutation, AddingSamplesInAnotherOrderIsSeen) {
  Rng rng(5);
  constexpr std::size_t kTokens = 8, kSamples = 6, kC = 16;
  const Floats dy = uniforms(rng, kTokens * kSamples * kC);
  Floats db(kC), chain(kC, 0.0F);
  bias_grad({}, mat(dy, kTokens * kSamples, kC), kTokens, vec(db));
  for (std::size_t r = 0; r < kTokens * kSamples; ++r)
    for (std::size_t j = 0; j < kC; ++j) chain[j] = chain[j] + dy[r * kC + j];
  EXPECT_NE(difference(db, chain), "");
}

// 16-bit results are rounded once: rounding the sum before the bias is added, as two operations in a row would, shows.
template <class T>
int roundings_seen(Rng& rng) {
  int seen = 0;
  for (int round = 0; round < 200; ++round) {
    const auto a = draw<T>(rng, kN, 1000000, false), b = draw<T>(rng, kN, 1000000, false),
               bias = draw<T>(rng, 1, 1000000, false);
    Tensor<T> c(Floats(1));
    gemm<T>({}, Trans::no, Trans::no, a.mat(1, kN), b.mat(kN, 1), c.out(1, 1), 0, bias.vec());
    const float sum = segchain(a.wide, b.wide, kN);
    EXPECT_EQ(c.stored[0].bits, round_one<T>(sum + bias.wide[0]).bits);
    seen += c.stored[0].bits != round_one<T>(widen_one(round_one<T>(sum)) + bias.wide[0]).bits;
  }
  return seen;
}

TEST(Mutation, RoundingTwiceIsSeen) {
  Rng rng(6);
  EXPECT_GT(roundings_seen<bf16>(rng), 10);
  EXPECT_GT(roundings_seen<fp16>(rng), 10);
}

// A conversion that flushes the denormals of fp16, on the way in or out, gives other bits than every set here.
TEST(Mutation, FlushedFp16DenormalsAreSeen) {
  const auto flushed = [](float x) { return std::fabs(x) < 0x1p-14F ? std::copysign(0.0F, x) : x; };
  const Isa before = active_isa();
  for (Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512}) {
    if (!cpu_has(isa)) continue;
    force_isa(isa);
    Rng rng(7);
    int seen_out = 0, seen_in = 0;
    for (int round = 0; round < 50; ++round) {
      const Tensor<fp16> small(Floats{uniform(rng) * 0x1p-7F}), other(Floats{uniform(rng) * 0x1p-8F}),
          least(Floats{uniform(rng) * 0x1p-15F}), large(Floats{1024 * uniform(rng)});
      Tensor<fp16> out(Floats(1)), in(Floats(1));
      gemm<fp16>({}, Trans::no, Trans::no, small.mat(1, 1), other.mat(1, 1), out.out(1, 1));
      gemm<fp16>({}, Trans::no, Trans::no, least.mat(1, 1), large.mat(1, 1), in.out(1, 1));
      EXPECT_EQ(out.stored[0].bits, round_one<fp16>(fma1(small.wide[0], other.wide[0], 0.0F)).bits);
      EXPECT_EQ(in.stored[0].bits, round_one<fp16>(fma1(least.wide[0], large.wide[0], 0.0F)).bits);
      seen_out += out.stored[0].bits != round_one<fp16>(flushed(small.wide[0] * other.wide[0])).bits;
      seen_in += in.stored[0].bits != round_one<fp16>(fma1(flushed(least.wide[0]), large.wide[0], 0.0F)).bits;
    }
    EXPECT_GT(seen_out, 40) << name(isa);
    EXPECT_GT(seen_in, 40) << name(isa);
  }
  force_isa(before);
}

}  // namespace
}  // namespace seeksim::kernels::test
