// The kernels for GPUs, run on the host, against the CPU's: what the tests of every target leave out, since it takes
// sizes at which the scalar references are slow. And that a race between threads would be noticed.

#include <array>
#include <utility>

#include "kernels/attention.h"
#include "kernels/check.h"
#include "kernels/cross_entropy.h"
#include "kernels/embedding.h"
#include "kernels/gemm.h"
#include "kernels/tree.h"
#include "tests/kernels/block_of_one.h"
#include "tests/kernels/reference.h"

namespace seeksim::kernels::test {
namespace {

const Lane kEmulated{nullptr, &emulated_device()};

class EmulatedDevice : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override { emulate_threads_backwards(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Order, EmulatedDevice, ::testing::Bool(),
                         [](const auto& order) { return order.param ? "backwards" : "forwards"; });

// So many tiles of 128 x 128 that they are taken: all of them whole, the last ones ragged, and whole ones whose rows
// begin where no four values do.
TEST_P(EmulatedDevice, LargeTilesOfAProductGiveTheSameBits) {
  struct Case {
    std::size_t m, n, k, more;  // floats between one row's end and the next
  };
  Rng rng(1);
  for (const Case& c : {Case{1536, 1408, 24, 0}, Case{1409, 1537, 19, 0}, Case{1536, 1408, 16, 1}}) {
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        const std::size_t a_rows = ta ? c.k : c.m, a_columns = ta ? c.m : c.k;
        const std::size_t b_rows = tb ? c.n : c.k, b_columns = tb ? c.k : c.n;
        const Floats a = tames(rng, a_rows * (a_columns + c.more)), b = tames(rng, b_rows * (b_columns + c.more));
        const Floats bias = tames(rng, c.n);
        const auto of = [&](const Floats& data, std::size_t rows, std::size_t columns) {
          return Mat<const float>{data.data(), Index(rows), Index(columns), Index(columns + c.more)};
        };
        Floats got(c.m * c.n), want(c.m * c.n);
        const Trans a_is = ta ? Trans::yes : Trans::no, b_is = tb ? Trans::yes : Trans::no;
        const auto ma = of(a, a_rows, a_columns), mb = of(b, b_rows, b_columns);
        gemm(kEmulated, a_is, b_is, ma, mb, mat(got, c.m, c.n), 0, vec(bias));
        gemm({}, a_is, b_is, ma, mb, mat(want, c.m, c.n), 0, vec(bias));
        ASSERT_EQ(difference(got, want), "") << c.k << ta << tb;
      }
    }
  }
}

TEST_P(EmulatedDevice, ManySegmentsAreFoldedByTheTree) {
  Rng rng(2);
  const std::size_t m = 7, n = 65, k = 501;
  const Floats a = tames(rng, m * k), b = tames(rng, k * n);
  for (const Index segment : {1, 2, 3, 17, 56, 63, 64, 250, 251, 500}) {
    Floats got(m * n), want(m * n);
    gemm(kEmulated, Trans::no, Trans::no, mat(a, m, k), mat(b, k, n), mat(got, m, n), segment);
    gemm({}, Trans::no, Trans::no, mat(a, m, k), mat(b, k, n), mat(want, m, n), segment);
    ASSERT_EQ(difference(got, want), "") << segment;
  }
}

// More heads than the working memory holds at a time, grouped, with dropout.
TEST_P(EmulatedDevice, AttentionInSeveralPartsGivesTheSameBits) {
  Rng rng(3);
  AttentionShape s;
  s.samples = 2;
  s.tokens = 530;
  s.heads = 36;
  s.group = 2;
  s.head_dim = 2;
  const auto rows = static_cast<std::size_t>(s.samples * s.tokens);
  const auto columns = static_cast<std::size_t>(s.key_heads() * s.group_columns()), wide = std::size_t{72};
  const auto t = static_cast<std::size_t>(s.tokens), entries = std::size_t{72} * t;
  Dropout drop = dropout_of(0.2);
  drop.key = 7;
  const Floats qkv = uniforms(rng, rows * columns), dout = uniforms(rng, rows * wide);
  const auto run = [&](Lane lane) {
    Floats probs(entries * t), out(rows * wide), dqkv(rows * columns), scratch(2 * t * t);
    attention_forward(lane, s, mat(qkv, rows, columns), mat(probs, entries, t), mat(out, rows, wide), drop);
    attention_backward(lane, s, mat(dout, rows, wide), mat(qkv, rows, columns), mat(std::as_const(probs), entries, t),
                       mat(scratch, 2 * t, t), mat(dqkv, rows, columns), drop);
    return std::array{probs, out, dqkv};
  };
  const auto got = run(kEmulated), want = run({});
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_EQ(difference(got[i], want[i]), "") << i;
}

TEST_P(EmulatedDevice, TreesOfManyPartsAndLongFolds) {
  Rng rng(4);
  for (const Index leaves : {1, 31, 32, 33, 256, 257, 2048}) {
    const std::size_t n = 5;
    const Floats values = tames(rng, static_cast<std::size_t>(leaves) * n);
    std::vector<TreePart> parts;
    for (Index i = 0; i < leaves; ++i) parts.push_back({{0, i}, values.data() + i * 5});
    Floats got(n), want(n);
    tree_sum(kEmulated, parts.data(), leaves, leaves, vec(got), 0.5F);
    tree_sum({}, parts.data(), leaves, leaves, vec(want), 0.5F);
    ASSERT_EQ(difference(got, want), "") << leaves;
  }
  for (const Index tokens : {1, 2, 3, 255, 1023, 1024, 1025, 5000}) {
    const Floats losses = tames(rng, static_cast<std::size_t>(tokens) * 3);
    Floats got(3), want(3);
    sample_losses(kEmulated, vec(losses), tokens, vec(got));
    sample_losses({}, vec(losses), tokens, vec(want));
    ASSERT_EQ(difference(got, want), "") << tokens;
  }
}

// What a GPU would trap on is a failed check here.
TEST_P(EmulatedDevice, IndicesOutsideOfTheirTablesAreNoticed) {
  Floats table(12, 1.0F), x(8), losses(2), logits(8, 0.5F);
  for (const std::int32_t bad : {-1, 3}) {
    const std::vector<std::int32_t> tokens = {0, bad};
    const Vec<const std::int32_t> ids{tokens.data(), 2};
    EXPECT_THROW(embedding_forward(kEmulated, ids, 2, mat(table, 3, 4), {}, mat(x, 2, 4)), CheckError);
    EXPECT_THROW(embedding_backward(kEmulated, ids, 2, mat(x, 2, 4), mat(table, 3, 4)), CheckError);
    EXPECT_THROW(softmax_cross_entropy(kEmulated, mat(logits, 2, 3), ids, 1.0F, vec(losses), {}), CheckError);
  }
}

// Threads that read what others write in the same phase: their turns decide what they see.
TEST(EmulatedOrder, ARaceBetweenThreadsGivesOtherValuesBackwards) {
  EXPECT_EQ(shifted_by_one(true, false), shifted_by_one(true, true)) << "with a barrier between";
  EXPECT_NE(shifted_by_one(false, false), shifted_by_one(false, true)) << "without one";
}

}  // namespace
}  // namespace seeksim::kernels::test
