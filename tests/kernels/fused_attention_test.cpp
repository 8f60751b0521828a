// Attention by blocks of keys against its definition (fused_attention.h), one number at a time, on every instruction
// set; and what must be seen: a join without its factors, blocks of another size, sums in another order.

#include <algorithm>

#include "kernels/attention.h"
#include "kernels/fused_attention.h"
#include "tests/kernels/attention_case.h"
#include "tests/kernels/dropout_of_one.h"
#include "tests/kernels/half.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/unary_of_one.h"

namespace seeksim::kernels::test {
namespace {

const std::vector<AttentionCase> kCases = {{1, 1, 1, 1},       {1, 5, 1, 3},      {2, 32, 2, 8},     {1, 33, 3, 8},
                                           {2, 64, 2, 16},     {1, 65, 2, 64},    {1, 100, 1, 20},   {1, 130, 1, 5},
                                           {1, 161, 2, 33},    {1, 1, 2, 1, 2},   {2, 70, 6, 5, 3},  {1, 97, 8, 16, 4},
                                           {1, 40, 4, 130, 2}, {1, 227, 4, 6, 2}, {1, 256, 2, 12, 1}};

struct Result {
  Floats stats, out, dqkv;
};

Result run(const AttentionCase& c, const Floats& qkv, const Floats& dout, const Dropout& drop = {}) {
  Result r{Floats(c.b * c.h * c.t * 2, 4.0F), Floats(c.rows() * c.h * c.d, 4.0F), Floats(c.rows() * c.width(), 4.0F)};
  const auto in = mat(qkv, c.rows(), c.width());
  fused_attention_forward({}, c.shape(), in, mat(r.stats, c.b * c.h * c.t, 2), mat(r.out, c.rows(), c.h * c.d), drop);
  fused_attention_backward({}, c.shape(), mat(dout, c.rows(), c.h * c.d), in,
                           mat(std::as_const(r.out), c.rows(), c.h * c.d),
                           mat(std::as_const(r.stats), c.b * c.h * c.t, 2), mat(r.dqkv, c.rows(), c.width()), drop);
  return r;
}

// A sum over blocks, or its gradient: max and total of a plain tree are not looked at.
struct Node {
  bool is = false;
  float max = 0, total = 0;
  Floats sum;
};

// What the reference may be told to do wrong.
struct Wrong {
  bool no_factors = false;       // operands are added as they are
  bool chain_of_blocks = false;  // one after the other instead of the tree
  std::size_t block = 32;
  float dropped_delta = 1;  // times delta
};

Node joined(const Node& older, const Node& newer, const Wrong& wrong) {
  Node n{true, newer.max > older.max ? newer.max : older.max, 0, Floats(older.sum.size())};
  const float a = wrong.no_factors ? 1.0F : unary_of_one(Unary::exp, older.max - n.max);
  const float b = wrong.no_factors ? 1.0F : unary_of_one(Unary::exp, newer.max - n.max);
  n.total = fma1(newer.total, b, older.total * a);
  for (std::size_t i = 0; i < n.sum.size(); ++i) n.sum[i] = fma1(newer.sum[i], b, older.sum[i] * a);
  return n;
}
Node added(const Node& older, const Node& newer, const Wrong&) {
  Node n{true, 0, 0, older.sum};
  for (std::size_t i = 0; i < n.sum.size(); ++i) n.sum[i] += newer.sum[i];
  return n;
}

// F3 over leaves, by the definition of a node; a leaf that does not exist is no operand.
template <class Join>
Node tree_of(const std::vector<Node>& leaves, std::size_t begin, std::size_t width, const Wrong& wrong, Join join) {
  if (begin >= leaves.size()) return {};
  if (width == 1) return leaves[begin];
  const Node left = tree_of(leaves, begin, width / 2, wrong, join);
  const Node right = tree_of(leaves, begin + width / 2, width / 2, wrong, join);
  return !left.is ? right : !right.is ? left : join(left, right, wrong);
}
template <class Join>
Node root_of(const std::vector<Node>& leaves, const Wrong& wrong, Join join) {
  if (!wrong.chain_of_blocks) return tree_of(leaves, 0, std::bit_ceil(leaves.size()), wrong, join);
  Node n;
  for (const Node& leaf : leaves)
    if (leaf.is) n = n.is ? join(n, leaf, wrong) : leaf;
  return n;
}

// One sample of the definition, head by head.
class Reference {
 public:
  Reference(const AttentionCase& c, const Floats& qkv, const Floats& dout, const Dropout& drop, const Wrong& wrong)
      : c_(c),
        qkv_(qkv),
        dout_(dout),
        drop_(drop),
        wrong_(wrong),
        r_{Floats(c.b * c.h * c.t * 2), Floats(c.rows() * c.h * c.d), Floats(c.rows() * c.width())} {
    for (std::size_t s = 0; s < c.b; ++s)
      for (std::size_t k = 0; k < c.h / c.g; ++k) key_head(s, k);
  }
  const Result& result() const { return r_; }

 private:
  // Which: 0 q of query head h, 1 k and 2 v of its key head.
  std::size_t at(std::size_t s, std::size_t h, std::size_t t, std::size_t which) const {
    const std::size_t column = which == 0 ? h % c_.g : c_.g + which - 1;
    return (s * c_.t + t) * c_.width() + (h / c_.g * (c_.g + 2) + column) * c_.d;
  }
  std::size_t out_at(std::size_t s, std::size_t h, std::size_t t) const { return ((s * c_.t + t) * c_.h + h) * c_.d; }
  float dropped_one(std::size_t s, std::size_t h, std::size_t i, std::size_t j, float x) const {
    return drop_.on() ? dropped(drop_, s, (h * c_.t + i) * c_.t + j, x) : x;
  }
  float score(std::size_t s, std::size_t h, std::size_t i, std::size_t j) const {
    float dot = 0.0F;
    for (std::size_t e = 0; e < c_.d; ++e) dot = fma1(qkv_[at(s, h, i, 0) + e], qkv_[at(s, h, j, 1) + e], dot);
    return dot * (1.0F / std::sqrt(static_cast<float>(c_.d)));
  }
  void forward_row(std::size_t s, std::size_t h, std::size_t i) {
    std::vector<Node> leaves;
    for (std::size_t begin = 0; begin <= i; begin += wrong_.block) {
      const std::size_t n = std::min(wrong_.block, i + 1 - begin);
      Floats e(n);
      for (std::size_t j = 0; j < n; ++j) e[j] = score(s, h, i, begin + j);
      Node leaf{true, *std::max_element(e.begin(), e.end()), 0, Floats(c_.d, 0.0F)};
      for (float& x : e) x = unary_of_one(Unary::exp, x - leaf.max);
      leaf.total = lanes(n, [&](float a, std::size_t j) { return a + e[j]; });
      for (std::size_t j = 0; j < n; ++j)
        for (std::size_t x = 0; x < c_.d; ++x)
          leaf.sum[x] = fma1(dropped_one(s, h, i, begin + j, e[j]), qkv_[at(s, h, begin + j, 2) + x], leaf.sum[x]);
      leaves.push_back(leaf);
    }
    const Node root = root_of(leaves, wrong_, joined);
    const float inverse = 1.0F / root.total;
    for (std::size_t x = 0; x < c_.d; ++x) r_.out[out_at(s, h, i) + x] = root.sum[x] * inverse;
    r_.stats[((s * c_.h + h) * c_.t + i) * 2] = root.max, r_.stats[((s * c_.h + h) * c_.t + i) * 2 + 1] = inverse;
  }
  // p after dropout and dS of row i.
  void backward_row(std::size_t s, std::size_t h, std::size_t i, float* p, float* ds) {
    const float* const stats = &r_.stats[((s * c_.h + h) * c_.t + i) * 2];
    const float *const go = &dout_[out_at(s, h, i)], *const o = &r_.out[out_at(s, h, i)];
    const float delta = lanes(c_.d, [&](float a, std::size_t x) { return fma1(go[x], o[x], a); });
    for (std::size_t j = 0; j <= i; ++j) {
      const float probability = unary_of_one(Unary::exp, score(s, h, i, j) - stats[0]) * stats[1];
      float dp = 0.0F;
      for (std::size_t x = 0; x < c_.d; ++x) dp = fma1(go[x], qkv_[at(s, h, j, 2) + x], dp);
      const float scale = 1.0F / std::sqrt(static_cast<float>(c_.d));
      ds[j] = probability * (dropped_one(s, h, i, j, dp) - delta * wrong_.dropped_delta) * scale;
      p[j] = dropped_one(s, h, i, j, probability);
    }
  }
  void key_head(std::size_t s, std::size_t k) {
    const std::size_t t = c_.t, d = c_.d, blocks = (t + wrong_.block - 1) / wrong_.block;
    std::vector<Floats> p(c_.g, Floats(t * t)), ds = p;
    for (std::size_t g = 0; g < c_.g; ++g) {
      const std::size_t h = k * c_.g + g;
      for (std::size_t i = 0; i < t; ++i) {
        forward_row(s, h, i);
        backward_row(s, h, i, &p[g][i * t], &ds[g][i * t]);
        std::vector<Node> leaves(i / wrong_.block + 1, Node{true, 0, 0, Floats(d, 0.0F)});
        for (std::size_t j = 0; j <= i; ++j)
          for (std::size_t x = 0; x < d; ++x) {
            float& sum = leaves[j / wrong_.block].sum[x];
            sum = fma1(ds[g][i * t + j], qkv_[at(s, h, j, 1) + x], sum);
          }
        const Node root = root_of(leaves, wrong_, added);
        std::copy(root.sum.begin(), root.sum.end(), &r_.dqkv[at(s, h, i, 0)]);
      }
    }
    for (std::size_t j = 0; j < t; ++j) {
      std::vector<Node> leaves(blocks);
      for (std::size_t b = j / wrong_.block; b < blocks; ++b) {
        leaves[b] = {true, 0, 0, Floats(2 * d, 0.0F)};
        for (std::size_t g = 0; g < c_.g; ++g)
          for (std::size_t i = std::max(j, b * wrong_.block); i < std::min(t, (b + 1) * wrong_.block); ++i)
            for (std::size_t x = 0; x < d; ++x) {
              float &dk = leaves[b].sum[x], &dv = leaves[b].sum[d + x];
              dk = fma1(ds[g][i * t + j], qkv_[at(s, k * c_.g + g, i, 0) + x], dk);
              dv = fma1(p[g][i * t + j], dout_[out_at(s, k * c_.g + g, i) + x], dv);
            }
      }
      const Node root = root_of(leaves, wrong_, added);
      std::copy(root.sum.begin(), root.sum.end(), &r_.dqkv[at(s, k * c_.g, j, 1)]);
    }
  }

  const AttentionCase& c_;
  const Floats &qkv_, &dout_;
  const Dropout& drop_;
  const Wrong wrong_;
  Result r_;
};

Result reference(const AttentionCase& c, const Floats& qkv, const Floats& dout, const Dropout& drop = {},
                 const Wrong& wrong = {}) {
  return Reference(c, qkv, dout, drop, wrong).result();
}

class FusedAttention : public OnEveryIsa {};
SEEKSIM_ON_EVERY_ISA(FusedAttention);

TEST_P(FusedAttention, EqualsItsDefinition) {
  Rng rng(1);
  for (const AttentionCase& c : kCases) {
    const Floats qkv = uniforms(rng, c.rows() * c.width(), -3, 3), dout = tames(rng, c.rows() * c.h * c.d);
    const Result got = run(c, qkv, dout), want = reference(c, qkv, dout);
    ASSERT_EQ(difference(got.stats, want.stats), "") << c.t << " " << c.d;
    ASSERT_EQ(difference(got.out, want.out), "") << c.t << " " << c.d;
    ASSERT_EQ(difference(got.dqkv, want.dqkv), "") << c.t << " " << c.d;
  }
}

TEST_P(FusedAttention, DropsWhatMultipliesTheValues) {
  Rng rng(3);
  for (const AttentionCase& c : kCases) {
    const Floats qkv = tames(rng, c.rows() * c.width()), dout = tames(rng, c.rows() * c.h * c.d);
    const Dropout drop = some_dropout(0.3);
    const Result got = run(c, qkv, dout, drop), want = reference(c, qkv, dout, drop);
    ASSERT_EQ(difference(got.stats, want.stats), "") << c.t << " " << c.d;
    ASSERT_EQ(difference(got.out, want.out), "") << c.t << " " << c.d;
    ASSERT_EQ(difference(got.dqkv, want.dqkv), "") << c.t << " " << c.d;
  }
}

// Another sum of the same numbers: near to attention.h's, and not its bits.
TEST_P(FusedAttention, IsNearToAttentionThatKeepsItsProbabilities) {
  Rng rng(4);
  const AttentionCase c{1, 200, 4, 16, 2};
  const Floats qkv = uniforms(rng, c.rows() * c.width(), -2, 2), dout = uniforms(rng, c.rows() * c.h * c.d);
  for (const Dropout& drop : {Dropout{}, some_dropout(0.4)}) {
    const Result got = run(c, qkv, dout, drop);
    Floats probs(c.h * c.t * c.t), out(got.out.size()), dqkv(got.dqkv.size()), scratch(2 * c.t * c.t);
    attention_forward({}, c.shape(), mat(qkv, c.rows(), c.width()), mat(probs, c.h * c.t, c.t),
                      mat(out, c.rows(), c.h * c.d), drop);
    attention_backward({}, c.shape(), mat(dout, c.rows(), c.h * c.d), mat(qkv, c.rows(), c.width()),
                       mat(std::as_const(probs), c.h * c.t, c.t), mat(scratch, 2 * c.t, c.t),
                       mat(dqkv, c.rows(), c.width()), drop);
    for (std::size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(got.out[i], out[i], 4e-6F) << i;
    for (std::size_t i = 0; i < dqkv.size(); ++i) ASSERT_NEAR(got.dqkv[i], dqkv[i], 2e-5F) << i;
    EXPECT_NE(difference(got.out, out), "");
  }
}

TEST_P(FusedAttention, EachMistakeOfTheReferenceIsSeen) {
  Rng rng(5);
  const AttentionCase c{1, 170, 2, 8, 2};
  const Floats qkv = uniforms(rng, c.rows() * c.width(), -3, 3), dout = uniforms(rng, c.rows() * c.h * c.d);
  const Result got = run(c, qkv, dout);
  const auto seen = [&](const Wrong& wrong) {
    const Result other = reference(c, qkv, dout, {}, wrong);
    return std::pair{difference(got.out, other.out) != "", difference(got.dqkv, other.dqkv) != ""};
  };
  EXPECT_EQ(seen({}), (std::pair{false, false}));
  EXPECT_EQ(seen({.no_factors = true}), (std::pair{true, true}));
  EXPECT_EQ(seen({.chain_of_blocks = true}), (std::pair{true, true}));
  EXPECT_EQ(seen({.block = 64}), (std::pair{true, true}));
  EXPECT_EQ(seen({.dropped_delta = 1.0001F}), (std::pair{false, true}));
}

TEST_P(FusedAttention, KeysThatAreMaskedAreSkipped) {
  Rng rng(2);
  const AttentionCase c{1, 80, 1, 8};
  const std::size_t bad = 45;
  const Floats qkv = uniforms(rng, c.rows() * c.width()), dout = uniforms(rng, c.rows() * c.d);
  Floats poisoned = qkv;
  for (std::size_t e = 0; e < 3 * c.d; ++e) poisoned[bad * c.width() + e] = e % 2 ? NAN : INFINITY;
  const Result clean = run(c, qkv, dout), got = run(c, poisoned, dout);
  for (std::size_t i = 0; i < bad * c.d; ++i) ASSERT_EQ(bits(got.out[i]), bits(clean.out[i])) << "row " << i / c.d;
  for (std::size_t t = 0; t < bad; ++t)
    for (std::size_t e = 0; e < c.d; ++e)
      ASSERT_EQ(bits(got.dqkv[t * c.width() + e]), bits(clean.dqkv[t * c.width() + e])) << "dq of row " << t;
  for (std::size_t t = bad; t < c.t; ++t)
    for (std::size_t e = 0; e < c.d; ++e) ASSERT_TRUE(std::isnan(got.out[t * c.d + e])) << "the poison must arrive";
}

// Scores far above what exp takes: the maximum of each row keeps them finite.
TEST_P(FusedAttention, LargeScoresStayFinite) {
  Rng rng(6);
  const AttentionCase c{1, 100, 1, 4};
  const Floats qkv = uniforms(rng, c.rows() * c.width(), -60, 60), dout = uniforms(rng, c.rows() * c.d);
  const Result got = run(c, qkv, dout);
  EXPECT_GT(*std::max_element(got.stats.begin(), got.stats.end()), 1000.0F);
  for (const float x : got.out) ASSERT_TRUE(std::isfinite(x));
  for (const float x : got.dqkv) ASSERT_TRUE(std::isfinite(x));
}

TEST_P(FusedAttention, SlicesOfKeyHeadsHaveTheBitsOfTheWhole) {
  Rng rng(12);
  const AttentionCase c{2, 75, 8, 6, 2}, part{2, 75, 4, 6, 2};
  const Floats qkv = uniforms(rng, c.rows() * c.width()), dout = uniforms(rng, c.rows() * c.h * c.d);
  const Dropout drop = some_dropout(0.3);
  const Result whole = run(c, qkv, dout, drop);
  for (std::size_t way = 0; way < 2; ++way) {
    AttentionShape slice = part.shape();
    slice.first_head = static_cast<Index>(way * part.h);
    const auto columns = [&](const Floats& x, std::size_t all, std::size_t wide) {
      Floats y;
      for (std::size_t r = 0; r < x.size(); r += all) y.insert(y.end(), &x[r + way * wide], &x[r + way * wide] + wide);
      return y;
    };
    const Floats in = columns(qkv, c.width(), part.width()), go = columns(dout, c.h * c.d, part.h * c.d);
    Floats stats(c.b * part.h * c.t * 2), out(go.size()), dqkv(in.size());
    fused_attention_forward({}, slice, mat(in, c.rows(), part.width()), mat(stats, c.b * part.h * c.t, 2),
                            mat(out, c.rows(), part.h * c.d), drop);
    fused_attention_backward({}, slice, mat(go, c.rows(), part.h * c.d), mat(in, c.rows(), part.width()),
                             mat(std::as_const(out), c.rows(), part.h * c.d),
                             mat(std::as_const(stats), c.b * part.h * c.t, 2), mat(dqkv, c.rows(), part.width()), drop);
    ASSERT_EQ(difference(out, columns(whole.out, c.h * c.d, part.h * c.d)), "") << way;
    ASSERT_EQ(difference(dqkv, columns(whole.dqkv, c.width(), part.width())), "") << way;
  }
}

// 16 bits: inputs are widened, each output is rounded once; backward sees the rounded output.
template <class T>
void expect_rounded_once(Rng& rng, const AttentionCase& c, const Dropout& drop) {
  const std::size_t out = c.h * c.d, heads = c.b * c.h * c.t, wide = c.width() + 2;
  const auto qkv = draw<T>(rng, c.rows() * wide, 1000000, false), dout = draw<T>(rng, c.rows() * out, 20, false);
  Tensor<T> o(Floats(c.rows() * out, 5.0F)), dqkv(Floats(c.rows() * wide, 5.0F));
  Floats stats(heads * 2), stats32 = stats, o32(c.rows() * out), dqkv32(c.rows() * wide, 5.0F);
  const auto in32 = mat(qkv.wide, c.rows(), c.width(), wide);
  fused_attention_forward<T>({}, c.shape(), qkv.mat(c.rows(), c.width(), wide), mat(stats, heads, 2),
                             o.out(c.rows(), out), drop);
  fused_attention_forward({}, c.shape(), in32, mat(stats32, heads, 2), mat(o32, c.rows(), out), drop);
  ASSERT_EQ(difference(stats, stats32), "") << c.t << " " << c.d;
  ASSERT_EQ(difference_rounded(o.stored, o32), "") << c.t << " " << c.d;
  Floats seen;
  for (const T x : o.stored) seen.push_back(widen_one(x));
  fused_attention_backward<T>({}, c.shape(), dout.mat(c.rows(), out), qkv.mat(c.rows(), c.width(), wide),
                              o.mat(c.rows(), out), mat(std::as_const(stats), heads, 2),
                              dqkv.out(c.rows(), c.width(), wide), drop);
  fused_attention_backward({}, c.shape(), mat(dout.wide, c.rows(), out), in32, mat(std::as_const(seen), c.rows(), out),
                           mat(std::as_const(stats), heads, 2), mat(dqkv32, c.rows(), c.width(), wide), drop);
  ASSERT_EQ(difference_rounded(dqkv.stored, dqkv32), "") << c.t << " " << c.d;
}

TEST_P(FusedAttention, RoundsEachOutputOnce) {
  Rng rng(7);
  for (const AttentionCase& c : {AttentionCase{1, 1, 1, 1}, AttentionCase{2, 40, 2, 8}, AttentionCase{1, 100, 3, 20},
                                 AttentionCase{1, 65, 8, 16, 4}}) {
    for (const Dropout& drop : {Dropout{}, some_dropout(0.4)}) {
      expect_rounded_once<bf16>(rng, c, drop);
      expect_rounded_once<fp16>(rng, c, drop);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(FusedAttention, ShapesThatDoNotFitAreRefused) {
  const AttentionCase c{1, 2, 3, 4, 2};
  Floats qkv(2 * 16), stats(6 * 2), out(2 * 12);
  EXPECT_ANY_THROW(fused_attention_forward({}, c.shape(), mat(qkv, 2, 16), mat(stats, 6, 2), mat(out, 2, 12)));
  const AttentionCase good{1, 2, 2, 4};
  Floats in(2 * 24), o(2 * 8);
  EXPECT_ANY_THROW(fused_attention_forward({}, good.shape(), mat(in, 2, 24), mat(stats, 4, 3), mat(o, 2, 8)));
}

}  // namespace
}  // namespace seeksim::kernels::test
