// GEMM against ten lines of F1 and F2 (reference.h), on every instruction set.

#include "kernels/gemm.h"

#include "tests/kernels/reference.h"

namespace seeksim::kernels::test {
namespace {

struct Problem {
  std::size_t m, n, k, segment;
  bool ta, tb;
  std::size_t lda, ldb, ldc;
  Floats a, b, bias;

  float a_at(std::size_t i, std::size_t p) const { return ta ? a[p * lda + i] : a[i * lda + p]; }
  float b_at(std::size_t p, std::size_t j) const { return tb ? b[j * ldb + p] : b[p * ldb + j]; }
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
  Floats row(p.k), column(p.k);
  for (std::size_t i = 0; i < p.m; ++i) {
    for (std::size_t j = 0; j < p.n; ++j) {
      for (std::size_t k = 0; k < p.k; ++k) row[k] = p.a_at(i, k), column[k] = p.b_at(k, j);
      const float sum = segchain(row, column, p.segment == 0 ? std::max<std::size_t>(p.k, 1) : p.segment);
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
    const Problem p = problem(rng, between(rng, 1, 40), between(rng, 1, 70), k, segment, rng() % 2, rng() % 2,
                              rng() % 2, odd);
    ASSERT_EQ(difference(run(p), expected(p)), "")
        << p.m << " x " << p.n << " x " << p.k << " segment " << p.segment << " ta " << p.ta << " tb " << p.tb;
  }
}

TEST_P(Gemm, EqualsTheReferenceAtTheEdgesOfItsBlocks) {
  Rng rng(2);
  for (const auto& [m, n, k, segment] : std::vector<std::array<std::size_t, 4>>{
           {14, 32, 448, 0}, {15, 33, 449, 0}, {28, 64, 897, 0}, {13, 31, 600, 150}, {57, 130, 1024, 128},
           {1, 1, 1, 0}, {64, 32, 64, 8}, {6, 16, 500, 499}, {300, 40, 1000, 0}, {20, 16, 2049, 1024}})
    for (int t = 0; t < 4; ++t) {
      const Problem p = problem(rng, m, n, k, segment, t & 1, t & 2, true, 300);
      ASSERT_EQ(difference(run(p), expected(p)), "") << m << " x " << n << " x " << k << " segment " << segment << " t " << t;
    }
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
