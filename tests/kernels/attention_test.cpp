// Causal attention against a reference that only ever looks at unmasked keys, on every instruction set.

#include <algorithm>

#include "kernels/attention.h"
#include "tests/kernels/attention_case.h"
#include "tests/kernels/dropout_of_one.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/unary_of_one.h"

namespace seeksim::kernels::test {
namespace {

const std::vector<AttentionCase> kCases = {{1, 1, 1, 1},      {1, 5, 1, 3},     {2, 8, 2, 8},     {1, 9, 3, 8},
                                           {2, 17, 2, 16},    {1, 64, 2, 8},    {1, 33, 1, 64},   {1, 130, 1, 5},
                                           {2, 7, 1, 20},     {1, 40, 2, 48},   {1, 1, 2, 1, 2},  {2, 13, 6, 5, 3},
                                           {1, 40, 8, 16, 4}, {2, 33, 4, 8, 4}, {1, 70, 4, 20, 2}};

struct Result {
  Floats probs, out, dqkv;
};

Result run(const AttentionCase& c, const Floats& qkv, const Floats& dout, const Dropout& drop = {}) {
  Result r{Floats(c.b * c.h * c.t * c.t, 4.0F), Floats(c.rows() * c.h * c.d, 4.0F), Floats(c.rows() * c.width(), 4.0F)};
  Floats scratch(2 * c.t * c.t);
  attention_forward({}, c.shape(), mat(qkv, c.rows(), c.width()), mat(r.probs, c.b * c.h * c.t, c.t),
                    mat(r.out, c.rows(), c.h * c.d), drop);
  attention_backward({}, c.shape(), mat(dout, c.rows(), c.h * c.d), mat(qkv, c.rows(), c.width()),
                     mat(std::as_const(r.probs), c.b * c.h * c.t, c.t), mat(scratch, 2 * c.t, c.t),
                     mat(r.dqkv, c.rows(), c.width()), drop);
  return r;
}

Result reference(const AttentionCase& c, const Floats& qkv, const Floats& dout, const Dropout& drop = {}) {
  Result r{Floats(c.b * c.h * c.t * c.t, 0.0F), Floats(c.rows() * c.h * c.d), Floats(c.rows() * c.width(), 0.0F)};
  const float scale = 1.0F / std::sqrt(static_cast<float>(c.d));
  for (std::size_t s = 0; s < c.b; ++s)
    for (std::size_t h = 0; h < c.h; ++h) {
      // Which: 0 q of the head, 1 k and 2 v of its key head.
      const auto at = [&](std::size_t t, std::size_t which, std::size_t e) {
        const std::size_t column = which == 0 ? h % c.g : c.g + which - 1;
        return (s * c.t + t) * c.width() + (h / c.g * (c.g + 2) + column) * c.d + e;
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
          // The chains of k and v go on from the group's query head before.
          float o = 0, dq = 0, dk = r.dqkv[at(i, 1, e)], dv = r.dqkv[at(i, 2, e)];
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
  for (const AttentionCase& c : kCases) {
    const Floats qkv = tames(rng, c.rows() * c.width()), dout = tames(rng, c.rows() * c.h * c.d);
    const Result got = run(c, qkv, dout), want = reference(c, qkv, dout);
    ASSERT_EQ(difference(got.probs, want.probs), "") << c.t << " " << c.d;
    ASSERT_EQ(difference(got.out, want.out), "") << c.t << " " << c.d;
    ASSERT_EQ(difference(got.dqkv, want.dqkv), "") << c.t << " " << c.d;
  }
}

TEST_P(Attention, DropsWhatMultipliesTheValues) {
  Rng rng(3);
  for (const AttentionCase& c : kCases)
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
  const AttentionCase c{1, 24, 1, 8};
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

// What must be seen: the query heads of a group summed apart and then added, and taken in another order.
TEST_P(Attention, KeyGradientsAreOneChainInHeadOrder) {
  Rng rng(4);
  const AttentionCase c{1, 21, 2, 8, 2}, apart{1, 21, 2, 8, 1};
  const Floats qkv = uniforms(rng, c.rows() * c.width()), dout = uniforms(rng, c.rows() * c.h * c.d);
  Floats copied(c.rows() * apart.width()), swapped = qkv, swapped_out = dout;
  for (std::size_t t = 0; t < c.rows(); ++t)
    for (std::size_t e = 0; e < c.d; ++e) {
      const float* const from = &qkv[t * c.width() + e];
      float* const to = &copied[t * apart.width() + e];
      for (std::size_t h = 0; h < 2; ++h)
        to[3 * h * c.d] = from[h * c.d], to[(3 * h + 1) * c.d] = from[2 * c.d], to[(3 * h + 2) * c.d] = from[3 * c.d];
      std::swap(swapped[t * c.width() + e], swapped[t * c.width() + c.d + e]);
      std::swap(swapped_out[t * 2 * c.d + e], swapped_out[t * 2 * c.d + c.d + e]);
    }
  const Result grouped = run(c, qkv, dout), heads = run(apart, copied, dout), other = run(c, swapped, swapped_out);
  ASSERT_EQ(difference(grouped.out, heads.out), "");
  int added = 0, reordered = 0;
  for (std::size_t t = 0; t < c.rows(); ++t)
    for (std::size_t e = 0; e < 2 * c.d; ++e) {
      const float chain = grouped.dqkv[t * c.width() + 2 * c.d + e];
      const float* const by_head = &heads.dqkv[t * apart.width() + c.d + e];
      ASSERT_NEAR(chain, by_head[0] + by_head[3 * c.d], 1e-5F);
      added += bits(chain) != bits(by_head[0] + by_head[3 * c.d]);
      reordered += bits(chain) != bits(other.dqkv[t * c.width() + 2 * c.d + e]);
    }
  EXPECT_GT(added, 20);
  EXPECT_GT(reordered, 20);
}

TEST_P(Attention, AGroupMustDivideTheQueryHeads) {
  const AttentionCase c{1, 2, 3, 4, 2};
  Floats qkv(2 * 16), probs(6 * 2), out(2 * 12);
  EXPECT_ANY_THROW(attention_forward({}, c.shape(), mat(qkv, 2, 16), mat(probs, 6, 2), mat(out, 2, 12)));
}

}  // namespace
}  // namespace seeksim::kernels::test
