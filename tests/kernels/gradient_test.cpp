// Gradients against central differences. Each forward function is written again in double, so that the difference
// quotient is good to about nine digits; the kernels' fp32 gradients have to agree to fp32 accuracy.

#include <algorithm>
#include <functional>

#include "kernels/attention.h"
#include "kernels/cross_entropy.h"
#include "kernels/embedding.h"
#include "kernels/gemm.h"
#include "kernels/layer_norm.h"
#include "kernels/pointwise.h"
#include "kernels/rms_norm.h"
#include "kernels/rotary.h"
#include "kernels/swiglu.h"
#include "tests/kernels/reference.h"

namespace seeksim::kernels::test {
namespace {

using Doubles = std::vector<double>;

// d loss / d x by central differences.
Doubles slopes(Doubles x, const std::function<double(const Doubles&)>& loss) {
  constexpr double kStep = 1e-5;
  Doubles g(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double keep = x[i];
    x[i] = keep + kStep;
    const double above = loss(x);
    x[i] = keep - kStep;
    g[i] = (above - loss(x)) / (2 * kStep);
    x[i] = keep;
  }
  return g;
}

Doubles wide(const Floats& x) { return {x.begin(), x.end()}; }

void expect_close(const Floats& got, const Doubles& want, const char* what) {
  double largest = 0;
  for (double w : want) largest = std::max(largest, std::fabs(w));
  ASSERT_GT(largest, 1e-3) << what << ": a gradient of nothing proves nothing";
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(static_cast<double>(got[i]), want[i], 2e-5 * largest + 1e-6) << what << " element " << i;
}

double dot(const Doubles& a, const Floats& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * static_cast<double>(b[i]);
  return sum;
}

class Gradient : public OnEveryIsa {};
SEEKSIM_ON_EVERY_ISA(Gradient);

TEST_P(Gradient, OfLayerNorm) {
  constexpr std::size_t kTokens = 5, kSamples = 3, kR = kTokens * kSamples, kC = 11;
  Rng rng(1);
  const Floats x = uniforms(rng, kR * kC), gamma = uniforms(rng, kC), beta = uniforms(rng, kC),
               dy = uniforms(rng, kR * kC);
  Floats y(kR * kC), mean(kR), rstd(kR), dx(kR * kC), dgamma(kC), dbeta(kC);
  const auto read = [](const Floats& v) { return mat(v, kR, kC); };
  layer_norm_forward({}, read(x), vec(gamma), vec(beta), 1e-5F, mat(y, kR, kC), vec(mean), vec(rstd));
  layer_norm_backward({}, read(dy), read(x), vec(gamma), vec(mean), vec(rstd), {}, mat(dx, kR, kC));
  layer_norm_param_grad({}, read(dy), read(x), vec(mean), vec(rstd), kTokens, vec(dgamma), vec(dbeta));
  const auto loss = [&](const Doubles& in, const Doubles& g, const Doubles& b) {
    double sum = 0;
    for (std::size_t r = 0; r < kR; ++r) {
      double m = 0, v = 0;
      for (std::size_t i = 0; i < kC; ++i) m += in[r * kC + i] / kC;
      for (std::size_t i = 0; i < kC; ++i) v += (in[r * kC + i] - m) * (in[r * kC + i] - m) / kC;
      for (std::size_t i = 0; i < kC; ++i)
        sum += ((in[r * kC + i] - m) / std::sqrt(v + 1e-5) * g[i] + b[i]) * static_cast<double>(dy[r * kC + i]);
    }
    return sum;
  };
  const Doubles xd = wide(x), gd = wide(gamma), bd = wide(beta);
  expect_close(dx, slopes(xd, [&](const Doubles& v) { return loss(v, gd, bd); }), "dx");
  expect_close(dgamma, slopes(gd, [&](const Doubles& v) { return loss(xd, v, bd); }), "dgamma");
  expect_close(dbeta, slopes(bd, [&](const Doubles& v) { return loss(xd, gd, v); }), "dbeta");
}

TEST_P(Gradient, OfGelu) {
  Rng rng(2);
  const Floats x = uniforms(rng, 400, -6, 6), dy = uniforms(rng, 400);
  Floats dx(400);
  gelu_backward({}, mat(dy, 1, 400), mat(x, 1, 400), mat(dx, 1, 400));
  expect_close(dx,
               slopes(wide(x),
                      [&](const Doubles& v) {
                        Doubles y;
                        for (double a : v)
                          y.push_back(0.5 * a * (1 + std::tanh(std::sqrt(2 / M_PI) * (a + 0.044715 * a * a * a))));
                        return dot(y, dy);
                      }),
               "dx");
}

TEST_P(Gradient, OfCrossEntropy) {
  constexpr std::size_t kR = 4, kV = 21;
  Rng rng(3);
  const Floats logits = uniforms(rng, kR * kV, -3, 3);
  const std::vector<std::int32_t> targets = {0, 20, 7, 7};
  Floats losses(kR), d(kR * kV);
  softmax_cross_entropy({}, mat(logits, kR, kV), {targets.data(), kR}, 0.5F, vec(losses), mat(d, kR, kV));
  const auto loss = [&](const Doubles& x) {
    double sum = 0;
    for (std::size_t r = 0; r < kR; ++r) {
      double total = 0;
      for (std::size_t i = 0; i < kV; ++i) total += std::exp(x[r * kV + i]);
      sum += std::log(total) - x[r * kV + static_cast<std::size_t>(targets[r])];
    }
    return sum;
  };
  expect_close(d, slopes(wide(logits), [&](const Doubles& x) { return 0.5 * loss(x); }), "dlogits");
  EXPECT_NEAR(static_cast<double>(losses[0] + losses[1] + losses[2] + losses[3]), loss(wide(logits)), 1e-5);
}

TEST_P(Gradient, OfALinearLayer) {
  constexpr std::size_t kTokens = 6, kR = 2 * kTokens, kIn = 7, kOut = 9;
  Rng rng(4);
  const Floats x = uniforms(rng, kR * kIn), w = uniforms(rng, kIn * kOut), b = uniforms(rng, kOut),
               dy = uniforms(rng, kR * kOut);
  Floats y(kR * kOut), dx(kR * kIn), dw(kIn * kOut), db(kOut);
  gemm({}, Trans::no, Trans::no, mat(x, kR, kIn), mat(w, kIn, kOut), mat(y, kR, kOut), 0, vec(b));
  gemm({}, Trans::no, Trans::yes, mat(dy, kR, kOut), mat(w, kIn, kOut), mat(dx, kR, kIn), slab_size(kOut));
  gemm({}, Trans::yes, Trans::no, mat(x, kR, kIn), mat(dy, kR, kOut), mat(dw, kIn, kOut), kTokens);
  bias_grad({}, mat(dy, kR, kOut), kTokens, vec(db));
  const auto loss = [&](const Doubles& xd, const Doubles& wd, const Doubles& bd) {
    Doubles out(kR * kOut);
    for (std::size_t r = 0; r < kR; ++r)
      for (std::size_t o = 0; o < kOut; ++o) {
        out[r * kOut + o] = bd[o];
        for (std::size_t i = 0; i < kIn; ++i) out[r * kOut + o] += xd[r * kIn + i] * wd[i * kOut + o];
      }
    return dot(out, dy);
  };
  const Doubles xd = wide(x), wd = wide(w), bd = wide(b);
  expect_close(dx, slopes(xd, [&](const Doubles& v) { return loss(v, wd, bd); }), "dx");
  expect_close(dw, slopes(wd, [&](const Doubles& v) { return loss(xd, v, bd); }), "dw");
  expect_close(db, slopes(bd, [&](const Doubles& v) { return loss(xd, wd, v); }), "db");
}

TEST_P(Gradient, OfEmbeddings) {
  constexpr std::size_t kTokens = 4, kR = 3 * kTokens, kV = 5, kC = 6;
  Rng rng(5);
  const Floats wte = uniforms(rng, kV * kC), wpe = uniforms(rng, kTokens * kC), dx = uniforms(rng, kR * kC);
  std::vector<std::int32_t> ids(kR);
  for (auto& id : ids) id = static_cast<std::int32_t>(rng() % kV);
  Floats dwte(kV * kC), dwpe(kTokens * kC);
  embedding_backward({}, {ids.data(), kR}, kTokens, mat(dx, kR, kC), mat(dwte, kV, kC));
  position_backward({}, mat(dx, kR, kC), kTokens, mat(dwpe, kTokens, kC));
  const auto loss = [&](const Doubles& t, const Doubles& p) {
    Doubles x;
    for (std::size_t r = 0; r < kR; ++r)
      for (std::size_t i = 0; i < kC; ++i)
        x.push_back(t[static_cast<std::size_t>(ids[r]) * kC + i] + p[(r % kTokens) * kC + i]);
    return dot(x, dx);
  };
  expect_close(dwte, slopes(wide(wte), [&](const Doubles& v) { return loss(v, wide(wpe)); }), "dwte");
  expect_close(dwpe, slopes(wide(wpe), [&](const Doubles& v) { return loss(wide(wte), v); }), "dwpe");
}

// Two key heads of `group` query heads each.
void expect_attention_gradient(std::size_t group) {
  constexpr std::size_t kT = 9, kD = 5;
  const std::size_t kH = 2 * group, kW = 2 * (group + 2) * kD;
  Rng rng(6);
  const Floats qkv = uniforms(rng, kT * kW), dout = uniforms(rng, kT * kH * kD);
  Floats probs(kH * kT * kT), out(kT * kH * kD), scratch(2 * kT * kT), dqkv(kT * kW);
  const AttentionShape shape{1, kT, static_cast<Index>(kH), kD, 0, static_cast<Index>(group)};
  attention_forward({}, shape, mat(qkv, kT, kW), mat(probs, kH * kT, kT), mat(out, kT, kH * kD));
  attention_backward({}, shape, mat(dout, kT, kH * kD), mat(qkv, kT, kW), mat(std::as_const(probs), kH * kT, kT),
                     mat(scratch, 2 * kT, kT), mat(dqkv, kT, kW));
  const auto loss = [&](const Doubles& x) {
    Doubles o(kT * kH * kD, 0);
    for (std::size_t h = 0; h < kH; ++h)
      for (std::size_t i = 0; i < kT; ++i) {
        const std::size_t base = h / group * (group + 2) * kD, q = base + h % group * kD, k = base + group * kD;
        Doubles e(i + 1);
        double total = 0;
        for (std::size_t j = 0; j <= i; ++j) {
          double s = 0;
          for (std::size_t d = 0; d < kD; ++d) s += x[i * kW + q + d] * x[j * kW + k + d];
          total += e[j] = std::exp(s / std::sqrt(static_cast<double>(kD)));
        }
        for (std::size_t j = 0; j <= i; ++j)
          for (std::size_t d = 0; d < kD; ++d) o[i * kH * kD + h * kD + d] += e[j] / total * x[j * kW + k + kD + d];
      }
    return dot(o, dout);
  };
  expect_close(dqkv, slopes(wide(qkv), loss), "dqkv");
}

TEST_P(Gradient, OfAttention) {
  for (std::size_t group : {1, 2}) expect_attention_gradient(group);
}

TEST_P(Gradient, OfRmsNorm) {
  constexpr std::size_t kTokens = 5, kSamples = 3, kR = kTokens * kSamples, kC = 11;
  Rng rng(7);
  const Floats x = uniforms(rng, kR * kC), gamma = uniforms(rng, kC), dy = uniforms(rng, kR * kC);
  Floats y(kR * kC), rstd(kR), dx(kR * kC), dgamma(kC);
  const auto read = [](const Floats& v) { return mat(v, kR, kC); };
  rms_norm_forward({}, read(x), vec(gamma), 1e-5F, mat(y, kR, kC), vec(rstd));
  rms_norm_backward({}, read(dy), read(x), vec(gamma), vec(rstd), {}, mat(dx, kR, kC));
  rms_norm_param_grad({}, read(dy), read(x), vec(rstd), kTokens, vec(dgamma));
  const auto loss = [&](const Doubles& in, const Doubles& g) {
    double sum = 0;
    for (std::size_t r = 0; r < kR; ++r) {
      double v = 0;
      for (std::size_t i = 0; i < kC; ++i) v += in[r * kC + i] * in[r * kC + i] / kC;
      for (std::size_t i = 0; i < kC; ++i)
        sum += in[r * kC + i] / std::sqrt(v + 1e-5) * g[i] * static_cast<double>(dy[r * kC + i]);
    }
    return sum;
  };
  expect_close(dx, slopes(wide(x), [&](const Doubles& v) { return loss(v, wide(gamma)); }), "dx");
  expect_close(dgamma, slopes(wide(gamma), [&](const Doubles& v) { return loss(wide(x), v); }), "dgamma");
}

TEST_P(Gradient, OfSwiglu) {
  constexpr std::size_t kR = 3, kF = 21, kSlab = 4;
  Rng rng(8);
  const Floats x = uniforms(rng, kR * 2 * kF, -5, 5), dy = uniforms(rng, kR * kF);
  Floats dx(kR * 2 * kF);
  swiglu_backward({}, kSlab, mat(dy, kR, kF), mat(x, kR, 2 * kF), mat(dx, kR, 2 * kF));
  const auto loss = [&](const Doubles& in) {
    Doubles y;
    for (std::size_t r = 0; r < kR; ++r)
      for (std::size_t f = 0; f < kF; ++f) {
        const std::size_t begin = f / kSlab * kSlab, n = std::min(kSlab, kF - begin), gate = r * 2 * kF + begin + f;
        y.push_back(in[gate] / (1 + std::exp(-in[gate])) * in[gate + n]);
      }
    return dot(y, dy);
  };
  expect_close(dx, slopes(wide(x), loss), "dx");
}

TEST_P(Gradient, OfRotaryPositions) {
  constexpr std::size_t kT = 7, kD = 6, kW = 4 * kD;  // two query heads, k, v
  Rng rng(9);
  const Floats x = uniforms(rng, kT * kW), dy = uniforms(rng, kT * kW);
  Floats angles(kT * kD), dx = dy;
  for (std::size_t t = 0; t < kT; ++t)
    for (std::size_t i = 0; i < kD / 2; ++i) {
      angles[t * kD + i] = static_cast<float>(std::cos(static_cast<double>(t * (i + 1)) / 3));
      angles[t * kD + kD / 2 + i] = static_cast<float>(std::sin(static_cast<double>(t * (i + 1)) / 3));
    }
  rotary_backward({}, {1, kT, 2, kD, 0, 2}, mat(std::as_const(angles), kT, kD), mat(dx, kT, kW));
  const auto loss = [&](const Doubles& in) {
    Doubles y = in;
    for (std::size_t t = 0; t < kT; ++t)
      for (std::size_t h = 0; h < 3; ++h)
        for (std::size_t i = 0; i < kD / 2; ++i) {
          const double angle = static_cast<double>(t * (i + 1)) / 3;
          const std::size_t a = t * kW + h * kD + i, b = a + kD / 2;
          y[a] = in[a] * std::cos(angle) - in[b] * std::sin(angle);
          y[b] = in[b] * std::cos(angle) + in[a] * std::sin(angle);
        }
    return dot(y, dy);
  };
  expect_close(dx, slopes(wide(x), loss), "dx");
}

}  // namespace
}  // namespace seeksim::kernels::test
