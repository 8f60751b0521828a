// RMS norm, rotary positions, SwiGLU and embeddings without positions: against scalar references written from their
// headers, in fp32 on every instruction set, and in 16 bits against fp32 on the widened operands, rounded once.

#include <algorithm>

#include "kernels/attention.h"
#include "kernels/embedding.h"
#include "kernels/gemm.h"
#include "kernels/rms_norm.h"
#include "kernels/rotary.h"
#include "kernels/slabs.h"
#include "kernels/swiglu.h"
#include "tests/kernels/dropout_of_one.h"
#include "tests/kernels/half.h"
#include "tests/kernels/unary_of_one.h"

namespace seeksim::kernels::test {
namespace {

class LlamaRows : public OnEveryIsa {};
SEEKSIM_ON_EVERY_ISA(LlamaRows);

const std::vector<std::size_t> kWidths = {1, 2, 7, 8, 9, 15, 16, 17, 31, 64, 100, 127, 128, 129, 250, 256, 384, 777};

// Runs `check` for both types.
#define SEEKSIM_FOR_BOTH(check, ...) \
  do {                               \
    check<bf16>(__VA_ARGS__);        \
    check<fp16>(__VA_ARGS__);        \
    if (HasFatalFailure()) return;   \
  } while (false)

// ---- RMS norm ----

TEST_P(LlamaRows, RmsNormForwardIsTheWrittenSequence) {
  Rng rng(1);
  for (std::size_t c : kWidths) {
    const std::size_t rows = 5, stride = c + 3;
    const Floats x = tames(rng, rows * stride), gamma = tames(rng, c);
    Floats y(rows * stride, 9.0F), rstd(rows), want(rows * stride, 9.0F), want_rstd(rows);
    rms_norm_forward({}, mat(x, rows, c, stride), vec(gamma), 1e-5F, mat(y, rows, c, stride), vec(rstd));
    for (std::size_t r = 0; r < rows; ++r) {
      const float* const xr = &x[r * stride];
      const float squares = lanes(c, [&](float s, std::size_t i) { return fma1(xr[i], xr[i], s); });
      want_rstd[r] = 1.0F / std::sqrt(squares / static_cast<float>(c) + 1e-5F);
      for (std::size_t i = 0; i < c; ++i) want[r * stride + i] = xr[i] * want_rstd[r] * gamma[i];
    }
    ASSERT_EQ(difference(rstd, want_rstd), "") << c;
    ASSERT_EQ(difference(y, want), "") << c;
  }
}

TEST_P(LlamaRows, RmsNormBackwardIsTheWrittenSequence) {
  Rng rng(2);
  for (std::size_t c : kWidths) {
    const std::size_t rows = 4;
    const Floats x = tames(rng, rows * c), dy = tames(rng, rows * c), gamma = tames(rng, c),
                 rstd = uniforms(rng, rows, 0.5F, 2.0F), skip = tames(rng, rows * c);
    for (bool with_skip : {false, true}) {
      Floats dx(rows * c), want(rows * c);
      rms_norm_backward({}, mat(dy, rows, c), mat(x, rows, c), vec(gamma), vec(rstd),
                        with_skip ? mat(skip, rows, c) : Mat<const float>{}, mat(dx, rows, c));
      for (std::size_t r = 0; r < rows; ++r) {
        const auto xhat = [&](std::size_t i) { return x[r * c + i] * rstd[r]; };
        const auto g = [&](std::size_t i) { return dy[r * c + i] * gamma[i]; };
        const float dot =
            lanes(c, [&](float s, std::size_t i) { return fma1(g(i), xhat(i), s); }) / static_cast<float>(c);
        for (std::size_t i = 0; i < c; ++i) {
          const float d = fma1(-xhat(i), dot, g(i)) * rstd[r];
          want[r * c + i] = with_skip ? skip[r * c + i] + d : d;
        }
      }
      ASSERT_EQ(difference(dx, want), "") << c;
    }
  }
}

TEST_P(LlamaRows, RmsNormGammaGradientIsSegmentsInSamplesInATree) {
  Rng rng(3);
  int seen = 0;
  for (std::size_t tokens : {1, 3, 8, 9, 16, 20})
    for (std::size_t samples : {1, 2, 3, 5, 8})
      for (std::size_t c : {1, 16, 33, 130}) {
        const std::size_t rows = tokens * samples, segment = (tokens + 7) / 8;
        const Floats x = tames(rng, rows * c), dy = tames(rng, rows * c), rstd = uniforms(rng, rows, 0.5F, 2.0F);
        Floats dgamma(c), want(c), chain(c);
        rms_norm_param_grad({}, mat(dy, rows, c), mat(x, rows, c), vec(rstd), static_cast<Index>(tokens), vec(dgamma));
        for (std::size_t j = 0; j < c; ++j) {
          Floats by_sample;
          for (std::size_t s = 0; s < rows; s += tokens) {
            Floats d(tokens), xhat(tokens);
            for (std::size_t t = 0; t < tokens; ++t) {
              d[t] = dy[(s + t) * c + j], xhat[t] = x[(s + t) * c + j] * rstd[s + t];
              chain[j] = fma1(d[t], xhat[t], chain[j]);
            }
            by_sample.push_back(segchain(d, xhat, segment));
          }
          want[j] = tree(by_sample);
        }
        ASSERT_EQ(difference(dgamma, want), "") << tokens << " " << samples << " " << c;
        seen += !difference(dgamma, chain).empty();
      }
  EXPECT_GT(seen, 50) << "one chain over all tokens must be seen to be wrong";
}

template <class T>
void expect_rms_norm(Rng& rng, std::size_t c) {
  const std::size_t rows = 6, stride = c + 3;
  const auto x = draw<T>(rng, rows * stride, 30, false), dy = draw<T>(rng, rows * stride, 9, false),
             gamma = draw<T>(rng, c, 20, false), skip = draw<T>(rng, rows * stride, 20, false);
  Floats y32(rows * stride, 9.0F), dx32 = y32, rstd(rows), rstd32(rows), dgamma(c), dgamma32(c);
  Tensor<T> y(y32), dx(dx32);
  const auto in = [&](const Tensor<T>& t) { return t.mat(rows, c, stride); };
  const auto wide = [&](const Tensor<T>& t) { return mat(t.wide, rows, c, stride); };
  rms_norm_forward<T>({}, in(x), gamma.vec(), 1e-5F, y.out(rows, c, stride), vec(rstd));
  rms_norm_forward({}, wide(x), vec(gamma.wide), 1e-5F, mat(y32, rows, c, stride), vec(rstd32));
  ASSERT_EQ(difference(rstd, rstd32), "") << c;
  ASSERT_EQ(difference_rounded(y.stored, y32), "") << c;
  for (bool with_skip : {false, true}) {
    rms_norm_backward<T>({}, in(dy), in(x), gamma.vec(), vec(rstd), with_skip ? in(skip) : Mat<const T>{},
                         dx.out(rows, c, stride));
    rms_norm_backward({}, wide(dy), wide(x), vec(gamma.wide), vec(rstd), with_skip ? wide(skip) : Mat<const float>{},
                      mat(dx32, rows, c, stride));
    ASSERT_EQ(difference_rounded(dx.stored, dx32), "") << c;
  }
  rms_norm_param_grad<T>({}, in(dy), in(x), vec(rstd), 3, vec(dgamma));
  rms_norm_param_grad({}, wide(dy), wide(x), vec(rstd), 3, vec(dgamma32));
  ASSERT_EQ(difference(dgamma, dgamma32), "") << c;
}

TEST_P(LlamaRows, RmsNormIn16Bits) {
  Rng rng(4);
  for (std::size_t c : kWidths) SEEKSIM_FOR_BOTH(expect_rms_norm, rng, c);
}

// ---- rotary positions ----

struct Heads {
  std::size_t samples, tokens, heads, dim, group;
  std::size_t rows() const { return samples * tokens; }
  std::size_t columns() const { return heads / group * (group + 2) * dim; }
  AttentionShape shape() const {
    return {
        static_cast<Index>(samples), static_cast<Index>(tokens), static_cast<Index>(heads), static_cast<Index>(dim), 0,
        static_cast<Index>(group)};
  }
};
const std::vector<Heads> kHeads = {{1, 1, 1, 2, 1},  {2, 5, 2, 8, 1},  {1, 9, 4, 6, 2},
                                   {3, 4, 6, 32, 3}, {2, 7, 4, 34, 4}, {1, 3, 8, 64, 2}};

// `turn`: 1 forward, -1 backward.
Floats rotated(const Heads& h, const Floats& angles, float turn, Floats x, std::size_t stride) {
  const std::size_t half = h.dim / 2;
  for (std::size_t r = 0; r < h.rows(); ++r)
    for (std::size_t key = 0; key < h.heads / h.group; ++key)
      for (std::size_t head = 0; head < h.group + 1; ++head)
        for (std::size_t i = 0; i < half; ++i) {
          float& a = x[r * stride + (key * (h.group + 2) + head) * h.dim + i];
          float& b = *(&a + half);
          const float c = angles[r % h.tokens * h.dim + i], s = turn * angles[r % h.tokens * h.dim + half + i];
          const float turned = fma1(a, c, -(b * s));
          b = fma1(b, c, a * s);
          a = turned;
        }
  return x;
}

TEST_P(LlamaRows, RotaryTurnsQueriesAndKeysAndNothingElse) {
  Rng rng(5);
  for (const Heads& h : kHeads) {
    const std::size_t stride = h.columns() + 3;
    const Floats angles = uniforms(rng, (h.tokens + 2) * h.dim), x = tames(rng, h.rows() * stride);
    const auto table = mat(angles, h.tokens + 2, h.dim);
    Floats y = x, dx = x;
    rotary_forward({}, h.shape(), table, mat(y, h.rows(), h.columns(), stride));
    rotary_backward({}, h.shape(), table, mat(dx, h.rows(), h.columns(), stride));
    ASSERT_EQ(difference(y, rotated(h, angles, 1, x, stride)), "") << h.dim;
    ASSERT_EQ(difference(dx, rotated(h, angles, -1, x, stride)), "") << h.dim;
    EXPECT_NE(difference(y, dx), "") << "turned forth and back alike";
  }
}

template <class T>
void expect_rotary(Rng& rng, const Heads& h) {
  const Floats angles = uniforms(rng, h.tokens * h.dim);
  const auto table = mat(angles, h.tokens, h.dim);
  auto x = draw<T>(rng, h.rows() * h.columns(), 9, false);
  Floats wide = x.wide;
  for (int round = 0; round < 2; ++round) {
    const auto turn = round == 0 ? rotary_forward<float> : rotary_backward<float>;
    const auto turn_half = round == 0 ? rotary_forward<T> : rotary_backward<T>;
    turn_half({}, h.shape(), table, x.out(h.rows(), h.columns()));
    turn({}, h.shape(), table, mat(wide, h.rows(), h.columns()));
    ASSERT_EQ(difference_rounded(x.stored, wide), "") << h.dim;
    for (std::size_t i = 0; i < wide.size(); ++i) wide[i] = widen_one(x.stored[i]);
  }
}

TEST_P(LlamaRows, RotaryIn16Bits) {
  Rng rng(6);
  for (const Heads& h : kHeads) SEEKSIM_FOR_BOTH(expect_rotary, rng, h);
}

TEST_P(LlamaRows, RotaryRefusesWhatHasNoHalvesOrNoAngles) {
  Floats x(3 * 3 * 4), angles(4 * 4);
  EXPECT_ANY_THROW(rotary_forward({}, {1, 4, 1, 3}, mat(std::as_const(angles), 4, 3), mat(x, 4, 9)));
  EXPECT_ANY_THROW(rotary_forward({}, {1, 3, 1, 4}, mat(std::as_const(angles), 2, 4), mat(x, 3, 12)));
}

// ---- SwiGLU ----

struct Swiglu {
  Floats y, dx;
};

Swiglu swiglu_reference(std::size_t rows, std::size_t f, std::size_t slab, const Floats& x, const Floats& dy) {
  Swiglu r{Floats(rows * f), Floats(rows * 2 * f)};
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t i = 0; i < f; ++i) {
      const std::size_t begin = i / slab * slab, n = std::min(slab, f - begin);
      const std::size_t gate = row * 2 * f + begin + i, up = gate + n;
      const float d = dy[row * f + i], silu = unary_of_one(Unary::silu, x[gate]);
      r.y[row * f + i] = silu * x[up];
      r.dx[gate] = d * x[up] * unary_of_one(Unary::silu_grad, x[gate]);
      r.dx[up] = d * silu;
    }
  return r;
}

TEST_P(LlamaRows, SwigluPairsTheColumnsOfASlab) {
  Rng rng(7);
  for (std::size_t f : {1, 5, 8, 21, 64, 100, 263})
    for (std::size_t slab : {(f + 7) / 8, f, std::size_t{3}}) {
      const std::size_t rows = 3;
      Floats x = tames(rng, rows * 2 * f);
      const Floats dy = tames(rng, rows * f);
      const Swiglu want = swiglu_reference(rows, f, slab, x, dy);
      Floats y(rows * f), dx(rows * 2 * f);
      const auto s = static_cast<Index>(slab);
      const auto read = [](const Floats& v, std::size_t r, std::size_t c) { return mat(v, r, c); };
      swiglu_forward({}, s, read(x, rows, 2 * f), mat(y, rows, f));
      swiglu_backward({}, s, read(dy, rows, f), read(x, rows, 2 * f), mat(dx, rows, 2 * f));
      ASSERT_EQ(difference(y, want.y), "") << f << " " << slab;
      ASSERT_EQ(difference(dx, want.dx), "") << f << " " << slab;
      swiglu_backward({}, s, read(dy, rows, f), read(x, rows, 2 * f), mat(x, rows, 2 * f));
      ASSERT_EQ(difference(x, want.dx), "") << f << " " << slab << " in place";
    }
}

TEST_P(LlamaRows, SwigluWithAnotherSlabIsSeen) {
  Rng rng(8);
  const Floats x = uniforms(rng, 2 * 40);
  Floats y(40), other(40);
  swiglu_forward({}, 5, mat(x, 1, 80), mat(y, 1, 40));
  swiglu_forward({}, 10, mat(x, 1, 80), mat(other, 1, 40));
  EXPECT_NE(difference(y, other), "");
}

template <class T>
void expect_swiglu(Rng& rng, std::size_t f) {
  const std::size_t rows = 3, stride = 2 * f + 1;
  const auto x = draw<T>(rng, rows * stride, 9, false), dy = draw<T>(rng, rows * f, 9, false);
  Floats y32(rows * f), dx32(rows * stride, 9.0F);
  Tensor<T> y(y32), dx(dx32);
  const auto slab = static_cast<Index>((f + 7) / 8);
  swiglu_forward<T>({}, slab, x.mat(rows, 2 * f, stride), y.out(rows, f));
  swiglu_forward({}, slab, mat(x.wide, rows, 2 * f, stride), mat(y32, rows, f));
  swiglu_backward<T>({}, slab, dy.mat(rows, f), x.mat(rows, 2 * f, stride), dx.out(rows, 2 * f, stride));
  swiglu_backward({}, slab, mat(dy.wide, rows, f), mat(x.wide, rows, 2 * f, stride), mat(dx32, rows, 2 * f, stride));
  ASSERT_EQ(difference_rounded(y.stored, y32), "") << f;
  ASSERT_EQ(difference_rounded(dx.stored, dx32), "") << f;
}

TEST_P(LlamaRows, SwigluIn16Bits) {
  Rng rng(9);
  for (std::size_t f : {1, 5, 8, 21, 64, 100, 263}) SEEKSIM_FOR_BOTH(expect_swiglu, rng, f);
}

// ---- what ways of tensor and sequence parallelism make of it ----

constexpr int kWays[] = {1, 2, 4, 8};

// Columns [begin, begin + n) of x (rows, all).
Floats columns_of(const Floats& x, std::size_t all, Stretch s, Index times = 1) {
  Floats out;
  for (std::size_t r = 0; r < x.size(); r += all)
    out.insert(out.end(), x.begin() + static_cast<std::ptrdiff_t>(r) + times * s.first,
               x.begin() + static_cast<std::ptrdiff_t>(r) + times * (s.first + s.size));
  return out;
}

TEST_P(LlamaRows, SlicesOfSwigluAreContiguousAndTheirProductsFold) {
  Rng rng(11);
  for (const std::size_t f : {8U, 21U, 64U, 100U}) {
    const std::size_t rows = 3, c = 5;
    const auto width = static_cast<Index>(f), slab = slab_size(width);
    const Floats x = uniforms(rng, rows * 2 * f), dy = uniforms(rng, rows * f), w = uniforms(rng, 2 * f * c);
    Floats y(rows * f), dx(rows * 2 * f), din(rows * c);
    swiglu_forward({}, slab, mat(x, rows, 2 * f), mat(y, rows, f));
    swiglu_backward({}, slab, mat(dy, rows, f), mat(x, rows, 2 * f), mat(dx, rows, 2 * f));
    gemm({}, Trans::no, Trans::no, mat(std::as_const(dx), rows, 2 * f), mat(w, 2 * f, c), mat(din, rows, c), 2 * slab);
    for (const int ways : kWays) {
      const int filled = filled_ways(width, ways);
      Floats nodes(static_cast<std::size_t>(filled) * rows * c), folded(rows * c);
      for (int way = 0; way < filled; ++way) {
        const Stretch s = stretch_of_way(width, ways, way);
        const auto n = static_cast<std::size_t>(s.size);
        const Floats xs = columns_of(x, 2 * f, s, 2), dys = columns_of(dy, f, s);
        Floats ys(rows * n), dxs(rows * 2 * n);
        swiglu_forward({}, slab, mat(xs, rows, 2 * n), mat(ys, rows, n));
        swiglu_backward({}, slab, mat(dys, rows, n), mat(xs, rows, 2 * n), mat(dxs, rows, 2 * n));
        ASSERT_EQ(difference(ys, columns_of(y, f, s)), "") << f << ", way " << way << " of " << ways;
        ASSERT_EQ(difference(dxs, columns_of(dx, 2 * f, s, 2)), "") << f << ", way " << way << " of " << ways;
        const Mat<const float> ws{w.data() + 2 * s.first * static_cast<Index>(c), 2 * s.size, c, c};
        gemm({}, Trans::no, Trans::no, mat(std::as_const(dxs), rows, 2 * n), ws,
             Mat<float>{&nodes[static_cast<std::size_t>(way) * rows * c], rows, c, c}, 2 * slab);
      }
      add_ways({}, mat(std::as_const(nodes), static_cast<std::size_t>(filled), rows * c), {}, mat(folded, rows, c));
      ASSERT_EQ(difference(folded, din), "") << f << ", " << ways << " ways";
    }
  }
}

TEST_P(LlamaRows, SlicesOfKeyHeadsHaveTheBitsOfTheWhole) {
  Rng rng(12);
  const Heads h{2, 9, 8, 6, 2};
  const std::size_t rows = h.rows(), all = h.columns(), out = h.heads * h.dim;
  const Floats angles = uniforms(rng, h.tokens * h.dim), dout = uniforms(rng, rows * out);
  const auto table = mat(angles, h.tokens, h.dim);
  Floats qkv = uniforms(rng, rows * all);
  const Floats before = qkv;
  const Dropout drop = some_dropout(0.3);
  const auto run = [&](AttentionShape shape, Floats& in, const Floats& gradient, Floats& o, Floats& din) {
    const auto heads = static_cast<std::size_t>(shape.heads), columns = in.size() / rows;
    Floats probs(h.samples * heads * h.tokens * h.tokens), scratch(2 * h.tokens * h.tokens);
    o.resize(rows * heads * h.dim), din.resize(in.size());
    rotary_forward({}, shape, table, mat(in, rows, columns));
    const auto p = [&] { return mat(std::as_const(probs), h.samples * heads * h.tokens, h.tokens); };
    attention_forward({}, shape, mat(std::as_const(in), rows, columns),
                      mat(probs, h.samples * heads * h.tokens, h.tokens), mat(o, rows, heads * h.dim), drop);
    attention_backward({}, shape, mat(gradient, rows, heads * h.dim), mat(std::as_const(in), rows, columns), p(),
                       mat(scratch, 2 * h.tokens, h.tokens), mat(din, rows, columns), drop);
    rotary_backward({}, shape, table, mat(din, rows, columns));
  };
  Floats whole_out, whole_din;
  run(h.shape(), qkv, dout, whole_out, whole_din);
  for (const int ways : {2, 4}) {
    for (int way = 0; way < ways; ++way) {
      const Stretch keys = stretch_of_way(h.shape().key_heads(), ways, way);
      const Index columns = h.shape().group_columns(), d = static_cast<Index>(h.dim);
      AttentionShape slice = h.shape();
      slice.heads = keys.size * slice.group, slice.first_head = keys.first * slice.group;
      Floats in = columns_of(before, all, keys, columns), o, din;
      run(slice, in, columns_of(dout, out, keys, slice.group * d), o, din);
      ASSERT_EQ(difference(o, columns_of(whole_out, out, keys, slice.group * d)), "") << way << " of " << ways;
      ASSERT_EQ(difference(din, columns_of(whole_din, all, keys, columns)), "") << way << " of " << ways;
    }
  }
}

template <class T>
std::vector<T> some(Rng& rng, std::size_t n) {
  if constexpr (std::is_same_v<T, float>) {
    return tames(rng, n);
  } else {
    return draw<T>(rng, n, 9, false).stored;
  }
}

template <class T>
void expect_rms_ways(Rng& rng, std::size_t tokens) {
  constexpr std::size_t samples = 3, c = 21;
  const std::size_t rows = samples * tokens;
  const auto dy = some<T>(rng, rows * c), x = some<T>(rng, rows * c);
  const Floats rstd = uniforms(rng, rows, 0.5F, 2.0F);
  const auto t = static_cast<Index>(tokens);
  Floats whole(c), folded(c);
  const auto rows_of = [](const std::vector<T>& v, Index first, Index count) {
    return Mat<const T>{v.data() + first * static_cast<Index>(c), count, c, c};
  };
  const auto all = static_cast<Index>(rows);
  rms_norm_param_grad<T>({}, rows_of(dy, 0, all), rows_of(x, 0, all), vec(rstd), t, vec(whole));
  for (const int ways : kWays) {
    const int filled = filled_ways(t, ways);
    Floats nodes(static_cast<std::size_t>(filled) * samples * c);
    for (int way = 0; way < filled; ++way) {
      const Stretch s = stretch_of_way(t, ways, way);
      for (std::size_t sample = 0; sample < samples; ++sample) {
        const Index first = static_cast<Index>(sample) * t + s.first;
        rms_norm_sample_grads<T>({}, rows_of(dy, first, s.size), rows_of(x, first, s.size),
                                 {rstd.data() + first, s.size}, s.size, slab_size(t),
                                 {&nodes[(static_cast<std::size_t>(way) * samples + sample) * c], 1, c, c});
      }
    }
    add_samples({}, mat(std::as_const(nodes), static_cast<std::size_t>(filled), samples * c), vec(folded));
    ASSERT_EQ(difference(folded, whole), "") << tokens << ", " << ways << " ways";
  }
}

TEST_P(LlamaRows, RmsNormGradientsFoldWaysInsideEachSampleFirst) {
  Rng rng(13);
  for (const std::size_t tokens : {1U, 7U, 8U, 20U}) {
    expect_rms_ways<float>(rng, tokens);
    SEEKSIM_FOR_BOTH(expect_rms_ways, rng, tokens);
  }
}

// ---- embeddings without positions ----

template <class T>
void expect_copied_rows(Rng& rng) {
  const auto wte = draw<T>(rng, 5 * 19, 5, false);
  const std::vector<std::int32_t> ids = {4, 0, 0, 3, 1, 4};
  Tensor<T> x(Floats(6 * 19));
  embedding_forward<T>({}, {ids.data(), 6}, 3, wte.mat(5, 19), {}, x.out(6, 19));
  for (std::size_t i = 0; i < x.size(); ++i)
    ASSERT_EQ(x.stored[i].bits, wte.stored[static_cast<std::size_t>(ids[i / 19]) * 19 + i % 19].bits) << i;
}

TEST_P(LlamaRows, EmbeddingsWithoutPositionsAreCopiedRows) {
  Rng rng(10);
  SEEKSIM_FOR_BOTH(expect_copied_rows, rng);
  const Floats wte = {1, -0.0F, 3, 4};  // -0 stays -0: nothing is added
  const std::int32_t ids[] = {1, 0};
  Floats x(4);
  embedding_forward({}, {ids, 2}, 2, mat(wte, 2, 2), {}, mat(x, 2, 2));
  EXPECT_EQ(difference(x, {3, 4, 1, -0.0F}), "");
}

}  // namespace
}  // namespace seeksim::kernels::test
