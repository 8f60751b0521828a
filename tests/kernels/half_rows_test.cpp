// Elementwise and row kernels on 16-bit tensors, on every instruction set: "widen all inputs, do what fp32 does, round
// each output once". What fp32 does is held against references of its own in rows_test.cpp.

#include "kernels/cross_entropy.h"
#include "kernels/digest.h"
#include "kernels/embedding.h"
#include "kernels/layer_norm.h"
#include "kernels/norms.h"
#include "kernels/pointwise.h"
#include "tests/kernels/half.h"

namespace seeksim::kernels::test {
namespace {

class HalfRows : public OnEveryIsa {};
SEEKSIM_ON_EVERY_ISA(HalfRows);

// Runs `check` for both types.
#define SEEKSIM_FOR_BOTH(check, ...) \
  do {                               \
    check<bf16>(__VA_ARGS__);        \
    check<fp16>(__VA_ARGS__);        \
    if (HasFatalFailure()) return;   \
  } while (false)

const std::vector<std::size_t> kWidths = {1, 7, 8, 9, 15, 16, 17, 31, 64, 127, 128, 129, 250, 256, 777};
constexpr float kUntouched = 9.0F;

template <class T>
void expect_layer_norm(Rng& rng, std::size_t c) {
  const std::size_t rows = 5, stride = c + 3;
  const auto x = draw<T>(rng, rows * stride, 30, false), dy = draw<T>(rng, rows * stride, 9, false),
             gamma = draw<T>(rng, c, 20, false), beta = draw<T>(rng, c, 20, false),
             skip = draw<T>(rng, rows * stride, 20, false);
  Floats y32(rows * stride, kUntouched), dx32 = y32, mean(rows), rstd(rows), mean32(rows), rstd32(rows);
  Tensor<T> y(y32), dx(y32);
  layer_norm_forward<T>({}, x.mat(rows, c, stride), gamma.vec(), beta.vec(), 1e-5F, y.out(rows, c, stride), vec(mean),
                        vec(rstd));
  layer_norm_forward({}, mat(x.wide, rows, c, stride), vec(gamma.wide), vec(beta.wide), 1e-5F,
                     mat(y32, rows, c, stride), vec(mean32), vec(rstd32));
  ASSERT_EQ(difference(mean, mean32), "") << c;
  ASSERT_EQ(difference(rstd, rstd32), "") << c;
  ASSERT_EQ(difference_rounded(y.stored, y32), "") << c;
  for (bool with_skip : {false, true}) {
    layer_norm_backward<T>({}, dy.mat(rows, c, stride), x.mat(rows, c, stride), gamma.vec(), vec(mean), vec(rstd),
                           with_skip ? skip.mat(rows, c, stride) : Mat<const T>{}, dx.out(rows, c, stride));
    layer_norm_backward({}, mat(dy.wide, rows, c, stride), mat(x.wide, rows, c, stride), vec(gamma.wide), vec(mean),
                        vec(rstd), with_skip ? mat(skip.wide, rows, c, stride) : Mat<const float>{},
                        mat(dx32, rows, c, stride));
    ASSERT_EQ(difference_rounded(dx.stored, dx32), "") << c;
  }
}

TEST_P(HalfRows, LayerNorm) {
  Rng rng(1);
  for (std::size_t c : kWidths) SEEKSIM_FOR_BOTH(expect_layer_norm, rng, c);
}

template <class T>
void expect_column_sums(Rng& rng, std::size_t tokens, std::size_t samples, std::size_t c) {
  const std::size_t rows = tokens * samples;
  const auto x = draw<T>(rng, rows * c, 20, false), dy = draw<T>(rng, rows * c, 9, false);
  const Floats mean = tames(rng, rows), rstd = uniforms(rng, rows, 0.5F, 2.0F);
  Floats dgamma(c), dbeta(c), db(c), dgamma32(c), dbeta32(c);
  const auto t = static_cast<Index>(tokens);
  layer_norm_param_grad<T>({}, dy.mat(rows, c), x.mat(rows, c), vec(mean), vec(rstd), t, vec(dgamma), vec(dbeta));
  bias_grad<T>({}, dy.mat(rows, c), t, vec(db));
  layer_norm_param_grad({}, mat(dy.wide, rows, c), mat(x.wide, rows, c), vec(mean), vec(rstd), t, vec(dgamma32),
                        vec(dbeta32));
  ASSERT_EQ(difference(dgamma, dgamma32), "") << tokens << " " << samples << " " << c;
  ASSERT_EQ(difference(dbeta, dbeta32), "") << tokens << " " << samples << " " << c;
  ASSERT_EQ(difference(db, dbeta32), "") << tokens << " " << samples << " " << c;
}

TEST_P(HalfRows, ParameterGradientsAreFloatsOfFloatSums) {
  Rng rng(2);
  for (std::size_t tokens : {1, 8, 9, 20})
    for (std::size_t samples : {1, 3, 8})
      for (std::size_t c : {1, 16, 33, 130}) SEEKSIM_FOR_BOTH(expect_column_sums, rng, tokens, samples, c);
}

template <class T>
void expect_pointwise(Rng& rng, std::size_t c) {
  const std::size_t rows = 3, stride = c + 5;
  auto a = draw<T>(rng, rows * stride, 5, true);
  const auto b = draw<T>(rng, rows * stride, 5, true);
  const Floats fresh(rows * stride, kUntouched);
  Floats sum32 = fresh, g32 = fresh, back32 = fresh;
  Tensor<T> sum(fresh), g(fresh), back(fresh), copied(a.wide);
  const auto in = [&](const Tensor<T>& t) { return t.mat(rows, c, stride); };
  const auto wide = [&](const Tensor<T>& t) { return mat(t.wide, rows, c, stride); };
  add<T>({}, in(a), in(b), sum.out(rows, c, stride));
  add({}, wide(a), wide(b), mat(sum32, rows, c, stride));
  gelu_forward<T>({}, in(a), g.out(rows, c, stride));
  gelu_forward({}, wide(a), mat(g32, rows, c, stride));
  gelu_backward<T>({}, in(b), in(a), back.out(rows, c, stride));
  gelu_backward({}, wide(b), wide(a), mat(back32, rows, c, stride));
  ASSERT_EQ(difference_rounded(sum.stored, sum32), "") << c;
  ASSERT_EQ(difference_rounded(g.stored, g32), "") << c;
  ASSERT_EQ(difference_rounded(back.stored, back32), "") << c;
  copy<T>({}, b.vec(), copied.out());
  for (std::size_t i = 0; i < b.size(); ++i) ASSERT_EQ(copied.stored[i].bits, b.stored[i].bits);
  const Floats before = a.wide;
  add<T>({}, in(a), in(b), a.out(rows, c, stride));  // in place
  for (std::size_t i = 0; i < a.size(); ++i) {
    const bool inside = i % stride < c;
    ASSERT_EQ(a.stored[i].bits, inside ? round_one<T>(sum32[i]).bits : round_one<T>(before[i]).bits) << i;
  }
}

TEST_P(HalfRows, PointwiseOperations) {
  Rng rng(3);
  for (std::size_t c : kWidths) SEEKSIM_FOR_BOTH(expect_pointwise, rng, c);
}

template <class T>
void expect_cross_entropy(Rng& rng, std::size_t v, float scale) {
  const std::size_t rows = 4, stride = v + 2;
  auto logits = draw<T>(rng, rows * stride, 1000000, false);
  for (std::size_t i = 0; i < logits.size(); i += 3) {  // some far apart, so that the gradient spans its range
    logits.stored[i] = round_one<T>(logits.wide[i] * 12);
    logits.wide[i] = widen_one(logits.stored[i]);
  }
  std::vector<std::int32_t> targets(rows);
  for (auto& t : targets) t = static_cast<std::int32_t>(rng() % v);
  const Vec<const std::int32_t> t{targets.data(), static_cast<Index>(rows)};
  Floats losses(rows), losses32(rows), only(rows), d32 = logits.wide;
  Tensor<T> d(logits.wide);
  softmax_cross_entropy({}, mat(logits.wide, rows, v, stride), t, scale, vec(losses32), mat(d32, rows, v, stride));
  softmax_cross_entropy<T>({}, logits.mat(rows, v, stride), t, scale, vec(losses), d.out(rows, v, stride));
  softmax_cross_entropy<T>({}, logits.mat(rows, v, stride), t, scale, vec(only), {});
  ASSERT_EQ(difference(losses, losses32), "") << v;
  ASSERT_EQ(difference(only, losses32), "") << v;
  ASSERT_EQ(difference_rounded(d.stored, d32), "") << v;
  softmax_cross_entropy<T>({}, logits.mat(rows, v, stride), t, scale, vec(losses), logits.out(rows, v, stride));
  ASSERT_EQ(difference_rounded(logits.stored, d32), "") << v << " in place";
}

TEST_P(HalfRows, CrossEntropy) {
  Rng rng(4);
  for (std::size_t v : {1, 2, 9, 17, 64, 300, 1027})
    for (float scale : {1.0F, 0x1p-9F, 0x1p16F}) SEEKSIM_FOR_BOTH(expect_cross_entropy, rng, v, scale);
}

// The loss scale that DeepSpeed starts with: a hopeless token's gradient is -2^16, beyond fp16 and within bf16.
TEST_P(HalfRows, ALossScaleOf2To16OverflowsFp16AndNotBf16) {
  const Floats logits = {-20.0F, 20.0F};
  const std::int32_t target = 0;
  Tensor<fp16> h(logits);
  Tensor<bf16> b(logits);
  Floats loss(1);
  softmax_cross_entropy<fp16>({}, h.mat(1, 2), {&target, 1}, 0x1p16F, vec(loss), h.out(1, 2));
  EXPECT_EQ(h.stored[0].bits, 0xfc00);
  EXPECT_EQ(h.stored[1].bits, 0x7c00);
  softmax_cross_entropy<bf16>({}, b.mat(1, 2), {&target, 1}, 0x1p16F, vec(loss), b.out(1, 2));
  EXPECT_EQ(b.stored[0].bits, 0xc780);
  std::int64_t count = 0;
  count_nonfinite<fp16>({}, h.vec(), {&count, 1});
  count_nonfinite<bf16>({}, b.vec(), {&count, 1});
  EXPECT_EQ(count, 2);
}

template <class T>
void expect_embedding(Rng& rng, std::size_t samples, std::size_t tokens) {
  const std::size_t rows = samples * tokens, vocabulary = 6, c = 19, context = tokens + 2;
  const auto dx = draw<T>(rng, rows * c, 3, false), wte = draw<T>(rng, vocabulary * c, 9, false),
             wpe = draw<T>(rng, context * c, 9, false);
  std::vector<std::int32_t> ids(rows);
  for (auto& id : ids) id = static_cast<std::int32_t>(rng() % vocabulary);
  const Vec<const std::int32_t> view{ids.data(), static_cast<Index>(rows)};
  const auto t = static_cast<Index>(tokens);
  Floats dwte(vocabulary * c), dwpe(context * c), dwte32 = dwte, dwpe32 = dwpe, x32(rows * c);
  Tensor<T> x(x32);
  embedding_forward<T>({}, view, t, wte.mat(vocabulary, c), wpe.mat(context, c), x.out(rows, c));
  embedding_backward<T>({}, view, t, dx.mat(rows, c), mat(dwte, vocabulary, c));
  position_backward<T>({}, dx.mat(rows, c), t, mat(dwpe, context, c));
  embedding_forward({}, view, t, mat(wte.wide, vocabulary, c), mat(wpe.wide, context, c), mat(x32, rows, c));
  embedding_backward({}, view, t, mat(dx.wide, rows, c), mat(dwte32, vocabulary, c));
  position_backward({}, mat(dx.wide, rows, c), t, mat(dwpe32, context, c));
  ASSERT_EQ(difference_rounded(x.stored, x32), "");
  ASSERT_EQ(difference(dwte, dwte32), "");
  ASSERT_EQ(difference(dwpe, dwpe32), "");
}

TEST_P(HalfRows, Embedding) {
  Rng rng(5);
  for (std::size_t samples : {1, 3, 8})
    for (std::size_t tokens : {1, 9}) SEEKSIM_FOR_BOTH(expect_embedding, rng, samples, tokens);
}

template <class T>
void expect_sums(Rng& rng, std::size_t n) {
  const auto x = draw<T>(rng, n, 7, false), wild = draw<T>(rng, n, 7, true);
  Floats blocks((n + 1023) / 1024), blocks32 = blocks;
  norm2_blocks<T>({}, x.vec(), vec(blocks));
  norm2_blocks({}, vec(x.wide), vec(blocks32));
  ASSERT_EQ(difference(blocks, blocks32), "") << n;
  std::int64_t count = 1, count32 = 1;
  count_nonfinite<T>({}, wild.vec(), {&count, 1});
  count_nonfinite({}, vec(wild.wide), {&count32, 1});
  ASSERT_EQ(count, count32) << n;
}

TEST_P(HalfRows, NormsAndCounts) {
  Rng rng(6);
  for (std::size_t n : {0, 1, 127, 1000, 1024, 1025, 5000}) SEEKSIM_FOR_BOTH(expect_sums, rng, n);
}

template <class T>
void expect_digest(Rng& rng) {
  auto x = draw<T>(rng, 3000, 50, false);
  const std::uint64_t clean = digest<T>(x.vec());
  for (std::size_t at : {0U, 1023U, 1024U, 2999U})
    for (int bit : {0, 7, 15}) {
      const T kept = x.stored[at];
      x.stored[at].bits = static_cast<std::uint16_t>(kept.bits ^ (1U << bit));
      ASSERT_NE(digest<T>(x.vec()), clean) << at << " bit " << bit;
      x.stored[at] = kept;
    }
  ASSERT_EQ(digest<T>(x.vec()), clean);
  x.stored[5].bits = 0x7fff;
  const std::uint64_t nan = digest<T>(x.vec());
  ASSERT_NE(nan, clean);
  for (std::uint16_t pattern : {0xffffU, 0x7fc1U, 0xffc1U}) {  // NaNs of both formats
    x.stored[5].bits = pattern;
    ASSERT_EQ(digest<T>(x.vec()), nan);
  }
  x.stored[5].bits = std::is_same_v<T, bf16> ? 0x7f80 : 0x7c00;
  ASSERT_NE(digest<T>(x.vec()), nan) << "an infinity is no NaN";
}

TEST(HalfDigest, SeesEveryBitAndOneNaN) {
  Rng rng(7);
  SEEKSIM_FOR_BOTH(expect_digest, rng);
}

}  // namespace
}  // namespace seeksim::kernels::test
