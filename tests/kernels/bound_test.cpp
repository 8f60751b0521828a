// `fast` arithmetic and the bound on it: the bound itself against long double, sound kernels within it on every target,
// slips beyond it, and sums in the order of a ring.
#include "kernels/bound.h"

#include <algorithm>

#include "kernels/fast.h"
#include "kernels/gemm.h"
#include "tests/kernels/half.h"

namespace seeksim::kernels::test {
namespace {

class Bound : public OnEveryIsa {};
SEEKSIM_ON_EVERY_ISA(Bound);

template <class T>
Tensor<T> drawn(Rng& rng, std::size_t n) {
  return Tensor<T>(uniforms(rng, n));
}

// A product of T into To, of random operands, and all that is to be known of it.
template <class T, class To>
struct Product {
  std::size_t m, n, k;
  bool ta, tb;
  std::vector<T> a, b, bias;
  Floats wide_a, wide_b, wide_bias;
  std::vector<To> c;

  Product(Rng& rng, std::size_t rows, std::size_t cols, std::size_t depth, bool has_bias)
      : m(rows), n(cols), k(depth), ta(rng() % 2), tb(rng() % 2), c(m * n) {
    fill(rng, m * k, a, wide_a);
    fill(rng, k * n, b, wide_b);
    if (has_bias) fill(rng, n, bias, wide_bias);
  }
  static void fill(Rng& rng, std::size_t count, std::vector<T>& stored, Floats& wide) {
    if constexpr (std::is_same_v<T, float>) {
      stored = wide = uniforms(rng, count);
    } else {
      Tensor<T> both = drawn<T>(rng, count);
      stored = both.stored;
      wide = both.wide;
    }
  }
  GemmCall<T, To> call() {
    const auto mat_of = [](auto& v, std::size_t rows, std::size_t cols) {
      return Mat<std::remove_reference_t<decltype(v[0])>>{v.data(), Index(rows), Index(cols), Index(cols)};
    };
    return {ta,
            tb,
            mat_of(a, ta ? k : m, ta ? m : k),
            mat_of(b, tb ? n : k, tb ? k : n),
            mat_of(c, m, n),
            0,
            {bias.data(), Index(bias.size())}};
  }
  float left(std::size_t i, std::size_t l) const { return wide_a[ta ? l * m + i : i * k + l]; }
  float right(std::size_t l, std::size_t j) const { return wide_b[tb ? j * k + l : l * n + j]; }
  // The sum of all terms, or of their magnitudes.
  template <class F>
  long double reference(std::size_t i, std::size_t j, F of) const {
    long double sum = 0;
    for (std::size_t l = 0; l < k; ++l) sum += of((long double)left(i, l) * (long double)right(l, j));
    return wide_bias.empty() ? sum : sum + of((long double)wide_bias[j]);
  }
  Index terms() const { return Index(k) + (bias.empty() ? 0 : 1); }

  Comparison compared(const FastWay& way, bool by_tf32_bound = false) {
    FastArithmetic fast(way);
    fast.gemm({}, call());
    Floats exact(m * n), magnitudes(m * n);
    GemmCall<T, To> with = call();
    gemm<T, float>({}, ta ? Trans::yes : Trans::no, tb ? Trans::yes : Trans::no, with.a, with.b, mat(exact, m, n), 0,
                   with.bias);
    gemm_magnitudes(with, mat(magnitudes, m, n));
    return compare<To>({c.data(), Index(m), Index(n), Index(n)}, mat(exact, m, n), mat(magnitudes, m, n), terms(),
                       by_tf32_bound);
  }
};

template <class T, class To>
void expect_sound(Rng& rng, std::size_t k, bool has_bias) {
  Product<T, To> p(rng, between(rng, 1, 37), between(rng, 1, 75), k, has_bias);
  const Comparison seen = p.compared({});
  EXPECT_EQ(seen.over, 0) << p.m << " x " << p.n << " x " << k << ": " << seen.worst.ratio;
  EXPECT_EQ(seen.elements, Index(p.m * p.n));
  EXPECT_LE(seen.worst.ratio, 1);
  // Half of the bound is what one fp32 sum may be off by; the stored value may be off by its rounding besides.
  Floats magnitudes(p.m * p.n);
  gemm_magnitudes(p.call(), mat(magnitudes, p.m, p.n));
  for (std::size_t at : {std::size_t(0), p.m * p.n - 1}) {
    const std::size_t i = at / p.n, j = at % p.n;
    const long double value = p.reference(i, j, [](long double x) { return x; });
    const long double size = p.reference(i, j, [](long double x) { return x < 0 ? -x : x; });
    EXPECT_NEAR(double(magnitudes[at]), double(size), 1e-6 * double(k + 1) * double(size) + 1e-30);
    double got;
    if constexpr (std::is_same_v<To, float>) {
      got = double(p.c[at]);
    } else {
      got = double(widen_one(p.c[at]));
    }
    const double of_one_sum = sum_bound(p.terms(), magnitudes[at]) / 2;
    EXPECT_LE(std::abs(got - double(value)), of_one_sum * 1.001 + half_ulp<To>(std::abs(double(value)) + of_one_sum));
  }
}

TEST_P(Bound, SoundProductsKeepIt) {
  Rng rng(1);
  for (int round = 0; round < 12; ++round) {
    const std::size_t k = round == 0 ? 0 : between(rng, 1, round % 4 == 0 ? 900 : 90);
    const bool bias = round % 2 == 0;
    expect_sound<float, float>(rng, k, bias);
    expect_sound<bf16, bf16>(rng, k, bias);
    expect_sound<bf16, float>(rng, k, false);
    expect_sound<fp16, fp16>(rng, k, bias);
    expect_sound<fp16, float>(rng, k, false);
  }
}

// Two chains over even and odd k in each 256 of K, added; those added up. Alike on every instruction set.
TEST_P(Bound, FastProductsOnACpuHaveTheirWrittenOrder) {
  Rng rng(7);
  for (const std::size_t k : {1, 2, 7, 256, 257, 601}) {
    Product<float, float> p(rng, 6, 37, k, true);
    FastArithmetic fast;
    fast.gemm({}, p.call());
    Floats want;
    for (std::size_t i = 0; i < p.m; ++i) {
      for (std::size_t j = 0; j < p.n; ++j) {
        float sum = 0;
        for (std::size_t begin = 0; begin < k; begin += 256) {
          float chains[2] = {0, 0};
          for (std::size_t l = begin; l < std::min(k, begin + 256); ++l)
            chains[(l - begin) % 2] = fma1(p.left(i, l), p.right(l, j), chains[(l - begin) % 2]);
          sum = begin == 0 ? chains[0] + chains[1] : sum + (chains[0] + chains[1]);
        }
        want.push_back(sum + p.wide_bias[j]);
      }
    }
    ASSERT_EQ(difference(p.c, want), "") << k;
  }
}

// They would prove nothing if they had the contract's bits.
TEST_P(Bound, FastProductsAreOtherProducts) {
  Rng rng(2);
  Product<float, float> p(rng, 16, 48, 600, false);
  EXPECT_GT(p.compared({}).worst.ratio, 0);
}

TEST_P(Bound, SlipsAreOverIt) {
  Rng rng(3);
  for (const FastSlip slip : {FastSlip::last_k_left_out, FastSlip::sums_in_bf16}) {
    for (const std::size_t k : {8, 64, 600}) {
      Product<float, float> plain(rng, 20, 40, k, true);
      EXPECT_GT(plain.compared({.tf32 = false, .slip = slip}).over, 0) << int(slip) << ", " << k;
      Product<bf16, float> half(rng, 20, 40, k, false);
      EXPECT_GT(half.compared({.tf32 = false, .slip = slip}).over, 0) << int(slip) << ", " << k;
    }
  }
  Product<fp16, fp16> stored(rng, 20, 40, 64, true);
  EXPECT_GT(stored.compared({.tf32 = false, .slip = FastSlip::last_k_left_out}).over, 0);
}

TEST_P(Bound, Tf32HasOneOfItsOwn) {
  Rng rng(4);
  Product<float, float> p(rng, 20, 40, 64, true);
  EXPECT_GT(p.compared({.tf32 = true, .slip = FastSlip::none}, false).over, 0) << "fp32 products are closer";
  EXPECT_EQ(p.compared({.tf32 = true, .slip = FastSlip::none}, true).over, 0);
  EXPECT_GT(p.compared({.tf32 = true, .slip = FastSlip::last_k_left_out}, true).over, 0);
}

TEST(BoundOfOne, HalfAnUlpIsThatOfItsType) {
  EXPECT_EQ(half_ulp<float>(1.0), 0x1p-24);
  EXPECT_EQ(half_ulp<float>(1.99), 0x1p-24);
  EXPECT_EQ(half_ulp<bf16>(1.0), 0x1p-8);
  EXPECT_EQ(half_ulp<bf16>(2.0), 0x1p-7);
  EXPECT_EQ(half_ulp<fp16>(1.0), 0x1p-11);
  EXPECT_EQ(half_ulp<fp16>(0), 0x1p-25) << "denormals";
  EXPECT_EQ(half_ulp<fp16>(0x1p-20), 0x1p-25);
  EXPECT_EQ(half_ulp<bf16>(0), 0x1p-134);
}

TEST(BoundOfOne, IsTwiceThatOfAnySum) {
  EXPECT_DOUBLE_EQ(sum_bound(64, 1.0F), 2 * 64 * 0x1p-24 + 2 * 64 * 0x1p-150);
  EXPECT_NEAR(sum_bound(64, 3.0F, true) - sum_bound(64, 3.0F), 3 * 0x1p-9, 1e-15);
}

Comparison one(float fast, float exact, float size = 1, Index terms = 4) {
  return compare<float>({&fast, 1, 1, 1}, {&exact, 1, 1, 1}, {&size, 1, 1, 1}, terms);
}

TEST(BoundOfOne, InfinitiesAndNaNsAreNoMatterOfRounding) {
  EXPECT_EQ(one(NAN, NAN).over, 0);
  EXPECT_EQ(one(INFINITY, NAN).over, 0);
  EXPECT_EQ(one(1, NAN).over, 1);
  EXPECT_EQ(one(NAN, 1).over, 1);
  EXPECT_EQ(one(INFINITY, 1).over, 1);
  EXPECT_EQ(one(1, INFINITY).over, 1);
  EXPECT_EQ(one(1, 1, INFINITY).over, 0) << "the magnitudes overflow: there is no bound";
  // fp16 ends at 65504: what may just be past its end may be stored as infinity.
  const Tensor<fp16> stored(Floats{INFINITY, INFINITY});
  const Floats exact = {65519.9F, 60000.0F}, size = {1e6F, 1e6F};
  const Comparison seen = compare<fp16>(stored.mat(1, 2), mat(exact, 1, 2), mat(size, 1, 2), 100);
  EXPECT_EQ(seen.over, 1);
  EXPECT_EQ(seen.first.column, 1);
}

TEST(BoundOfOne, TheFirstOverIsNamedAndTheWorstToo) {
  const Floats exact = {1, 1, 1, 1}, fast = {1, 1 + 0x1p-20F, 1 + 0x1p-18F, 1}, size = {1, 1, 1, 1};
  const Comparison seen = compare<float>(mat(fast, 2, 2), mat(exact, 2, 2), mat(size, 2, 2), 2);
  EXPECT_EQ(seen.over, 2);
  EXPECT_EQ(seen.first.row, 0);
  EXPECT_EQ(seen.first.column, 1);
  EXPECT_EQ(seen.worst.row, 1);
  EXPECT_EQ(seen.worst.column, 0);
  EXPECT_GT(seen.worst.ratio, seen.first.ratio);
}

// ---- sums ----------------------------------------------------------------------------------------------------------

// Four members; the second one brings two parts.
struct Ring {
  std::vector<Floats> values;
  std::vector<TreePart> parts;
  explicit Ring(Rng& rng, std::size_t n = 1500) {
    for (int i = 0; i < 5; ++i) values.push_back(uniforms(rng, n));
    const int members[] = {0, 1, 1, 2, 3};
    const TreeNode nodes[] = {{1, 0}, {0, 2}, {0, 3}, {1, 2}, {1, 3}};
    for (std::size_t i = 0; i < 5; ++i) parts.push_back({nodes[i], values[i].data(), members[i]});
  }
  SumCall call(float factor, int owner) const { return {parts.data(), Index(parts.size()), 8, factor, owner}; }
  float expected(std::size_t i, float factor, int owner) const {
    const float of[] = {values[0][i], values[1][i] + values[2][i], values[3][i], values[4][i]};
    float sum = of[(owner + 1) % 4];
    for (int hop = 2; hop <= 4; ++hop) sum = sum + of[(owner + hop) % 4];
    return sum * factor;
  }
};

TEST_P(Bound, ASumGoesRoundTheRingToItsOwner) {
  Rng rng(5);
  const Ring ring(rng);
  FastArithmetic fast;
  std::vector<Floats> sums;
  for (int owner = 0; owner < 4; ++owner) {
    Floats out(1500), want(1500);
    fast.sum({}, ring.call(0.25F, owner), vec(out));
    for (std::size_t i = 0; i < out.size(); ++i) want[i] = ring.expected(i, 0.25F, owner);
    EXPECT_EQ(difference(out, want), "") << "owner " << owner;
    sums.push_back(out);
  }
  EXPECT_NE(difference(sums[0], sums[2]), "") << "the owner decides the order, as with NCCL";
  Lane lane;
  lane.arithmetic = &fast;
  Floats through(1500);
  tree_sum(lane, ring.parts.data(), 5, 8, vec(through), 0.25F, 2);
  EXPECT_EQ(difference(through, sums[2]), "");
}

TEST_P(Bound, SumsKeepItAndARingInBf16DoesNot) {
  Rng rng(6);
  const Ring ring(rng);
  Floats exact(1500), magnitudes(1500), got(1500);
  tree_sum({}, ring.parts.data(), 5, 8, vec(exact), 0.25F);
  sum_magnitudes(ring.call(0.25F, 1), vec(magnitudes));
  for (std::size_t i = 0; i < 1500; i += 77) {
    long double size = 0;
    for (const Floats& part : ring.values) size += std::abs(part[i]);
    EXPECT_NEAR(double(magnitudes[i]), double(size) / 4, 1e-6);
  }
  const auto seen = [&](FastSlip slip) {
    FastArithmetic fast({.tf32 = false, .slip = slip});
    fast.sum({}, ring.call(0.25F, 1), vec(got));
    return compare<float>(mat(got, 1, 1500), mat(exact, 1, 1500), mat(magnitudes, 1, 1500), 6);
  };
  EXPECT_EQ(seen(FastSlip::none).over, 0);
  EXPECT_GT(seen(FastSlip::none).worst.ratio, 0);
  EXPECT_GT(seen(FastSlip::ring_in_bf16).over, 0);
}

}  // namespace
}  // namespace seeksim::kernels::test
