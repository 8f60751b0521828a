// Rounding bf16 weights at random, against its definition, one number at a time, on every target; that it draws by
// element, parameter, step and seed and by nothing else; and that it loses nothing on average.

#include <cmath>

#include "kernels/optimizer.h"
#include "kernels/random.h"
#include "tests/kernels/half.h"

namespace seeksim::kernels::test {
namespace {

class RoundingAtRandom : public OnEveryIsa {};
SEEKSIM_ON_EVERY_ISA(RoundingAtRandom);

constexpr std::uint64_t kSeed = 0x123456789abcdefULL;

// A step that adds `add` to every weight.
OptimizerStep adding(float add, StochasticRounding rounding) {
  OptimizerStep step{.rule = OptimizerRule::sgd, .lr = 1, .weight_decay = 0, .decoupled = false};
  step.grad_factor = -add;
  step.rounding = rounding;
  return step;
}

std::vector<bf16> after(const std::vector<bf16>& before, float add, const StochasticRounding& rounding) {
  std::vector<bf16> p = before;
  const Floats grad(p.size(), 1.0F);
  Stagnation counts{};
  optimize_rounding<bf16>({}, adding(add, rounding), vec(grad), {p.data(), Index(p.size())}, {}, {}, {&counts, 1});
  return p;
}

// docs/optimizers.md, by the scalar Philox of kernels/random.h.
std::uint16_t rounded(float x, std::uint32_t element, std::uint32_t parameter, std::uint32_t step, std::uint64_t key) {
  const std::uint32_t word = philox({element, 0xffffffffU, parameter, step}, key)[0];
  const std::uint32_t all = bits(x);
  if ((all & 0x7f800000U) == 0x7f800000U) return round_one<bf16>(x).bits;
  return std::uint16_t((all + (word & 0xffffU)) >> 16);
}

float wide(bf16 x) { return std::bit_cast<float>(std::uint32_t(x.bits) << 16); }

std::vector<bf16> weights(std::size_t n, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<bf16> p;
  for (const float x : tames(rng, n)) p.push_back(round_one<bf16>(x));
  return p;
}

TEST_P(RoundingAtRandom, IsTheWrittenSequence) {
  for (const std::size_t n : {1, 7, 15, 16, 17, 33, 1000}) {
    const std::vector<bf16> p = weights(n, n);
    const StochasticRounding rounding{true, kSeed, 5, 3, 0xfffffff9ULL};  // elements come to 2^32 on the way
    const std::vector<bf16> got = after(p, 0x1p-11F, rounding);
    for (std::size_t i = 0; i < n; ++i)
      ASSERT_EQ(got[i].bits, rounded(wide(p[i]) + 0x1p-11F, std::uint32_t(0xfffffff9U + i), 5, 3, kSeed))
          << n << ' ' << i;
  }
}

TEST_P(RoundingAtRandom, APartOfAnArrayGetsWhatTheWholeGets) {
  const std::vector<bf16> p = weights(1000, 1);
  const std::vector<bf16> whole = after(p, 0x1p-12F, {true, kSeed, 2, 9, 100});
  for (const std::size_t from : {1, 13, 16, 500}) {
    const std::vector<bf16> part(p.begin() + std::ptrdiff_t(from), p.end());
    const std::vector<bf16> got = after(part, 0x1p-12F, {true, kSeed, 2, 9, 100 + from});
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i].bits, whole[from + i].bits) << from << ' ' << i;
  }
}

TEST_P(RoundingAtRandom, EachOfItsFourCountersDecides) {
  const std::vector<bf16> p = weights(1000, 1);
  const auto same = [&](const StochasticRounding& other) {
    const std::vector<bf16> one = after(p, 0x1p-12F, {true, kSeed, 2, 9, 100}), two = after(p, 0x1p-12F, other);
    return std::equal(one.begin(), one.end(), two.begin(), [](bf16 a, bf16 b) { return a.bits == b.bits; });
  };
  EXPECT_TRUE(same({true, kSeed, 2, 9, 100}));
  EXPECT_FALSE(same({true, kSeed + 1, 2, 9, 100}));
  EXPECT_FALSE(same({true, kSeed, 3, 9, 100}));
  EXPECT_FALSE(same({true, kSeed, 2, 10, 100}));
  EXPECT_FALSE(same({true, kSeed, 2, 9, 101}));
  EXPECT_FALSE(same({})) << "to the nearest";
}

// A quarter of the way to the next bf16 is gone by a quarter of the elements; to the nearest, by none.
TEST_P(RoundingAtRandom, LosesNothingOnAverage) {
  const std::size_t n = 20000;
  for (const float start : {1.0F, -1.5F}) {
    const std::vector<bf16> p(n, round_one<bf16>(start));
    for (const float share : {0.25F, 0.5F, 0.9F}) {
      const float add = start * 0x1p-7F * share / std::fabs(start);
      double moved = 0, still = 0;
      for (const bf16 x : after(p, add, {true, kSeed, 1, 1, 0})) moved += double(wide(x) - start) / double(add);
      for (const bf16 x : after(p, add / 4, {})) still += std::fabs(double(wide(x) - start));
      EXPECT_NEAR(moved / double(n), 1, 0.05) << start << ' ' << share;
      EXPECT_EQ(still, 0) << "to the nearest";
    }
  }
}

TEST_P(RoundingAtRandom, LeavesWhatIsExactAndWhatIsNotFinite) {
  const StochasticRounding rounding{true, kSeed, 1, 1, 0};
  const std::vector<bf16> p = weights(500, 3);
  const std::vector<bf16> got = after(p, 0, rounding);
  for (std::size_t i = 0; i < p.size(); ++i) ASSERT_EQ(wide(got[i]), wide(p[i])) << i;  // of zeros one has a sign
  const std::vector<bf16> wild = {round_one<bf16>(INFINITY), round_one<bf16>(-INFINITY), round_one<bf16>(NAN)};
  const std::vector<bf16> kept = after(wild, 1, rounding);
  EXPECT_EQ(wide(kept[0]), INFINITY);
  EXPECT_EQ(wide(kept[1]), -INFINITY);
  EXPECT_TRUE(std::isnan(wide(kept[2])));
}

// ---- the mean of weights -------------------------------------------------------------------------------------------

template <class T>
void expect_mean(Vec<const T> x, const Floats& wide) {
  Rng rng(wide.size());
  Floats mean = tames(rng, wide.size()), want = mean;
  for (int t = 0; t < 3; ++t) {
    move_mean<T>({}, 0.3F, x, vec(mean));
    for (std::size_t i = 0; i < wide.size(); ++i) want[i] = fma1(0.3F, wide[i] - want[i], want[i]);
  }
  ASSERT_EQ(difference(mean, want), "") << wide.size();
}

TEST_P(RoundingAtRandom, AMeanMovesByTheWrittenSequenceAndOfEqualWeightsIsThem) {
  for (const std::size_t n : {1, 7, 15, 16, 17, 1000}) {
    Rng rng(n);
    const Floats wide = wilds(rng, n, 4);
    const auto in_bf16 = draw<bf16>(rng, n, 9, false);
    const auto in_fp16 = draw<fp16>(rng, n, 9, false);
    expect_mean<float>(vec(wide), wide);
    expect_mean<bf16>(in_bf16.vec(), in_bf16.wide);
    expect_mean<fp16>(in_fp16.vec(), in_fp16.wide);
    if (HasFatalFailure()) return;
  }
  Rng rng(1);
  const Floats x = tames(rng, 1000);
  Floats mean = x;
  for (int t = 0; t < 100; ++t) move_mean<float>({}, 0.0001F, vec(x), vec(mean));
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(mean[i], x[i]) << i;
}

}  // namespace
}  // namespace seeksim::kernels::test
