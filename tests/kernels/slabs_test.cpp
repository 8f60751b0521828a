// Tensor and sequence parallelism split kernels' work: what 1, 2, 4 and 8 ways make of their parts, put together, is
// bit for bit what one kernel makes of the whole, on every instruction set and in every type.

#include "kernels/slabs.h"

#include <algorithm>

#include "kernels/attention.h"
#include "kernels/cross_entropy.h"
#include "kernels/embedding.h"
#include "kernels/gemm.h"
#include "kernels/layer_norm.h"
#include "kernels/logit_scale.h"
#include "kernels/pointwise.h"
#include "kernels/tree.h"
#include "tests/kernels/dropout_of_one.h"
#include "tests/kernels/half.h"

namespace seeksim::kernels::test {
namespace {

class Slabs : public OnEveryIsa {};
SEEKSIM_ON_EVERY_ISA(Slabs);

// Runs `check` for every storage type.
#define SEEKSIM_FOR_ALL(check, ...) \
  do {                              \
    check<float>(__VA_ARGS__);      \
    check<bf16>(__VA_ARGS__);       \
    check<fp16>(__VA_ARGS__);       \
    if (HasFatalFailure()) return;  \
  } while (false)

constexpr int kWays[] = {1, 2, 4, 8};

template <class T>
std::vector<T> stored(const Floats& x) {
  std::vector<T> y(x.size());
  narrow<T>({}, vec(x), {y.data(), static_cast<Index>(y.size())});
  return y;
}
template <class T>
std::vector<T> some(Rng& rng, Index n, unsigned odd = 20) {
  return stored<T>(tames(rng, static_cast<std::size_t>(n), odd));
}
template <class T>
Floats wide(const std::vector<T>& x) {
  Floats y(x.size());
  widen<T>({}, {x.data(), static_cast<Index>(x.size())}, vec(y));
  return y;
}
template <class T>
Mat<T> rows_of(std::vector<T>& x, Index cols) {
  return {x.data(), static_cast<Index>(x.size()) / std::max<Index>(cols, 1), cols, cols};
}
template <class T>
Mat<const T> rows_of(const std::vector<T>& x, Index cols) {
  return {x.data(), static_cast<Index>(x.size()) / std::max<Index>(cols, 1), cols, cols};
}
template <class T>
Vec<const T> all_of(const std::vector<T>& x) {
  return {x.data(), static_cast<Index>(x.size())};
}
template <class T>
Mat<T> columns(Mat<T> m, Stretch s) {
  return {m.data + (s.size > 0 ? s.first : 0), m.rows, s.size, m.stride};
}
template <class T>
Mat<T> some_rows(Mat<T> m, Index first, Index count) {
  return {m.data + (count > 0 ? first * m.stride : 0), count, m.cols, m.stride};
}
Index index_between(Rng& rng, std::size_t low, std::size_t high) { return static_cast<Index>(between(rng, low, high)); }
Floats room(Index n) { return Floats(static_cast<std::size_t>(n), 7.0F); }
std::vector<std::int32_t> some_tokens(Rng& rng, Index n, Index vocabulary) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(n));
  for (auto& token : tokens) token = static_cast<std::int32_t>(rng() % static_cast<std::uint64_t>(vocabulary));
  return tokens;
}

// Tokens of a stretch, from each sample.
template <class T>
std::vector<T> tokens_of(const std::vector<T>& x, Index samples, Index tokens, Index cols, Stretch s) {
  std::vector<T> part;
  for (Index sample = 0; sample < samples; ++sample) {
    const auto begin = x.begin() + (sample * tokens + s.first) * cols;
    part.insert(part.end(), begin, begin + s.size * cols);
  }
  return part;
}

TEST(SlabStretches, TileADimensionInOrder) {
  for (Index n = 1; n < 70; ++n)
    for (int ways : kWays) {
      Index next = 0;
      for (int way = 0; way < ways; ++way) {
        const Stretch s = stretch_of_way(n, ways, way);
        ASSERT_EQ(s.first, next);
        ASSERT_EQ(s.size > 0, way < filled_ways(n, ways)) << n << " " << ways << " " << way;
        ASSERT_TRUE(s.first % slab_size(n) == 0 || s.size == 0);
        for (Index e = s.first; e < s.first + s.size; ++e) ASSERT_EQ(way_of(e, n, ways), way);
        next += s.size;
      }
      ASSERT_EQ(next, n);
    }
  EXPECT_ANY_THROW(stretch_of_way(8, 3, 0));
  EXPECT_ANY_THROW(stretch_of_way(8, 16, 0));
}

// ---- row-parallel products ----

// unit: elements of K that stay together, as a head's do.
template <class T>
void expect_row_parallel(Rng& rng, Index m, Index n, Index units, Index unit, bool with_bias) {
  const Index k = units * unit, segment = slab_size(units) * unit;
  const auto a = some<T>(rng, m * k), b = some<T>(rng, k * n), bias = some<T>(rng, n, 3);
  const Vec<const T> added = with_bias ? all_of(bias) : Vec<const T>{};
  std::vector<T> want(static_cast<std::size_t>(m * n));
  gemm<T>({}, Trans::no, Trans::no, rows_of(a, k), rows_of(b, n), rows_of(want, n), segment, added);
  for (int ways : kWays) {
    const Index filled = filled_ways(units, ways);
    Floats nodes = room(filled * m * n);
    for (int way = 0; way < filled; ++way) {
      Stretch s = stretch_of_way(units, ways, way);
      s = {s.first * unit, s.size * unit};
      gemm<T, float>({}, Trans::no, Trans::no, columns(rows_of(a, k), s), some_rows(rows_of(b, n), s.first, s.size),
                     {nodes.data() + way * m * n, m, n, n}, segment);
    }
    std::vector<T> got(want.size());
    add_ways<T>({}, rows_of(std::as_const(nodes), m * n), added, rows_of(got, n));
    ASSERT_EQ(difference(wide(got), wide(want)), "") << units << " x " << unit << ", " << ways << " ways";
  }
}

TEST_P(Slabs, RowParallelProductsAreWhatOneWayComputes) {
  Rng rng(1);
  for (Index units : {1, 2, 3, 5, 8, 9, 11, 16, 23, 64, 100})
    for (Index unit : {1, 4}) {
      const Index m = index_between(rng, 1, 7), n = index_between(rng, 1, 40);
      SEEKSIM_FOR_ALL(expect_row_parallel, rng, m, n, units, unit, rng() % 2 == 0);
    }
}

// ---- cross-entropy over slices of the vocabulary ----

template <class T>
struct Losses {
  Floats losses;
  std::vector<T> dlogits;
};

template <class T>
Losses<T> in_slices(const std::vector<T>& logits, const std::vector<std::int32_t>& targets, Index vocabulary, int ways,
                    float scale) {
  const auto rows = static_cast<Index>(targets.size());
  const Index filled = filled_ways(vocabulary, ways);
  const auto slice = [&](int way) { return VocabularySlice{vocabulary, stretch_of_way(vocabulary, ways, way).first}; };
  Losses<T> out{room(rows), logits};
  const auto part = [&](int way) {
    return columns(rows_of(out.dlogits, vocabulary), stretch_of_way(vocabulary, ways, way));
  };
  Floats maxima = room(ways * rows), at_target = maxima, sums = maxima, max = room(rows), target = max, sum = max;
  const auto row = [rows](Floats& x, int way) { return Vec<float>{x.data() + way * rows, rows}; };
  for (int way = 0; way < ways; ++way)
    slice_maxima<T>({}, part(way), slice(way), all_of(targets), row(maxima, way), row(at_target, way));
  max_over_ways({}, rows_of(std::as_const(maxima), rows), vec(max));
  select_rows({}, all_of(targets), vocabulary, ways, some_rows(rows_of(std::as_const(at_target), rows), 0, filled),
              mat(target, static_cast<std::size_t>(rows), 1));
  for (int way = 0; way < ways; ++way)
    slice_sums<T>({}, part(way), slice(way), vec(std::as_const(max)), row(sums, way));
  add_ways({}, some_rows(rows_of(std::as_const(sums), rows), 0, filled), {}, rows_of(sum, rows));
  for (int way = 0; way < ways; ++way)
    slice_cross_entropy<T>({}, part(way), slice(way), all_of(targets), scale, vec(std::as_const(max)),
                           vec(std::as_const(sum)), vec(std::as_const(target)), vec(out.losses), part(way));
  return out;
}

template <class T>
void expect_cross_entropy(Rng& rng, Index vocabulary) {
  const Index rows = 5;
  auto logits = some<T>(rng, rows * vocabulary);
  for (std::size_t i = 0; i < logits.size(); i += 3) logits[i] = stored<T>({20 * uniform(rng)})[0];
  const auto targets = some_tokens(rng, rows, vocabulary);
  Losses<T> want{room(rows), logits};
  softmax_cross_entropy<T>({}, rows_of(logits, vocabulary), all_of(targets), 0.125F, vec(want.losses),
                           rows_of(want.dlogits, vocabulary));
  for (int ways : kWays) {
    const Losses<T> got = in_slices(logits, targets, vocabulary, ways, 0.125F);
    ASSERT_EQ(difference(got.losses, want.losses), "") << vocabulary << ", " << ways << " ways";
    ASSERT_EQ(difference(wide(got.dlogits), wide(want.dlogits)), "") << vocabulary << ", " << ways << " ways";
  }
}

TEST_P(Slabs, CrossEntropyOverSlicesOfTheVocabulary) {
  Rng rng(2);
  for (Index vocabulary : {1, 2, 3, 5, 8, 9, 17, 64, 100, 129, 300, 1027})
    SEEKSIM_FOR_ALL(expect_cross_entropy, rng, vocabulary);
}

TEST_P(Slabs, LogitScaleOverSlicesOfTheVocabulary) {
  Rng rng(3);
  for (Index vocabulary : {1, 5, 8, 9, 100, 1027})
    for (int ways : kWays) {
      const Index rows = 3, filled = filled_ways(vocabulary, ways);
      const Floats raw = some<float>(rng, rows * vocabulary), scale = {1.7F};
      Floats want = some<float>(rng, rows * vocabulary), got = want, want_dots = room(rows), dots = want_dots;
      logit_scale_backward({}, rows_of(raw, vocabulary), vec(scale), rows_of(want, vocabulary), vec(want_dots));
      Floats nodes = room(filled * rows);
      for (int way = 0; way < filled; ++way) {
        const Stretch s = stretch_of_way(vocabulary, ways, way);
        logit_scale_backward({}, columns(rows_of(raw, vocabulary), s), vec(scale), columns(rows_of(got, vocabulary), s),
                             {nodes.data() + way * rows, rows}, slab_size(vocabulary));
      }
      add_ways({}, rows_of(std::as_const(nodes), rows), {}, rows_of(dots, rows));
      ASSERT_EQ(difference(dots, want_dots), "") << vocabulary << ", " << ways << " ways";
      ASSERT_EQ(difference(got, want), "") << vocabulary << ", " << ways << " ways";
    }
}

// ---- embeddings ----

template <class T>
void expect_embedding(Rng& rng, Index vocabulary, Index tokens, Index samples) {
  const Index c = index_between(rng, 1, 40), rows = samples * tokens;
  const auto wte = some<T>(rng, vocabulary * c), wpe = some<T>(rng, tokens * c), dx = some<T>(rng, rows * c, 3);
  const auto ids = some_tokens(rng, rows, vocabulary);
  std::vector<T> want_x(static_cast<std::size_t>(rows * c));
  Floats want = room(vocabulary * c);
  embedding_forward<T>({}, all_of(ids), tokens, rows_of(wte, c), rows_of(wpe, c), rows_of(want_x, c));
  embedding_backward<T>({}, all_of(ids), tokens, rows_of(dx, c), rows_of(want, c));
  for (int ways : kWays) {
    const Index filled = filled_ways(vocabulary, ways);
    std::vector<T> parts(static_cast<std::size_t>(filled * rows * c)), x(want_x.size());
    Floats got = room(vocabulary * c);
    for (int way = 0; way < filled; ++way) {
      const Stretch s = stretch_of_way(vocabulary, ways, way);
      embedding_forward_slice<T>({}, all_of(ids), tokens, vocabulary, s.first,
                                 some_rows(rows_of(wte, c), s.first, s.size), rows_of(wpe, c),
                                 {parts.data() + way * rows * c, rows, c, c});
      embedding_backward_slice<T>({}, all_of(ids), tokens, vocabulary, s.first, rows_of(dx, c),
                                  some_rows(rows_of(got, c), s.first, s.size));
    }
    select_rows<T>({}, all_of(ids), vocabulary, ways, rows_of(std::as_const(parts), rows * c), rows_of(x, c));
    ASSERT_EQ(difference(wide(x), wide(want_x)), "") << vocabulary << ", " << ways << " ways";
    ASSERT_EQ(difference(got, want), "") << vocabulary << ", " << ways << " ways";
  }
}

TEST_P(Slabs, EmbeddingRowsAreSelectedFromTheirOwner) {
  Rng rng(4);
  for (Index vocabulary : {1, 3, 5, 8, 9, 30, 64})
    for (Index samples : {1, 3, 5}) SEEKSIM_FOR_ALL(expect_embedding, rng, vocabulary, 4, samples);
}

// ---- attention ----

template <class T>
void expect_heads(Rng& rng, Index heads, const Dropout& drop) {
  const Index samples = 2, tokens = index_between(rng, 1, 20), d = index_between(rng, 1, 10), rows = samples * tokens;
  const AttentionShape whole{samples, tokens, heads, d};
  const auto qkv = some<T>(rng, rows * heads * 3 * d), dout = some<T>(rng, rows * heads * d);
  const auto zeros = [](Index n) { return std::vector<T>(static_cast<std::size_t>(n)); };
  auto probs = zeros(samples * heads * tokens * tokens), out = zeros(rows * heads * d),
       dqkv = zeros(rows * heads * 3 * d);
  Floats work = room(2 * tokens * tokens);
  attention_forward<T>({}, whole, rows_of(qkv, heads * 3 * d), rows_of(probs, tokens), rows_of(out, heads * d), drop);
  attention_backward<T>({}, whole, rows_of(dout, heads * d), rows_of(qkv, heads * 3 * d),
                        rows_of(std::as_const(probs), tokens), rows_of(work, tokens), rows_of(dqkv, heads * 3 * d),
                        drop);
  for (int ways : kWays) {
    auto got = zeros(rows * heads * d), dgot = zeros(rows * heads * 3 * d);
    for (int way = 0; way < filled_ways(heads, ways); ++way) {
      const Stretch s = stretch_of_way(heads, ways, way), qs{s.first * 3 * d, s.size * 3 * d},
                    os{s.first * d, s.size * d};
      const AttentionShape slice{samples, tokens, s.size, d, s.first};
      auto part = zeros(samples * s.size * tokens * tokens);
      attention_forward<T>({}, slice, columns(rows_of(qkv, heads * 3 * d), qs), rows_of(part, tokens),
                           columns(rows_of(got, heads * d), os), drop);
      attention_backward<T>({}, slice, columns(rows_of(dout, heads * d), os), columns(rows_of(qkv, heads * 3 * d), qs),
                            rows_of(std::as_const(part), tokens), rows_of(work, tokens),
                            columns(rows_of(dgot, heads * 3 * d), qs), drop);
    }
    ASSERT_EQ(difference(wide(got), wide(out)), "") << heads << " heads, " << ways << " ways";
    ASSERT_EQ(difference(wide(dgot), wide(dqkv)), "") << heads << " heads, " << ways << " ways";
  }
}

TEST_P(Slabs, HeadsAreWhatTheyAreAmongAll) {
  Rng rng(5);
  for (Index heads : {1, 2, 3, 5, 8, 9, 12})
    for (const double rate : {0.0, 0.3}) SEEKSIM_FOR_ALL(expect_heads, rng, heads, some_dropout(rate));
}

// ---- stretches of tokens ----

template <class T>
void expect_token_dropout(Rng& rng, Index tokens) {
  const Index samples = 3, c = index_between(rng, 1, 70);
  const auto x = some<T>(rng, samples * tokens * c);
  std::vector<T> want(x.size());
  dropout<T>({}, some_dropout(0.4), tokens, rows_of(x, c), rows_of(want, c));
  for (int ways : kWays)
    for (int way = 0; way < filled_ways(tokens, ways); ++way) {
      const Stretch s = stretch_of_way(tokens, ways, way);
      auto part = tokens_of(x, samples, tokens, c, s);
      dropout<T>({}, some_dropout(0.4), s.size, rows_of(std::as_const(part), c), rows_of(part, c), s.first);
      ASSERT_EQ(difference(wide(part), wide(tokens_of(want, samples, tokens, c, s))), "") << tokens << " " << ways;
    }
}

TEST_P(Slabs, DropoutGoesByTheTokenOfTheSample) {
  Rng rng(6);
  for (Index tokens : {1, 5, 8, 9, 20}) SEEKSIM_FOR_ALL(expect_token_dropout, rng, tokens);
}

// What ways of sequence parallelism make of the gradients of a norm and a bias.
template <class T>
struct ColumnGradients {
  Floats gamma, beta, bias;
};

template <class T>
ColumnGradients<T> over_stretches(const std::vector<T>& dy, const std::vector<T>& x, const Floats& mean,
                                  const Floats& rstd, Index samples, Index tokens, Index c, int ways) {
  const Index filled = filled_ways(tokens, ways), all = samples * c;
  Floats gammas = room(filled * all), betas = gammas, biases = gammas;
  for (int way = 0; way < filled; ++way) {
    const Stretch s = stretch_of_way(tokens, ways, way);
    const auto rows = [&](Floats& nodes) { return Mat<float>{nodes.data() + way * all, samples, c, c}; };
    const auto dys = tokens_of(dy, samples, tokens, c, s), xs = tokens_of(x, samples, tokens, c, s);
    layer_norm_sample_grads<T>({}, rows_of(dys, c), rows_of(xs, c), vec(tokens_of(mean, samples, tokens, 1, s)),
                               vec(tokens_of(rstd, samples, tokens, 1, s)), s.size, slab_size(tokens), rows(gammas),
                               rows(betas));
    bias_sample_grads<T>({}, rows_of(dys, c), s.size, slab_size(tokens), rows(biases));
  }
  ColumnGradients<T> out{room(c), room(c), room(c)};
  add_samples({}, rows_of(std::as_const(gammas), all), vec(out.gamma));
  add_samples({}, rows_of(std::as_const(betas), all), vec(out.beta));
  add_samples({}, rows_of(std::as_const(biases), all), vec(out.bias));
  return out;
}

template <class T>
void expect_column_gradients(Rng& rng, Index samples, Index tokens) {
  const Index c = index_between(rng, 1, 140), rows = samples * tokens;
  const auto dy = some<T>(rng, rows * c, 5), x = some<T>(rng, rows * c);
  const Floats mean = some<float>(rng, rows), rstd = uniforms(rng, static_cast<std::size_t>(rows), 0.5F, 2.0F);
  Floats gamma = room(c), beta = room(c), bias = room(c);
  layer_norm_param_grad<T>({}, rows_of(dy, c), rows_of(x, c), vec(mean), vec(rstd), tokens, vec(gamma), vec(beta));
  bias_grad<T>({}, rows_of(dy, c), tokens, vec(bias));
  for (int ways : kWays) {
    const auto got = over_stretches(dy, x, mean, rstd, samples, tokens, c, ways);
    ASSERT_EQ(difference(got.gamma, gamma), "") << samples << " x " << tokens << ", " << ways << " ways";
    ASSERT_EQ(difference(got.beta, beta), "") << samples << " x " << tokens << ", " << ways << " ways";
    ASSERT_EQ(difference(got.bias, bias), "") << samples << " x " << tokens << ", " << ways << " ways";
  }
}

TEST_P(Slabs, ColumnGradientsFoldWaysInsideEachSampleFirst) {
  Rng rng(7);
  for (Index tokens : {1, 3, 5, 8, 9, 16, 20, 33})
    for (Index samples : {1, 2, 3, 5, 8}) SEEKSIM_FOR_ALL(expect_column_gradients, rng, samples, tokens);
}

// A block of samples is a range of columns of what the ways handed out.
TEST_P(Slabs, SamplesOfABlockAreAddedAlone) {
  Rng rng(8);
  const Index samples = 5, c = 19, ways = 4;
  const Floats nodes = some<float>(rng, ways * samples * c);
  Floats got = room(c), want = room(c), copied;
  for (Index w = 0; w < ways; ++w)
    for (Index i = 2 * c; i < 4 * c; ++i) copied.push_back(nodes[static_cast<std::size_t>(w * samples * c + i)]);
  add_samples({}, columns(rows_of(nodes, samples * c), {2 * c, 2 * c}), vec(got));
  add_samples({}, rows_of(std::as_const(copied), 2 * c), vec(want));
  EXPECT_EQ(difference(got, want), "");
}

TEST_P(Slabs, PositionGradientsOfAStretchAreItsRows) {
  Rng rng(9);
  const Index samples = 3, tokens = 20, c = 21;
  const auto dx = some<float>(rng, samples * tokens * c, 3);
  Floats want = room(tokens * c), got = want;
  position_backward({}, rows_of(dx, c), tokens, rows_of(want, c));
  for (int ways : kWays) {
    for (int way = 0; way < filled_ways(tokens, ways); ++way) {
      const Stretch s = stretch_of_way(tokens, ways, way);
      const Floats part = tokens_of(dx, samples, tokens, c, s);
      position_backward({}, rows_of(part, c), s.size, some_rows(rows_of(got, c), s.first, s.size));
    }
    EXPECT_EQ(difference(got, want), "") << ways << " ways";
  }
}

// ---- mutations: what must not pass ----

// A fold in another order than the tree's, as a ring adds, and one that takes samples before ways.
TEST(SlabsMutation, AnotherOrderOfWaysIsSeen) {
  Rng rng(10);
  const Index ways = 8, samples = 3, c = 16;
  const Floats nodes = uniforms(rng, ways * samples * c);
  const auto at = [&](Index w, Index s, Index j) { return nodes[static_cast<std::size_t>((w * samples + s) * c + j)]; };
  Floats right = room(c), ring = right, samples_first = right, swapped = right;
  add_samples({}, rows_of(nodes, samples * c), vec(right));
  for (Index j = 0; j < c; ++j) {
    Floats by_ring, by_tree, by_way;
    for (Index s = 0; s < samples; ++s) {
      Floats of_ways;
      float chain = at(0, s, j);
      for (Index w = 0; w < ways; ++w) of_ways.push_back(at(w, s, j));
      for (Index w = 1; w < ways; ++w) chain = chain + at(w, s, j);
      by_tree.push_back(tree(of_ways));
      by_ring.push_back(chain);
    }
    for (Index w = 0; w < ways; ++w) {
      Floats of_samples;
      for (Index s = 0; s < samples; ++s) of_samples.push_back(at(w, s, j));
      by_way.push_back(tree(of_samples));
    }
    const auto k = static_cast<std::size_t>(j);
    EXPECT_EQ(bits(right[k]), bits(tree(by_tree)));
    ring[k] = tree(by_ring), samples_first[k] = tree(by_way);
  }
  EXPECT_NE(difference(ring, right), "");
  EXPECT_NE(difference(samples_first, right), "");
}

// Three of four ways are filled. A +0 for the fourth turns a sum of -0 into +0; the sum of three is -0.
TEST(SlabsMutation, AZeroForAnEmptySlabIsSeen) {
  const Floats three(3, -0.0F), four = {-0.0F, -0.0F, -0.0F, 0.0F};
  Floats right(1), wrong(1);
  add_ways({}, rows_of(three, 1), {}, rows_of(right, 1));
  add_ways({}, rows_of(four, 1), {}, rows_of(wrong, 1));
  EXPECT_EQ(bits(right[0]), bits(-0.0F));
  EXPECT_NE(bits(wrong[0]), bits(right[0]));
}

// Each way adding its share of the bias, and each rounding its node: both are what a careless split does.
template <class T>
void expect_bias_once(Rng& rng) {
  const Index n = 64;
  const Floats nodes = uniforms(rng, 2 * n);
  const auto bias = stored<T>(uniforms(rng, n));
  std::vector<T> right(n), twice(n), rounded_parts(n);
  add_ways<T>({}, rows_of(nodes, n), all_of(bias), rows_of(right, n));
  Floats with_bias = nodes, rounded = nodes;
  for (std::size_t i = 0; i < n; ++i) with_bias[i] = with_bias[i] + wide(bias)[i];
  round_through<T>({}, vec(rounded));
  add_ways<T>({}, rows_of(std::as_const(with_bias), n), all_of(bias), rows_of(twice, n));
  add_ways<T>({}, rows_of(std::as_const(rounded), n), all_of(bias), rows_of(rounded_parts, n));
  EXPECT_NE(difference(wide(twice), wide(right)), "");
  if constexpr (!std::is_same_v<T, float>) {
    EXPECT_NE(difference(wide(rounded_parts), wide(right)), "");
  }
}

TEST(SlabsMutation, ABiasAddedTwiceAndARoundingTooManyAreSeen) {
  Rng rng(11);
  expect_bias_once<float>(rng);
  expect_bias_once<bf16>(rng);
  expect_bias_once<fp16>(rng);
}

TEST(SlabsMutation, DropoutByTheLocalHeadOrTokenIsSeen) {
  Rng rng(12);
  const Index tokens = 16, d = 4;
  const Dropout drop = some_dropout(0.5);
  const Floats qkv = uniforms(rng, tokens * 3 * d);
  const auto attention = [&](Index first_head) {
    Floats probs = room(tokens * tokens), out = room(tokens * d);
    attention_forward({}, {1, tokens, 1, d, first_head}, rows_of(qkv, 3 * d), rows_of(probs, tokens), rows_of(out, d),
                      drop);
    return out;
  };
  EXPECT_NE(difference(attention(0), attention(1)), "");
  const Floats x = uniforms(rng, tokens * d, 1, 2);
  Floats here = room(tokens * d), there = here;
  dropout({}, drop, tokens, rows_of(x, d), rows_of(here, d), 0);
  dropout({}, drop, tokens, rows_of(x, d), rows_of(there, d), tokens);
  EXPECT_NE(difference(here, there), "");
}

// Rows and target logits without an owner are NaNs: a sum of them, or a value from the wrong way, is a NaN.
TEST(SlabsMutation, WhatAWayLacksCannotBeAdded) {
  Rng rng(13);
  const Index vocabulary = 16, c = 3;
  const Floats table = uniforms(rng, vocabulary * c), wpe = uniforms(rng, c), logits = uniforms(rng, vocabulary);
  const std::vector<std::int32_t> token = {9};
  for (int way = 0; way < 2; ++way) {
    const Stretch s = stretch_of_way(vocabulary, 2, way);
    Floats x = room(c), maximum = room(1), at_target = room(1);
    embedding_forward_slice({}, all_of(token), 1, vocabulary, s.first, some_rows(rows_of(table, c), s.first, s.size),
                            rows_of(wpe, c), rows_of(x, c));
    slice_maxima({}, columns(rows_of(logits, vocabulary), s), {vocabulary, s.first}, all_of(token), vec(maximum),
                 vec(at_target));
    for (const float value : x) EXPECT_EQ(std::isnan(value), way == 0);
    EXPECT_EQ(std::isnan(at_target[0]), way == 0);
  }
}

// Sums over other segments than the eight of the whole: a slice whose own length was cut in eight.
TEST(SlabsMutation, SegmentsOfTheSliceInsteadOfTheWholeAreSeen) {
  Rng rng(14);
  const Index tokens = 40, c = 16;
  const Floats dy = uniforms(rng, tokens / 2 * c);
  Floats right = room(c), wrong = room(c);
  bias_sample_grads({}, rows_of(dy, c), tokens / 2, slab_size(tokens), rows_of(right, c));
  bias_sample_grads({}, rows_of(dy, c), tokens / 2, slab_size(tokens / 2), rows_of(wrong, c));
  EXPECT_NE(difference(wrong, right), "");
  const Index vocabulary = 512, rows = 8;
  const Floats logits = uniforms(rng, rows * vocabulary), max(rows, 1.0F);
  Floats nodes = room(rows), cut = room(rows);
  slice_sums({}, columns(rows_of(logits, vocabulary), {0, 256}), {vocabulary, 0}, vec(max), vec(nodes));
  slice_sums({}, columns(rows_of(logits, vocabulary), {0, 256}), {256, 0}, vec(max), vec(cut));
  EXPECT_NE(difference(cut, nodes), "");
}

TEST(SlabsMutation, SlicesThatCutASegmentAreRefused) {
  const Floats logits(16);
  Floats max(1), sum(1);
  EXPECT_ANY_THROW(slice_sums({}, columns(rows_of(logits, 16), {0, 5}), {16, 0}, vec(std::as_const(max)), vec(sum)));
  EXPECT_ANY_THROW(slice_sums({}, columns(rows_of(logits, 16), {0, 8}), {16, 1}, vec(std::as_const(max)), vec(sum)));
  EXPECT_ANY_THROW(slice_sums({}, columns(rows_of(logits, 16), {0, 8}), {16, 12}, vec(std::as_const(max)), vec(sum)));
}

}  // namespace
}  // namespace seeksim::kernels::test
