// Causal attention against a reference that only ever looks at unmasked keys, on every instruction set.

#include <algorithm>

#include "kernels/attention.h"
#include "tests/kernels/dropout_of_one.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/unary_of_one.h"

namespace seeksim::kernels::test {
namespace {

struct Case {
  std::size_t b, t, h, d;
  std::size_t width() const { return h * 3 * d; }
  std::size_t rows() const { return b * t; }
  AttentionShape shape() const {
    return {static_cast<Index>(b), static_cast<Index>(t), static_cast<Index>(h), static_cast<Index>(d)};
  }
};

const std::vector<Case> kCases = {{1, 1, 1, 1},  {1, 5, 1, 3},   {2, 8, 2, 8},   {1, 9, 3, 8},  {2, 17, 2, 16},
                                  {1, 64, 2, 8}, {1, 33, 1, 64}, {1, 130, 1, 5}, {2, 7, 1, 20}, {1, 40, 2, 48}};

struct Result {
  Floats probs, out, dqkv;
};

Result run(const Case& c, const Floats& qkv, const Floats& dout, const Dropout& drop = {}) {
  Result r{Floats(c.b * c.h * c.t * c.t, 4.0F), Floats(c.rows() * c.h * c.d, 4.0F), Floats(c.rows() * c.width(), 4.0F)};
  Floats scratch(2 * c.t * c.t);
  attention_forward({}, c.shape(), mat(qkv, c.rows(), c.width()), mat(r.probs, c.b * c.h * c.t, c.t),
                    mat(r.out, c.rows(), c.h * c.d), drop);
  attention_backward({}, c.shape(), mat(dout, c.rows(), c.h * c.d), mat(qkv, c.rows(), c.width()),
                     mat(std::as_const(r.probs), c.b * c.h * c.t, c.t), mat(scratch, 2 * c.t, c.t),
                     mat(r.dqkv, c.rows(), c.width()), drop);
  return r;
}

Result reference(const Case& c, const Floats& qkv, const Floats& dout, const Dropout& drop = {}) {
  Result r{Floats(c.b * c.h * c.t * c.t, 0.0F), Floats(c.rows() * c.h * c.d), Floats(c.rows() * c.width(), 0.0F)};
  const float scale = 1.0F / std::sqrt(static_cast<float>(c.d));
  for (std::size_t s = 0; s < c.b; ++s)
    for (std::size_t h = 0; h < c.h; ++h) {
      const auto at = [&](std::size_t t, std::size_t which, std::size_t e) {
        return (s * c.t + t) * c.width() + (3 * h + which) * c.d + e;
      };
      const auto go = [&](std::size_t t, std::size_t e) { return dout[(s * c.t + t) * c.h * c.d + h * c.d + e]; };
      float* const p = &r.probs[(s * c.h + h) * c.t * c.t];
      Floats ds(c.t * c.t), kept(c.t * c.t);
      const auto drop_one = [&](std::size_t i, std::size_t j, float x) {
        return drop.on() ? dropped(drop, s, (h * c.t + i) * c.t + j, x) : x;
      };
      for (std::size_t i = 0; i < c.t; ++i) {
        Floats score(i + 1), dp(i + 1);
        for (std::size_t j = 0; j <= i; ++j) {
          float dot = 0.0F;
          for (std::size_t e = 0; e < c.d; ++e) {
            dot = fma1(qkv[at(i, 0, e)], qkv[at(j, 1, e)], dot);
            dp[j] = fma1(go(i, e), qkv[at(j, 2, e)], dp[j]);
          }
          score[j] = dot * scale;
        }
        const float max = *std::max_element(score.begin(), score.end());
        for (float& x : score) x = unary_of_one(Unary::exp, x - max);
        const float inverse = 1.0F / lanes(i + 1, [&](float a, std::size_t j) { return a + score[j]; });
        for (std::size_t j = 0; j <= i; ++j) {
          p[i * c.t + j] = score[j] * inverse;
          kept[i * c.t + j] = drop_one(i, j, p[i * c.t + j]);
          dp[j] = drop_one(i, j, dp[j]);
        }
        const float dot = lanes(i + 1, [&](float a, std::size_t j) { return fma1(dp[j], p[i * c.t + j], a); });
        for (std::size_t j = 0; j <= i; ++j) ds[i * c.t + j] = p[i * c.t + j] * (dp[j] - dot) * scale;
      }
      for (std::size_t e = 0; e < c.d; ++e)
        for (std::size_t i = 0; i < c.t; ++i) {
          float o = 0, dq = 0, dk = 0, dv = 0;
          for (std::size_t j = 0; j <= i; ++j) {
            o = fma1(kept[i * c.t + j], qkv[at(j, 2, e)], o);
            dq = fma1(ds[i * c.t + j], qkv[at(j, 1, e)], dq);
          }
          for (std::size_t q = i; q < c.t; ++q) {
            dk = fma1(ds[q * c.t + i], qkv[at(q, 0, e)], dk);
            dv = fma1(kept[q * c.t + i], go(q, e), dv);
          }
          r.out[(s * c.t + i) * c.h * c.d + h * c.d + e] = o;
          r.dqkv[at(i, 0, e)] = dq, r.dqkv[at(i, 1, e)] = dk, r.dqkv[at(i, 2, e)] = dv;
        }
    }
  return r;
}

class Attention : public OnEveryIsa {};
SEEKSIM_ON_EVERY_ISA(Attention);

TEST_P(Attention, EqualsTheReference) {
  Rng rng(1);
  for (const Case& c : kCases) {
    const Floats qkv = tames(rng, c.rows() * c.width()), dout = tames(rng, c.rows() * c.h * c.d);
    const Result got = run(c, qkv, dout), want = reference(c, qkv, dout);
    ASSERT_EQ(difference(got.probs, want.probs), "") << c.t << " " << c.d;
    ASSERT_EQ(difference(got.out, want.out), "") << c.t << " " << c.d;
    ASSERT_EQ(difference(got.dqkv, want.dqkv), "") << c.t << " " << c.d;
  }
}

TEST_P(Attention, DropsWhatMultipliesTheValues) {
  Rng rng(3);
  for (const Case& c : kCases)
    for (const double rate : {0.1, 0.7}) {
      const Floats qkv = tames(rng, c.rows() * c.width()), dout = tames(rng, c.rows() * c.h * c.d);
      const Dropout drop = some_dropout(rate);
      const Result got = run(c, qkv, dout, drop), want = reference(c, qkv, dout, drop);
      ASSERT_EQ(difference(got.probs, want.probs), "") << c.t << " " << c.d << " " << rate;
      ASSERT_EQ(difference(got.out, want.out), "") << c.t << " " << c.d << " " << rate;
      ASSERT_EQ(difference(got.dqkv, want.dqkv), "") << c.t << " " << c.d << " " << rate;
    }
}

TEST_P(Attention, MaskedKeysAreSkippedNotMultipliedByZero) {
  Rng rng(2);
  const Case c{1, 24, 1, 8};
  const Floats qkv = uniforms(rng, c.rows() * c.width()), dout = uniforms(rng, c.rows() * c.d);
  Floats poisoned = qkv;
  for (std::size_t e = 0; e < 3 * c.d; ++e) poisoned[15 * c.width() + e] = e % 2 ? NAN : INFINITY;
  const Result clean = run(c, qkv, dout), got = run(c, poisoned, dout);
  for (std::size_t i = 0; i < 15 * c.d; ++i) ASSERT_EQ(bits(got.out[i]), bits(clean.out[i])) << "row " << i / c.d;
  for (std::size_t t = 0; t < 15; ++t)
    for (std::size_t e = 0; e < c.d; ++e)
      ASSERT_EQ(bits(got.dqkv[t * c.width() + e]), bits(clean.dqkv[t * c.width() + e])) << "dq of row " << t;
  for (std::size_t e = 0; e < c.d; ++e) ASSERT_TRUE(std::isnan(got.out[20 * c.d + e])) << "the poison must arrive";
}

}  // namespace
}  // namespace seeksim::kernels::test
