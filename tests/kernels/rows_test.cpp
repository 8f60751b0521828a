// Layer norm, cross-entropy, column sums, embeddings, norms and the optimizer against scalar references written from
// docs/numerics.md, on every instruction set.

#include <algorithm>

#include "kernels/cross_entropy.h"
#include "kernels/embedding.h"
#include "kernels/layer_norm.h"
#include "kernels/norms.h"
#include "kernels/optimizer.h"
#include "kernels/pointwise.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/unary_of_one.h"

namespace seeksim::kernels::test {
namespace {

class Rows : public OnEveryIsa {};
SEEKSIM_ON_EVERY_ISA(Rows);

const std::vector<std::size_t> kWidths = {1, 2, 7, 8, 9, 15, 16, 17, 31, 64, 100, 127, 128, 129, 250, 256, 384, 777};

TEST_P(Rows, LayerNormForwardIsTheWrittenSequence) {
  Rng rng(1);
  for (std::size_t c : kWidths) {
    const std::size_t rows = 5, stride = c + 3;
    const Floats x = tames(rng, rows * stride), gamma = tames(rng, c), beta = tames(rng, c);
    Floats y(rows * stride, 9.0F), mean(rows), rstd(rows), want(rows * stride, 9.0F), want_mean(rows), want_rstd(rows);
    layer_norm_forward({}, mat(x, rows, c, stride), vec(gamma), vec(beta), 1e-5F, mat(y, rows, c, stride), vec(mean),
                       vec(rstd));
    for (std::size_t r = 0; r < rows; ++r) {
      const float* const xr = &x[r * stride];
      const float m = lanes(c, [&](float s, std::size_t i) { return s + xr[i]; }) / static_cast<float>(c);
      const float var =
          lanes(c, [&](float s, std::size_t i) { return fma1(xr[i] - m, xr[i] - m, s); }) / static_cast<float>(c);
      const float rs = 1.0F / std::sqrt(var + 1e-5F);
      want_mean[r] = m;
      want_rstd[r] = rs;
      for (std::size_t i = 0; i < c; ++i) want[r * stride + i] = fma1((xr[i] - m) * rs, gamma[i], beta[i]);
    }
    ASSERT_EQ(difference(mean, want_mean), "") << c;
    ASSERT_EQ(difference(rstd, want_rstd), "") << c;
    ASSERT_EQ(difference(y, want), "") << c;
  }
}

TEST_P(Rows, LayerNormBackwardIsTheWrittenSequence) {
  Rng rng(2);
  for (std::size_t c : kWidths) {
    const std::size_t rows = 4;
    const Floats x = tames(rng, rows * c), dy = tames(rng, rows * c), gamma = tames(rng, c), mean = tames(rng, rows),
                 rstd = uniforms(rng, rows, 0.5F, 2.0F), skip = tames(rng, rows * c);
    for (bool with_skip : {false, true}) {
      Floats dx(rows * c), want(rows * c);
      const Mat<const float> residual = with_skip ? mat(skip, rows, c) : Mat<const float>{};
      layer_norm_backward({}, mat(dy, rows, c), mat(x, rows, c), vec(gamma), vec(mean), vec(rstd), residual,
                          mat(dx, rows, c));
      for (std::size_t r = 0; r < rows; ++r) {
        const auto xhat = [&](std::size_t i) { return (x[r * c + i] - mean[r]) * rstd[r]; };
        const auto g = [&](std::size_t i) { return dy[r * c + i] * gamma[i]; };
        const float sum = lanes(c, [&](float s, std::size_t i) { return s + g(i); }) / static_cast<float>(c);
        const float dot =
            lanes(c, [&](float s, std::size_t i) { return fma1(g(i), xhat(i), s); }) / static_cast<float>(c);
        for (std::size_t i = 0; i < c; ++i) {
          const float d = fma1(-xhat(i), dot, g(i) - sum) * rstd[r];
          want[r * c + i] = with_skip ? skip[r * c + i] + d : d;
        }
      }
      ASSERT_EQ(difference(dx, want), "") << c;
    }
  }
}

// F2 over 8 token segments of a sample, then F3 over the samples.
float sum_over_tokens(const Floats& terms_a, const Floats* terms_b, std::size_t tokens) {
  Floats samples;
  const std::size_t segment = (tokens + 7) / 8;
  for (std::size_t s = 0; s < terms_a.size(); s += tokens) {
    Floats segments;
    for (std::size_t t = 0; t < tokens; ++t) {
      if (t % segment == 0) segments.push_back(0.0F);
      float& acc = segments.back();
      acc = terms_b != nullptr ? fma1(terms_a[s + t], (*terms_b)[s + t], acc) : acc + terms_a[s + t];
    }
    samples.push_back(tree(segments));
  }
  return tree(samples);
}

TEST_P(Rows, ParameterGradientsAreSegmentsInSamplesInATree) {
  Rng rng(3);
  for (std::size_t tokens : {1, 3, 8, 9, 16, 20})
    for (std::size_t samples : {1, 2, 3, 5, 8})
      for (std::size_t c : {1, 16, 33, 130}) {
        const std::size_t rows = tokens * samples;
        const Floats x = tames(rng, rows * c), dy = tames(rng, rows * c), mean = tames(rng, rows),
                     rstd = uniforms(rng, rows, 0.5F, 2.0F);
        Floats dgamma(c), dbeta(c), db(c), want_gamma(c), want_beta(c);
        const auto t = static_cast<Index>(tokens);
        layer_norm_param_grad({}, mat(dy, rows, c), mat(x, rows, c), vec(mean), vec(rstd), t, vec(dgamma), vec(dbeta));
        bias_grad({}, mat(dy, rows, c), t, vec(db));
        for (std::size_t j = 0; j < c; ++j) {
          Floats g(rows), xhat(rows);
          for (std::size_t r = 0; r < rows; ++r) g[r] = dy[r * c + j], xhat[r] = (x[r * c + j] - mean[r]) * rstd[r];
          want_gamma[j] = sum_over_tokens(g, &xhat, tokens);
          want_beta[j] = sum_over_tokens(g, nullptr, tokens);
        }
        ASSERT_EQ(difference(dgamma, want_gamma), "") << tokens << " " << samples << " " << c;
        ASSERT_EQ(difference(dbeta, want_beta), "") << tokens << " " << samples << " " << c;
        ASSERT_EQ(difference(db, want_beta), "") << tokens << " " << samples << " " << c;
      }
}

TEST_P(Rows, CrossEntropySumsEightVocabularySegmentsInATree) {
  Rng rng(4);
  for (std::size_t v : {1, 2, 5, 8, 9, 17, 64, 256, 300, 1027, 2100}) {
    const std::size_t rows = 3, stride = v + 2;
    const float scale = 0.125F;
    Floats logits = tames(rng, rows * stride), losses(rows), d(rows * stride, 7.0F), want_losses(rows),
           want(rows * stride, 7.0F);
    std::vector<std::int32_t> targets(rows);
    for (auto& t : targets) t = static_cast<std::int32_t>(rng() % v);
    const std::size_t slab = (v + 7) / 8;
    for (std::size_t r = 0; r < rows; ++r) {
      const float* const x = &logits[r * stride];
      const float max = *std::max_element(x, x + v);
      Floats e(v), sums;
      for (std::size_t i = 0; i < v; ++i) e[i] = unary_of_one(Unary::exp, x[i] - max);
      for (std::size_t begin = 0; begin < v; begin += slab)
        sums.push_back(lanes(std::min(slab, v - begin), [&](float s, std::size_t i) { return s + e[begin + i]; }));
      const float sum = tree(sums), inverse = 1.0F / sum;
      const auto target = static_cast<std::size_t>(targets[r]);
      want_losses[r] = unary_of_one(Unary::log, sum) + max - x[target];
      for (std::size_t i = 0; i < v; ++i)
        want[r * stride + i] = i == target ? (e[i] * inverse - 1.0F) * scale : e[i] * inverse * scale;
    }
    const Vec<const std::int32_t> t{targets.data(), static_cast<Index>(rows)};
    softmax_cross_entropy({}, mat(logits, rows, v, stride), t, scale, vec(losses), mat(d, rows, v, stride));
    ASSERT_EQ(difference(losses, want_losses), "") << v;
    ASSERT_EQ(difference(d, want), "") << v;
    Floats only_losses(rows);
    softmax_cross_entropy({}, mat(logits, rows, v, stride), t, scale, vec(only_losses), {});
    ASSERT_EQ(difference(only_losses, want_losses), "") << v;
    softmax_cross_entropy({}, mat(logits, rows, v, stride), t, scale, vec(losses), mat(logits, rows, v, stride));
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t i = 0; i < v; ++i)
        ASSERT_EQ(bits(logits[r * stride + i]), bits(want[r * stride + i])) << "in place";
  }
}

TEST_P(Rows, SampleLossesAreTreesOverTokens) {
  Rng rng(5);
  for (std::size_t tokens : {1, 2, 3, 7, 64, 100}) {
    const Floats losses = tames(rng, 3 * tokens);
    Floats got(3), want;
    sample_losses({}, vec(losses), static_cast<Index>(tokens), vec(got));
    for (std::size_t s = 0; s < 3; ++s)
      want.push_back(tree(Floats(losses.begin() + static_cast<std::ptrdiff_t>(s * tokens),
                                 losses.begin() + static_cast<std::ptrdiff_t>((s + 1) * tokens))));
    ASSERT_EQ(difference(got, want), "");
  }
}

TEST_P(Rows, EmbeddingGradientIsADenseTreeOfChains) {
  Rng rng(6);
  for (std::size_t samples : {1, 2, 3, 5, 8, 13})
    for (std::size_t tokens : {1, 4, 9}) {
      const std::size_t rows = samples * tokens, vocabulary = 6, c = 19, context = tokens + 2;
      const Floats dx = tames(rng, rows * c, 3), wte = tames(rng, vocabulary * c), wpe = tames(rng, context * c);
      std::vector<std::int32_t> ids(rows);
      for (auto& id : ids) id = static_cast<std::int32_t>(rng() % vocabulary);
      const Vec<const std::int32_t> view{ids.data(), static_cast<Index>(rows)};
      Floats dwte(vocabulary * c, 5.0F), dwpe(context * c, 5.0F), x(rows * c);
      embedding_backward({}, view, static_cast<Index>(tokens), mat(dx, rows, c), mat(dwte, vocabulary, c));
      position_backward({}, mat(dx, rows, c), static_cast<Index>(tokens), mat(dwpe, context, c));
      embedding_forward({}, view, static_cast<Index>(tokens), mat(wte, vocabulary, c), mat(wpe, context, c),
                        mat(x, rows, c));

      Floats want_wte(vocabulary * c), want_wpe(context * c), want_x(rows * c);
      for (std::size_t j = 0; j < c; ++j) {
        for (std::size_t v = 0; v < vocabulary; ++v) {  // every sample is a leaf, with or without the token
          Floats leaves(samples, 0.0F);
          for (std::size_t r = 0; r < rows; ++r)
            if (static_cast<std::size_t>(ids[r]) == v) leaves[r / tokens] = leaves[r / tokens] + dx[r * c + j];
          want_wte[v * c + j] = tree(leaves);
        }
        for (std::size_t t = 0; t < context; ++t) {
          Floats leaves;
          for (std::size_t s = 0; s < samples && t < tokens; ++s) leaves.push_back(0.0F + dx[(s * tokens + t) * c + j]);
          want_wpe[t * c + j] = tree(leaves);
        }
        for (std::size_t r = 0; r < rows; ++r)
          want_x[r * c + j] = wte[static_cast<std::size_t>(ids[r]) * c + j] + wpe[(r % tokens) * c + j];
      }
      ASSERT_EQ(difference(dwte, want_wte), "") << samples << " " << tokens;
      ASSERT_EQ(difference(dwpe, want_wpe), "") << samples << " " << tokens;
      ASSERT_EQ(difference(x, want_x), "");
    }
}

TEST_P(Rows, TokensOutsideTheVocabularyAreRefused) {
  Floats table(8), x(2), losses(1);
  const std::int32_t bad = 4, negative = -1;
  EXPECT_ANY_THROW(embedding_forward({}, {&bad, 1}, 1, mat(table, 4, 2), mat(table, 4, 2), mat(x, 1, 2)));
  EXPECT_ANY_THROW(softmax_cross_entropy({}, mat(table, 1, 4), {&negative, 1}, 1, vec(losses), {}));
}

TEST_P(Rows, NormsAreLanesOverBlocksOf1024) {
  Rng rng(7);
  for (std::size_t n : {0, 1, 127, 128, 1000, 1023, 1024, 1025, 5000}) {
    const Floats x = tames(rng, n);
    Floats out((n + 1023) / 1024), want;
    norm2_blocks({}, vec(x), vec(out));
    for (std::size_t b = 0; b < n; b += 1024)
      want.push_back(lanes(std::min<std::size_t>(1024, n - b),
                           [&](float s, std::size_t i) { return fma1(x[b + i], x[b + i], s); }));
    ASSERT_EQ(difference(out, want), "") << n;
  }
}

TEST_P(Rows, NonFiniteValuesAreCounted) {
  Floats x(1000, 1.0F);
  x[3] = NAN, x[500] = INFINITY, x[999] = -INFINITY, x[10] = 3.4e38F, x[11] = -0.0F;
  std::int64_t count = 40;
  count_nonfinite({}, vec(x), {&count, 1});
  EXPECT_EQ(count, 43);
}

void reference_adamw(const OptimizerStep& s, float grad, float& p, float& m, float& v) {
  float g = grad * s.grad_factor;
  if (s.weight_decay != 0 && !s.decoupled) g = fma1(s.weight_decay, p, g);
  m = fma1(s.beta1, m, s.one_minus_beta1 * g);
  v = fma1(s.beta2, v, s.one_minus_beta2 * g * g);
  const float update = m * s.inverse_bias1 / fma1(std::sqrt(v), s.inverse_sqrt_bias2, s.eps);
  if (s.weight_decay != 0 && s.decoupled) p = fma1(-(s.lr * s.weight_decay), p, p);
  p = fma1(-s.lr, update, p);
}

TEST_P(Rows, AdamWIsTheWrittenSequence) {
  Rng rng(8);
  for (std::size_t n : {1, 15, 16, 17, 100, 1000})
    for (int kind = 0; kind < 3; ++kind) {
      OptimizerStep step{.lr = 1e-3F,
                         .weight_decay = kind == 0 ? 0.0F : 0.1F,
                         .inverse_bias1 = 3.7F,
                         .inverse_sqrt_bias2 = 9.1F,
                         .grad_factor = 0.73F,
                         .decoupled = kind == 1};
      const Floats grad = tames(rng, n);
      Floats p = tames(rng, n), m = tames(rng, n), v = uniforms(rng, n, 0, 1), wp = p, wm = m, wv = v;
      for (int t = 0; t < 3; ++t) {
        optimize({}, step, vec(grad), vec(p), vec(m), vec(v));
        for (std::size_t i = 0; i < n; ++i) reference_adamw(step, grad[i], wp[i], wm[i], wv[i]);
      }
      ASSERT_EQ(difference(p, wp), "");
      ASSERT_EQ(difference(m, wm), "");
      ASSERT_EQ(difference(v, wv), "");
    }
}

TEST_P(Rows, AdamWFollowsTheFormulaInDouble) {
  Rng rng(9);
  const std::size_t n = 1000;
  const Floats grad = uniforms(rng, n);
  Floats p = uniforms(rng, n), m(n, 0.0F), v(n, 0.0F);
  std::vector<double> dp(p.begin(), p.end()), dm(n), dv(n);
  for (int t = 1; t <= 20; ++t) {
    const double lr = 1e-2, b1 = 0.9, b2 = 0.95, eps = 1e-8, wd = 0.1;
    OptimizerStep s{.lr = static_cast<float>(lr),
                    .beta1 = static_cast<float>(b1),
                    .beta2 = static_cast<float>(b2),
                    .one_minus_beta1 = static_cast<float>(1 - b1),
                    .one_minus_beta2 = static_cast<float>(1 - b2),
                    .eps = static_cast<float>(eps),
                    .weight_decay = static_cast<float>(wd),
                    .inverse_bias1 = static_cast<float>(1 / (1 - std::pow(b1, t))),
                    .inverse_sqrt_bias2 = static_cast<float>(1 / std::sqrt(1 - std::pow(b2, t)))};
    optimize({}, s, vec(grad), vec(p), vec(m), vec(v));
    for (std::size_t i = 0; i < n; ++i) {
      const double g = grad[i];
      dm[i] = b1 * dm[i] + (1 - b1) * g;
      dv[i] = b2 * dv[i] + (1 - b2) * g * g;
      dp[i] -= lr * wd * dp[i];
      dp[i] -= lr * (dm[i] / (1 - std::pow(b1, t))) / (std::sqrt(dv[i] / (1 - std::pow(b2, t))) + eps);
    }
  }
  for (std::size_t i = 0; i < n; ++i) ASSERT_NEAR(p[i], dp[i], 2e-6) << i;
}

TEST_P(Rows, PointwiseOperationsTouchNothingElse) {
  Rng rng(10);
  for (std::size_t c : kWidths) {
    const std::size_t rows = 3, stride = c + 5;
    const Floats a = tames(rng, rows * stride), b = tames(rng, rows * stride);
    Floats sum(rows * stride, 3.0F), want(rows * stride, 3.0F), g = sum, want_g = sum, back = sum, want_back = sum;
    add({}, mat(a, rows, c, stride), mat(b, rows, c, stride), mat(sum, rows, c, stride));
    gelu_forward({}, mat(a, rows, c, stride), mat(g, rows, c, stride));
    gelu_backward({}, mat(b, rows, c, stride), mat(a, rows, c, stride), mat(back, rows, c, stride));
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t i = r * stride; i < r * stride + c; ++i) {
        want[i] = a[i] + b[i];
        want_g[i] = unary_of_one(Unary::gelu, a[i]);
        want_back[i] = b[i] * unary_of_one(Unary::gelu_grad, a[i]);
      }
    ASSERT_EQ(difference(sum, want), "");
    ASSERT_EQ(difference(g, want_g), "");
    ASSERT_EQ(difference(back, want_back), "");
    Floats x = a, scaled = a;
    scale({}, vec(x), 1.3F);
    for (float& value : scaled) value = value * 1.3F;
    ASSERT_EQ(difference(x, scaled), "");
    fill_bits({}, vec(x), 0x7fc12345U);
    for (float value : x) ASSERT_EQ(bits(value), 0x7fc12345U);
    copy({}, vec(a), vec(x));
    ASSERT_EQ(difference(x, a), "");
  }
}

}  // namespace
}  // namespace seeksim::kernels::test
