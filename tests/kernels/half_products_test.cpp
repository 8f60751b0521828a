// Products and attention on 16-bit tensors, on every instruction set: the definition is "widen all inputs, do what fp32
// does, round each output once".

#include <algorithm>
#include <array>

#include "kernels/attention.h"
#include "kernels/gemm.h"
#include "tests/kernels/dropout_of_one.h"
#include "tests/kernels/half.h"

namespace seeksim::kernels::test {
namespace {

class HalfProducts : public OnEveryIsa {};
SEEKSIM_ON_EVERY_ISA(HalfProducts);

constexpr float kUntouched = 12352.0F;  // exact in both formats

struct Shape {
  std::size_t m, n, k, segment;
  bool ta, tb, bias;
};

template <class T>
void expect_product(Rng& rng, const Shape& s, unsigned odd) {
  const std::size_t lda = (s.ta ? s.m : s.k) + rng() % 5, ldb = (s.tb ? s.k : s.n) + rng() % 5, ldc = s.n + rng() % 5;
  const auto a = draw<T>(rng, std::max<std::size_t>(1, (s.ta ? s.k : s.m) * lda), odd, odd > 100);
  const auto b = draw<T>(rng, std::max<std::size_t>(1, (s.tb ? s.n : s.k) * ldb), odd, odd > 100);
  const auto bias = draw<T>(rng, s.bias ? s.n : 0, odd, odd > 100);
  Floats want(s.m * ldc, kUntouched), floats = want;
  Tensor<T> got(want);
  const std::size_t segment = s.segment == 0 ? std::max<std::size_t>(s.k, 1) : s.segment;
  for (std::size_t i = 0; i < s.m; ++i)
    for (std::size_t j = 0; j < s.n; ++j) {
      const float sum = segchain(&a.wide[s.ta ? i : i * lda], s.ta ? lda : 1, &b.wide[s.tb ? j * ldb : j],
                                 s.tb ? 1 : ldb, s.k, segment);
      want[i * ldc + j] = s.bias ? sum + bias.wide[j] : sum;
    }
  const auto am = a.mat(s.ta ? s.k : s.m, s.ta ? s.m : s.k, lda), bm = b.mat(s.tb ? s.n : s.k, s.tb ? s.k : s.n, ldb);
  const Trans ta = s.ta ? Trans::yes : Trans::no, tb = s.tb ? Trans::yes : Trans::no;
  const auto seg = static_cast<Index>(s.segment);
  gemm<T>({}, ta, tb, am, bm, got.out(s.m, s.n, ldc), seg, bias.vec());
  gemm<T, float>({}, ta, tb, am, bm, mat(floats, s.m, s.n, ldc), seg, bias.vec());
  ASSERT_EQ(difference_rounded(got.stored, want), "") << s.m << " x " << s.n << " x " << s.k << " segment " << segment;
  ASSERT_EQ(difference(floats, want), "") << s.m << " x " << s.n << " x " << s.k << " segment " << segment;
}

TEST_P(HalfProducts, GemmIsThatOfTheWidenedOperandsRoundedOnce) {
  Rng rng(1);
  for (int round = 0; round < 120; ++round) {
    const std::size_t k = between(rng, 0, round % 20 == 0 ? 1100 : 90);
    const Shape s{
        between(rng, 1, 40), between(rng, 1, 70), k, rng() % 3 == 0 ? 0 : between(rng, 1, k + 3), rng() % 2 == 0,
        rng() % 2 == 0,      rng() % 2 == 0};
    const unsigned odd = round % 3 == 0 ? 1000000 : round % 3 == 1 ? 10 : 400;
    expect_product<bf16>(rng, s, odd);
    expect_product<fp16>(rng, s, odd);
    if (HasFatalFailure()) return;
  }
}

TEST_P(HalfProducts, GemmAtTheEdgesOfItsTilesAndBlocks) {
  Rng rng(2);
  const std::vector<std::array<std::size_t, 4>> shapes = {{14, 32, 448, 0}, {15, 33, 449, 0}, {29, 65, 600, 75},
                                                          {1, 1, 1, 0},     {64, 32, 64, 8},  {100, 20, 130, 0}};
  for (const auto& [m, n, k, segment] : shapes)
    for (int t = 0; t < 4; ++t) {
      const Shape s{m, n, k, segment, (t & 1) != 0, (t & 2) != 0, true};
      expect_product<bf16>(rng, s, 300);
      expect_product<fp16>(rng, s, 300);
      if (HasFatalFailure()) return;
    }
}

// fp32 sums leave fp16 upwards and downwards: to infinity from 65520 on, to a denormal, to zero at half the least one.
TEST_P(HalfProducts, WhatLeavesTheRangeOfFp16RoundsAsIeeeSays) {
  const float products[][3] = {{65504, 1, 65504},
                               {256, 256, INFINITY},
                               {-256, 256, -INFINITY},
                               {0x1p-12F, 0x1p-12F, 0x1p-24F},
                               {0x1p-13F, 0x1p-12F, 0.0F},  // half the least denormal: a tie, to even
                               {-0x1p-14F, 0x1p-14F, -0.0F},
                               {0x1.8p-13F, 0x1p-12F, 0x1p-24F},
                               {0x1.04p-8F, 0x1p-8F, 0x1.04p-16F}};
  for (const auto& [x, y, want] : products) {
    const Tensor<fp16> a(Floats{x}), b(Floats{y});
    Tensor<fp16> c(Floats{1.0F});
    gemm<fp16>({}, Trans::no, Trans::no, a.mat(1, 1), b.mat(1, 1), c.out(1, 1));
    EXPECT_EQ(bits(widen_one(c.stored[0])), bits(want)) << x << " times " << y;
  }
  const Tensor<fp16> a(Floats{65504, 1}), below(Floats{1, 15.99F}), tie(Floats{1, 16});
  Tensor<fp16> c(Floats{0});
  gemm<fp16>({}, Trans::no, Trans::no, a.mat(1, 2), below.mat(2, 1), c.out(1, 1));
  EXPECT_EQ(c.stored[0].bits, 0x7bff);
  gemm<fp16>({}, Trans::no, Trans::no, a.mat(1, 2), tie.mat(2, 1), c.out(1, 1));
  EXPECT_EQ(c.stored[0].bits, 0x7c00) << "65520 is the tie between 65504 and 2^16, and 2^16 is even";
}

struct Case {
  std::size_t b, t, h, d, g = 1;
};

template <class T>
void expect_attention(Rng& rng, const Case& c, const Dropout& drop) {
  const AttentionShape shape{
      static_cast<Index>(c.b), static_cast<Index>(c.t), static_cast<Index>(c.h), static_cast<Index>(c.d), 0,
      static_cast<Index>(c.g)};
  const std::size_t rows = c.b * c.t, width = c.h / c.g * (c.g + 2) * c.d, wide = width + 2, heads = c.b * c.h * c.t,
                    out = c.h * c.d;
  const auto qkv = draw<T>(rng, rows * wide, 1000000, false), dout = draw<T>(rng, rows * out, 20, false);
  Tensor<T> probs(Floats(heads * c.t, 5.0F)), o(Floats(rows * out, 5.0F)), dqkv(Floats(rows * wide, 5.0F));
  Floats probs32(heads * c.t), o32(rows * out), dqkv32(rows * wide, 5.0F), scratch(2 * c.t * c.t);
  attention_forward<T>({}, shape, qkv.mat(rows, width, wide), probs.out(heads, c.t), o.out(rows, out), drop);
  attention_forward({}, shape, mat(qkv.wide, rows, width, wide), mat(probs32, heads, c.t), mat(o32, rows, out), drop);
  ASSERT_EQ(difference_rounded(probs.stored, probs32), "") << c.t << " " << c.d;
  ASSERT_EQ(difference_rounded(o.stored, o32), "") << c.t << " " << c.d;
  Floats kept;  // backward gets the rounded probabilities
  for (T p : probs.stored) kept.push_back(widen_one(p));
  attention_backward<T>({}, shape, dout.mat(rows, out), qkv.mat(rows, width, wide), probs.mat(heads, c.t),
                        mat(scratch, 2 * c.t, c.t), dqkv.out(rows, width, wide), drop);
  attention_backward({}, shape, mat(dout.wide, rows, out), mat(qkv.wide, rows, width, wide), mat(kept, heads, c.t),
                     mat(scratch, 2 * c.t, c.t), mat(dqkv32, rows, width, wide), drop);
  ASSERT_EQ(difference_rounded(dqkv.stored, dqkv32), "") << c.t << " " << c.d;
}

TEST_P(HalfProducts, AttentionRoundsProbabilitiesOutputAndGradientOnce) {
  Rng rng(3);
  for (const Case& c :
       {Case{1, 1, 1, 1}, Case{1, 5, 1, 3}, Case{2, 8, 2, 8}, Case{1, 9, 3, 8}, Case{2, 17, 2, 16}, Case{1, 64, 2, 8},
        Case{1, 33, 1, 64}, Case{1, 130, 1, 5}, Case{2, 7, 1, 20}, Case{2, 13, 6, 5, 3}, Case{1, 40, 8, 16, 4}}) {
    for (const Dropout& drop : {Dropout{}, some_dropout(0.4)}) {
      expect_attention<bf16>(rng, c, drop);
      expect_attention<fp16>(rng, c, drop);
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace seeksim::kernels::test
