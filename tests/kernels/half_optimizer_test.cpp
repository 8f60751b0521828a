// AdamW around 16-bit parameters: the rounded copy of fp32 masters, parameters without masters and what they lose, and
// rounding through a type in place; on every instruction set.

#include "kernels/optimizer.h"
#include "tests/kernels/half.h"

namespace seeksim::kernels::test {
namespace {

class HalfOptimizer : public OnEveryIsa {};
SEEKSIM_ON_EVERY_ISA(HalfOptimizer);

OptimizerStep step_of_kind(int kind) {
  return {.lr = 1e-3F,
          .weight_decay = kind == 0 ? 0.0F : 0.1F,
          .inverse_bias1 = 3.7F,
          .inverse_sqrt_bias2 = 9.1F,
          .grad_factor = 0.73F,
          .decoupled = kind == 1};
}

struct State {
  Floats p, m, v;
  State(Rng& rng, std::size_t n) : p(tames(rng, n)), m(tames(rng, n)), v(uniforms(rng, n, 0, 1)) {}
};

template <class T, class G>
void expect_copying(Rng& rng, std::size_t n, int kind) {
  const OptimizerStep step = step_of_kind(kind);
  const auto held = draw<T>(rng, n, 9, false);
  State got(rng, n), want = got;
  Tensor<T> copy(Floats(n, 3.0F));
  Vec<const G> grad;
  if constexpr (std::is_same_v<G, float>) {
    grad = vec(held.wide);
  } else {
    grad = held.vec();
  }
  optimize_copying<T, G>({}, step, grad, vec(got.p), vec(got.m), vec(got.v), copy.out());
  optimize({}, step, vec(held.wide), vec(want.p), vec(want.m), vec(want.v));
  ASSERT_EQ(difference(got.p, want.p), "") << n << " kind " << kind;
  ASSERT_EQ(difference(got.m, want.m), "") << n << " kind " << kind;
  ASSERT_EQ(difference(got.v, want.v), "") << n << " kind " << kind;
  ASSERT_EQ(difference_rounded(copy.stored, want.p), "") << n << " kind " << kind;
}

TEST_P(HalfOptimizer, CopiesAreTheUpdatedMastersRounded) {
  Rng rng(1);
  for (std::size_t n : {1, 15, 16, 17, 100, 1000})
    for (int kind = 0; kind < 3; ++kind) {
      expect_copying<bf16, float>(rng, n, kind);
      expect_copying<bf16, bf16>(rng, n, kind);
      expect_copying<fp16, float>(rng, n, kind);
      expect_copying<fp16, fp16>(rng, n, kind);
      if (HasFatalFailure()) return;
    }
}

// One element's change in fp32, as optimizer.h counts it; p, m, v are those before the step.
bool moves(const OptimizerStep& s, float p, float m_after, float v_after) {
  const float update = m_after * s.inverse_bias1 / fma1(std::sqrt(v_after), s.inverse_sqrt_bias2, s.eps);
  return -s.lr * update != 0 || (s.decoupled && s.weight_decay != 0 && -(s.lr * s.weight_decay) * p != 0);
}

template <class T, class G>
void expect_rounding(Rng& rng, std::size_t n, int kind) {
  const OptimizerStep step = step_of_kind(kind);
  auto held = draw<T>(rng, n, 9, false), p = draw<T>(rng, n, 9, false);
  State got(rng, n), want = got;
  for (std::size_t i = 0; i < n; i += 4) {  // nothing to do here: no gradient, no moments, and no parameter to decay
    held.stored[i].bits = p.stored[i].bits = 0;
    held.wide[i] = p.wide[i] = got.m[i] = want.m[i] = 0;
  }
  want.p = p.wide;
  Vec<const G> grad;
  if constexpr (std::is_same_v<G, float>) {
    grad = vec(held.wide);
  } else {
    grad = held.vec();
  }
  Stagnation counts{5, 6}, right{5, 6};
  optimize_rounding<T, G>({}, step, grad, p.out(), vec(got.m), vec(got.v), {&counts, 1});
  optimize({}, step, vec(held.wide), vec(want.p), vec(want.m), vec(want.v));
  ASSERT_EQ(difference(got.m, want.m), "") << n << " kind " << kind;
  ASSERT_EQ(difference(got.v, want.v), "") << n << " kind " << kind;
  ASSERT_EQ(difference_rounded(p.stored, want.p), "") << n << " kind " << kind;
  for (std::size_t i = 0; i < n; ++i) {
    const bool moved = moves(step, p.wide[i], want.m[i], want.v[i]);
    right.changes += moved;
    right.lost += moved && round_one<T>(p.wide[i]).bits == p.stored[i].bits;
  }
  ASSERT_EQ(counts.changes, right.changes) << n << " kind " << kind;
  ASSERT_EQ(counts.lost, right.lost) << n << " kind " << kind;
}

TEST_P(HalfOptimizer, WithoutMastersParametersAreRoundedAndLostChangesCounted) {
  Rng rng(2);
  for (std::size_t n : {1, 15, 16, 17, 100, 1000})
    for (int kind = 0; kind < 3; ++kind) {
      expect_rounding<bf16, float>(rng, n, kind);
      expect_rounding<bf16, bf16>(rng, n, kind);
      expect_rounding<fp16, float>(rng, n, kind);
      expect_rounding<fp16, fp16>(rng, n, kind);
      if (HasFatalFailure()) return;
    }
}

// Around 1 the spacing of bf16 is 2^-7 above and 2^-8 below: steps of 1e-3 are all lost, steps of 1e-2 none.
TEST_P(HalfOptimizer, SmallStepsStagnateInBf16) {
  constexpr std::size_t kN = 37;
  for (const auto& [lr, lost] : {std::pair{1e-3F, 37}, std::pair{1e-2F, 0}}) {
    Tensor<bf16> p(Floats(kN, 1.0F));
    const Floats grad(kN, 1.0F);
    Floats m(kN, 0.0F), v(kN, 0.0F);
    const OptimizerStep step{.lr = lr, .inverse_bias1 = 10, .inverse_sqrt_bias2 = 31.622776F};
    Stagnation counts;
    optimize_rounding<bf16>({}, step, vec(grad), p.out(), vec(m), vec(v), {&counts, 1});
    EXPECT_EQ(counts.changes, 37);
    EXPECT_EQ(counts.lost, lost) << lr;
    EXPECT_EQ(p.stored[36].bits == round_one<bf16>(1.0F).bits, lost != 0);
  }
}

TEST_P(HalfOptimizer, RoundingThroughATypeIsAStoreAndALoad) {
  Rng rng(3);
  for (std::size_t n : {0, 1, 15, 17, 1000}) {
    const Floats x = wilds(rng, n, 4);
    Floats b = x, h = x, f = x, want_b, want_h;
    for (float value : x) want_b.push_back(widen_one(round_one<bf16>(value)));
    for (float value : x) want_h.push_back(widen_one(round_one<fp16>(value)));
    round_through<bf16>({}, vec(b));
    round_through<fp16>({}, vec(h));
    round_through<float>({}, vec(f));
    ASSERT_EQ(difference(b, want_b), "");
    ASSERT_EQ(difference(h, want_h), "");
    ASSERT_EQ(difference(f, x), "");
  }
}

}  // namespace
}  // namespace seeksim::kernels::test
