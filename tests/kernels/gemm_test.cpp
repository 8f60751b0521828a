// GEMM against ten lines of F1 and F2 (reference.h), on every instruction set.

#include "kernels/gemm.h"

#include <array>

#include "tests/kernels/reference.h"

namespace seeksim::kernels::test {
namespace {

struct Problem {
  std::size_t m, n, k, segment;
  bool ta, tb;
  std::size_t lda, ldb, ldc;
  Floats a, b, bias;

  // Element (i, k) of op(A) and (k, j) of op(B): where a row or column starts, and the step along K.
  const float* a_row(std::size_t i) const { return &a[ta ? i : i * lda]; }
  std::size_t a_step() const { return ta ? lda : 1; }
  const float* b_column(std::size_t j) const { return &b[tb ? j * ldb : j]; }
  std::size_t b_step() const { return tb ? 1 : ldb; }
};

Problem problem(Rng& rng, std::size_t m, std::size_t n, std::size_t k, std::size_t segment, bool ta, bool tb, bool bias,
                unsigned odd) {
  Problem p{m, n, k, segment, ta, tb, 0, 0, 0, {}, {}, {}};
  p.lda = (ta ? m : k) + rng() % 5;
  p.ldb = (tb ? k : n) + rng() % 5;
  p.ldc = n + rng() % 5;
  p.a = wilds(rng, std::max<std::size_t>(1, (ta ? k : m) * p.lda), odd);
  p.b = wilds(rng, std::max<std::size_t>(1, (tb ? n : k) * p.ldb), odd);
  if (bias) p.bias = wilds(rng, n, odd);
  return p;
}

constexpr float kUntouched = 12345.0F;

Floats run(const Problem& p) {
  Floats c(p.m * p.ldc, kUntouched);
  gemm({}, p.ta ? Trans::yes : Trans::no, p.tb ? Trans::yes : Trans::no,
       mat(p.a, p.ta ? p.k : p.m, p.ta ? p.m : p.k, p.lda), mat(p.b, p.tb ? p.n : p.k, p.tb ? p.k : p.n, p.ldb),
       mat(c, p.m, p.n, p.ldc), static_cast<Index>(p.segment), vec(p.bias));
  return c;
}

Floats expected(const Problem& p) {
  Floats c(p.m * p.ldc, kUntouched);
  const std::size_t segment = p.segment == 0 ? std::max<std::size_t>(p.k, 1) : p.segment;
  for (std::size_t i = 0; i < p.m; ++i) {
    for (std::size_t j = 0; j < p.n; ++j) {
      const float sum = segchain(p.a_row(i), p.a_step(), p.b_column(j), p.b_step(), p.k, segment);
      c[i * p.ldc + j] = p.bias.empty() ? sum : sum + p.bias[j];
    }
  }
  return c;
}

class Gemm : public OnEveryIsa {};
SEEKSIM_ON_EVERY_ISA(Gemm);

TEST_P(Gemm, EqualsTheReferenceOnRandomProblems) {
  Rng rng(1);
  for (int round = 0; round < 250; ++round) {
    const std::size_t k = between(rng, 0, round % 10 == 0 ? 1100 : 90);
    const std::size_t segment = rng() % 3 == 0 ? 0 : between(rng, 1, k + 3);
    const unsigned odd = round % 3 == 0 ? 1000000 : round % 3 == 1 ? 40 : 400;
    const Problem p =
        problem(rng, between(rng, 1, 40), between(rng, 1, 70), k, segment, rng() % 2, rng() % 2, rng() % 2, odd);
    ASSERT_EQ(difference(run(p), expected(p)), "")
        << p.m << " x " << p.n << " x " << p.k << " segment " << p.segment << " ta " << p.ta << " tb " << p.tb;
  }
}

void expect_equal(Rng& rng, const std::vector<std::array<std::size_t, 4>>& shapes) {
  for (const auto& [m, n, k, segment] : shapes)
    for (int t = 0; t < 4; ++t) {
      const Problem p = problem(rng, m, n, k, segment, t & 1, t & 2, true, 300);
      ASSERT_EQ(difference(run(p), expected(p)), "")
          << m << " x " << n << " x " << k << " segment " << segment << " t " << t;
    }
}

TEST_P(Gemm, EqualsTheReferenceAtTheEdgesOfItsTilesAndBlocks) {
  Rng rng(2);
  expect_equal(rng, {{14, 32, 448, 0},
                     {15, 33, 449, 0},
                     {28, 34, 897, 0},
                     {13, 31, 600, 150},
                     {29, 65, 1024, 128},
                     {1, 1, 1, 0},
                     {64, 32, 64, 8},
                     {6, 16, 500, 499},
                     {100, 20, 130, 0},
                     {20, 16, 1025, 512}});
}

class GemmSlow : public OnEveryIsa {};
SEEKSIM_ON_EVERY_CPU_ISA(GemmSlow);  // emulated it takes a minute

// Several blocks of packed A (K times the rows is large), and several of packed B (K times the columns is huge).
TEST_P(GemmSlow, EqualsTheReferenceOverSeveralBlocksOfAAndB) {
  Rng rng(5);
  expect_equal(rng, {{150, 40, 3000, 0}, {150, 40, 3000, 375}, {2, 65, 270000, 0}, {2, 65, 270000, 999}});
}

TEST_P(Gemm, RowsDoNotChangeWhenTheNumberOfRowsDoes) {
  Rng rng(3);
  Problem p = problem(rng, 200, 96, 300, 0, false, true, false, 100);
  for (std::size_t segment : {0, 64}) {
    p.m = 200;
    p.segment = segment;
    const Floats all = run(p);
    for (std::size_t m : {1, 2, 3, 5, 8, 13, 14, 15, 64, 65, 100, 113, 199}) {
      p.m = m;
      ASSERT_EQ(difference(run(p), Floats(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(m * p.ldc))), "")
          << m << " rows";
    }
  }
}

TEST_P(Gemm, ColumnsDoNotChangeWhenTheNumberOfColumnsDoes) {
  Rng rng(4);
  Problem p = problem(rng, 50, 160, 200, 25, false, true, false, 100);
  const Floats all = run(p);
  for (std::size_t n : {1, 15, 16, 17, 31, 32, 33, 64, 100}) {
    Problem q = p;
    q.n = n;
    const Floats some = run(q);
    for (std::size_t i = 0; i < q.m; ++i)
      for (std::size_t j = 0; j < n; ++j) ASSERT_EQ(canonical(some[i * q.ldc + j]), canonical(all[i * p.ldc + j]));
  }
}

TEST_P(Gemm, RefusesShapesThatDoNotFit) {
  Floats a(12), b(12), c(12);
  EXPECT_ANY_THROW(gemm({}, Trans::no, Trans::no, mat(a, 3, 4), mat(b, 3, 4), mat(c, 3, 4)));
}

}  // namespace
}  // namespace seeksim::kernels::test
