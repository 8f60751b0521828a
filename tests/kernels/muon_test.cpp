// What Muon does to a matrix, against its definition, one number at a time and on every target; the step that is given;
// and the mistakes that would be made in it, each seen.

#include <algorithm>
#include <cmath>

#include "kernels/gemm.h"
#include "kernels/norms.h"
#include "kernels/optimizer.h"
#include "tests/kernels/half.h"

namespace seeksim::kernels::test {
namespace {

class Muon : public OnEveryIsa {};
SEEKSIM_ON_EVERY_ISA(Muon);

constexpr MuonStep kStep{.momentum = 0.95F, .one_minus_momentum = 0.05F, .factor = 0.73F};

enum class Mistake { none, no_look_ahead, old_momentum, factor_left_out, a_rounds_late, epsilon_added };

// docs/muon.md: the direction of one element.
float direction(float g, float& m, Mistake mistake) {
  const float held = mistake == Mistake::factor_left_out ? g : g * kStep.factor;
  const float taken = kStep.one_minus_momentum * held, before = m;
  m = fma1(kStep.momentum, m, taken);
  if (mistake == Mistake::no_look_ahead) return m;
  return fma1(kStep.momentum, mistake == Mistake::old_momentum ? before : m, taken);
}

std::string direction_apart(std::size_t n, Mistake mistake) {
  Rng rng(n);
  Floats x = wilds(rng, n, 4), m = wilds(rng, n, 6), want_x = x, want_m = m;
  muon_direction({}, kStep, vec(m), vec(x));
  for (std::size_t i = 0; i < n; ++i) want_x[i] = direction(want_x[i], want_m[i], mistake);
  const std::string of_x = difference(x, want_x);
  return of_x.empty() ? difference(m, want_m) : of_x;
}

TEST_P(Muon, ItsDirectionIsTheWrittenSequence) {
  for (const std::size_t n : {1, 7, 15, 16, 17, 100, 1000}) ASSERT_EQ(direction_apart(n, Mistake::none), "") << n;
  for (const Mistake mistake : {Mistake::no_look_ahead, Mistake::old_momentum, Mistake::factor_left_out})
    EXPECT_NE(direction_apart(1000, mistake), "") << int(mistake);
}

std::string norm_apart(std::size_t n, float norm2, Mistake mistake) {
  Rng rng(n);
  Floats x = tames(rng, n), want = x, squared = {norm2};
  scale_to_norm({}, vec(squared), kMuonLeast, vec(x));
  const float root = std::sqrt(norm2), divided_by = std::max(root, kMuonLeast);
  const float factor = 1.0F / (mistake == Mistake::epsilon_added ? root + kMuonLeast : divided_by);
  for (float& value : want) value = value * factor;
  return difference(x, want);
}

TEST_P(Muon, AMatrixIsDividedByItsNormOrByTheLeastOne) {
  for (const std::size_t n : {1, 15, 16, 17, 1000}) {
    for (const float norm2 : {0.0F, 0x1p-149F, 1e-20F, 0.3F, 7.0F, 1e30F})
      ASSERT_EQ(norm_apart(n, norm2, Mistake::none), "");
  }
  EXPECT_NE(norm_apart(1000, 1e-13F, Mistake::epsilon_added), "");
  Floats nothing = {0, -0.0F}, zero = {0};
  scale_to_norm({}, vec(zero), kMuonLeast, vec(nothing));
  EXPECT_EQ(nothing, (Floats{0, -0.0F})) << "a matrix of zeros stays one";
}

std::string sum_apart(std::size_t n, Mistake mistake) {
  Rng rng(n);
  const Floats x = wilds(rng, n, 4);
  Floats y = wilds(rng, n, 4), want = y;
  weighted_sum({}, kMuonB, vec(x), kMuonC, vec(y));
  for (std::size_t i = 0; i < n; ++i)
    want[i] =
        mistake == Mistake::a_rounds_late ? fma1(kMuonB, x[i], kMuonC * want[i]) : fma1(kMuonC, want[i], kMuonB * x[i]);
  return difference(y, want);
}

TEST_P(Muon, WeightedSumsRoundTheFirstProduct) {
  for (const std::size_t n : {1, 15, 16, 17, 1000}) ASSERT_EQ(sum_apart(n, Mistake::none), "") << n;
  EXPECT_NE(sum_apart(1000, Mistake::a_rounds_late), "");
}

OptimizerStep given(float decay) {
  return {.rule = OptimizerRule::given, .lr = 1e-2F, .weight_decay = decay, .grad_factor = 1.7F};
}

float moved(const OptimizerStep& s, float update, float p) {
  if (s.weight_decay != 0) p = fma1(-(s.lr * s.weight_decay), p, p);
  return fma1(-s.lr, update * s.grad_factor, p);
}

TEST_P(Muon, AGivenUpdateMovesAndDecaysWithoutMoments) {
  for (const std::size_t n : {1, 15, 16, 17, 100, 1000}) {
    for (const float decay : {0.0F, 0.1F}) {
      Rng rng(n);
      const Floats update = wilds(rng, n, 4);
      Floats p = wilds(rng, n, 6), want = p;
      optimize({}, given(decay), vec(update), vec(p), {}, {});
      for (std::size_t i = 0; i < n; ++i) want[i] = moved(given(decay), update[i], want[i]);
      ASSERT_EQ(difference(p, want), "") << n << " decay " << decay;
    }
  }
}

template <class T>
void expect_stored(std::size_t n, float decay) {
  Rng rng(n);
  const Floats update = tames(rng, n);
  Floats master = tames(rng, n), want = master;
  Tensor<T> copy(Floats(n, 3.0F));
  optimize_copying<T, float>({}, given(decay), vec(update), vec(master), {}, {}, copy.out());
  for (std::size_t i = 0; i < n; ++i) want[i] = moved(given(decay), update[i], want[i]);
  ASSERT_EQ(difference(master, want), "") << n;
  ASSERT_EQ(difference_rounded(copy.stored, want), "") << n;

  auto p = draw<T>(rng, n, 9, false);
  Floats rounded = p.wide;
  Stagnation counts{5, 6}, right{5, 6};
  optimize_rounding<T, float>({}, given(decay), vec(update), p.out(), {}, {}, {&counts, 1});
  for (std::size_t i = 0; i < n; ++i) {
    const OptimizerStep s = given(decay);
    const bool moves = -s.lr * (update[i] * s.grad_factor) != 0 || (decay != 0 && -(s.lr * decay) * rounded[i] != 0);
    const float before = rounded[i];
    rounded[i] = moved(s, update[i], rounded[i]);
    right.changes += moves;
    right.lost += moves && round_one<T>(before).bits == round_one<T>(rounded[i]).bits;
  }
  ASSERT_EQ(difference_rounded(p.stored, rounded), "") << n;
  ASSERT_EQ(counts.changes, right.changes) << n;
  ASSERT_EQ(counts.lost, right.lost) << n;
}

TEST_P(Muon, In16BitsTheGivenUpdateIsCopiedOrRounded) {
  for (const std::size_t n : {1, 15, 16, 17, 100, 1000}) {
    for (const float decay : {0.0F, 0.1F}) {
      expect_stored<bf16>(n, decay);
      expect_stored<fp16>(n, decay);
      if (HasFatalFailure()) return;
    }
  }
}

// The whole iteration, as the runtime puts it together.
Floats orthogonal(Floats x, Index rows, Index cols) {
  const bool tall = rows > cols;
  const Index side = std::min(rows, cols), n = rows * cols;
  Floats blocks(std::size_t((n + kBlock - 1) / kBlock)), norm2(1), gram(std::size_t(side * side)), square = gram,
                                                                                                   next = x;
  norm2_of_slabs<float>({}, vec(x), n, vec(blocks), vec(norm2));
  scale_to_norm({}, vec(norm2), kMuonLeast, vec(x));
  const auto mat = [](Floats& v, Index r, Index c) { return Mat<float>{v.data(), r, c, c}; };
  for (int round = 0; round < kMuonRounds; ++round) {
    const Mat<const float> m = mat(x, rows, cols);
    gemm<float>({}, tall ? Trans::yes : Trans::no, tall ? Trans::no : Trans::yes, m, m, mat(gram, side, side));
    gemm<float>({}, Trans::no, Trans::no, mat(gram, side, side), mat(gram, side, side), mat(square, side, side));
    weighted_sum({}, kMuonB, vec(gram), kMuonC, vec(square));
    if (tall)
      gemm<float>({}, Trans::no, Trans::no, m, mat(square, side, side), mat(next, rows, cols));
    else
      gemm<float>({}, Trans::no, Trans::no, mat(square, side, side), m, mat(next, rows, cols));
    weighted_sum({}, kMuonA, vec(x), 1, vec(next));
    std::swap(x, next);
  }
  return x;
}

// X X^T of the shorter side has all eigenvalues near 1: five rounds bring singular values into [0.5, 1.5], where they
// were above a thousandth or so of the norm. Its trace and its off-diagonal say so.
TEST_P(Muon, TheIterationMakesRowsOrColumnsNearlyOrthogonal) {
  for (const auto& [rows, cols] : {std::pair<Index, Index>{8, 8}, {8, 24}, {24, 8}, {1, 16}, {16, 1}, {17, 33}}) {
    Rng rng(std::uint64_t(rows * 100 + cols));
    const Floats x = orthogonal(tames(rng, std::size_t(rows * cols)), rows, cols);
    const bool tall = rows > cols;
    const Index side = std::min(rows, cols), longer = std::max(rows, cols);
    double squares = 0;
    for (Index i = 0; i < side; ++i) {
      for (Index j = 0; j < side; ++j) {
        double dot = 0;
        for (Index k = 0; k < longer; ++k) {
          const auto at = [&](Index s) { return double(x[std::size_t(tall ? k * cols + s : s * cols + k)]); };
          dot += at(i) * at(j);
        }
        EXPECT_LT(std::fabs(dot - (i == j ? 1 : 0)), 0.65) << rows << 'x' << cols << ' ' << i << ' ' << j;
        squares += dot * dot;
      }
    }
    EXPECT_NEAR(std::sqrt(squares / double(side)), 0.9, 0.45) << rows << 'x' << cols;
  }
}

}  // namespace
}  // namespace seeksim::kernels::test
