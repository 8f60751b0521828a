// Dropout against its definition, on every instruction set; and that the shares and streams are what they are said to
// be.

#include "kernels/dropout.h"

#include <cmath>

#include "tests/kernels/dropout_of_one.h"
#include "tests/kernels/half.h"

namespace seeksim::kernels::test {
namespace {

class DropoutKernel : public OnEveryIsa {};
SEEKSIM_ON_EVERY_ISA(DropoutKernel);

struct Case {
  std::size_t samples, tokens, cols;
};
const std::vector<Case> kCases = {{1, 1, 1}, {3, 5, 7}, {2, 9, 16}, {2, 3, 33}, {2, 4, 64}, {1, 3, 130}, {1, 2, 777}};

TEST_P(DropoutKernel, EqualsTheDefinition) {
  Rng rng(1);
  for (const Case& c : kCases)
    for (const double rate : {0.0, 1e-9, 0.1, 0.5, 0.999}) {
      const Dropout drop = some_dropout(rate);
      const std::size_t rows = c.samples * c.tokens, stride = c.cols + 3;
      const Floats x = wilds(rng, rows * stride, 4);
      Floats y(rows * stride, 9.0F), want = y, in_place = x;
      for (std::size_t r = 0; r < rows; ++r)
        for (std::size_t i = 0; i < c.cols; ++i)
          want[r * stride + i] = dropped(drop, r / c.tokens, r % c.tokens * c.cols + i, x[r * stride + i]);
      dropout({}, drop, static_cast<Index>(c.tokens), mat(x, rows, c.cols, stride), mat(y, rows, c.cols, stride));
      ASSERT_EQ(difference(y, want), "") << c.tokens << " " << c.cols << " " << rate;
      dropout({}, drop, static_cast<Index>(c.tokens), mat(in_place, rows, c.cols, stride),
              mat(in_place, rows, c.cols, stride));
      for (std::size_t r = 0; r < rows; ++r)
        for (std::size_t i = 0; i < c.cols; ++i)
          ASSERT_EQ(canonical(in_place[r * stride + i]), canonical(want[r * stride + i]));
    }
}

template <class T>
void expect_one_rounding(Rng& rng, const Case& c) {
  const std::size_t rows = c.samples * c.tokens, n = rows * c.cols;
  const auto x = draw<T>(rng, n, 5, true);
  Tensor<T> y(Floats(n, 9.0F));
  Floats wide(n);
  const Dropout drop = some_dropout(0.3);
  dropout<T>({}, drop, static_cast<Index>(c.tokens), x.mat(rows, c.cols), y.out(rows, c.cols));
  dropout({}, drop, static_cast<Index>(c.tokens), mat(x.wide, rows, c.cols), mat(wide, rows, c.cols));
  ASSERT_EQ(difference_rounded(y.stored, wide), "") << c.cols;
}

TEST_P(DropoutKernel, RoundsOnceIn16Bits) {
  Rng rng(2);
  for (const Case& c : kCases) {
    expect_one_rounding<bf16>(rng, c);
    expect_one_rounding<fp16>(rng, c);
    if (HasFatalFailure()) return;
  }
}

// A micro-batch of its own or a place in a larger one: the mask of a sample is the same.
TEST_P(DropoutKernel, ASampleAloneIsDroppedAsAmongOthers) {
  const std::size_t tokens = 6, cols = 21, samples = 4;
  Rng rng(3);
  const Floats x = uniforms(rng, samples * tokens * cols, 1, 2);
  Floats all(x.size()), alone(x.size());
  Dropout drop = some_dropout(0.5);
  dropout({}, drop, tokens, mat(x, samples * tokens, cols), mat(all, samples * tokens, cols));
  for (std::size_t s = 0; s < samples; ++s, ++drop.first_sample) {
    const Mat<const float> from{x.data() + s * tokens * cols, tokens, cols, cols};
    dropout({}, drop, tokens, from, {alone.data() + s * tokens * cols, tokens, cols, cols});
  }
  EXPECT_EQ(difference(alone, all), "");
}

TEST_P(DropoutKernel, EachCounterGivesAStreamOfItsOwn) {
  const std::size_t n = 4096;
  const Floats ones(n, 1.0F);
  const auto mask = [&](auto change) {
    Dropout drop = some_dropout(0.5);
    change(drop);
    Floats y(n);
    dropout({}, drop, 1, mat(ones, 1, n), mat(y, 1, n));
    return y;
  };
  const Floats plain = mask([](Dropout&) {});
  const auto share_equal = [&](const Floats& other) {
    std::size_t equal = 0;
    for (std::size_t i = 0; i < n; ++i) equal += plain[i] == other[i] ? 1 : 0;
    return static_cast<double>(equal) / static_cast<double>(n);
  };
  EXPECT_EQ(share_equal(mask([](Dropout&) {})), 1);
  EXPECT_NEAR(share_equal(mask([](Dropout& d) { d.key += 1ULL << 32; })), 0.5, 0.05);
  EXPECT_NEAR(share_equal(mask([](Dropout& d) { ++d.key; })), 0.5, 0.05);
  EXPECT_NEAR(share_equal(mask([](Dropout& d) { ++d.op; })), 0.5, 0.05);
  EXPECT_NEAR(share_equal(mask([](Dropout& d) { ++d.step; })), 0.5, 0.05);
  EXPECT_NEAR(share_equal(mask([](Dropout& d) { ++d.first_sample; })), 0.5, 0.05);
}

TEST(DropoutRate, IsTheShareThatIsDroppedAndTheMeanStays) {
  const std::size_t n = 1 << 18;
  const Floats ones(n, 1.0F);
  for (const double rate : {0.01, 0.1, 0.25, 0.5, 0.9}) {
    Floats y(n);
    dropout({}, some_dropout(rate), 1, mat(ones, 1, n), mat(y, 1, n));
    double zeros = 0, sum = 0;
    for (const float v : y) zeros += v == 0 ? 1 : 0, sum += static_cast<double>(v);
    const double tolerance = 4 * std::sqrt(rate * (1 - rate) / static_cast<double>(n));
    EXPECT_NEAR(zeros / n, rate, tolerance);
    EXPECT_NEAR(sum / n, 1, tolerance / (1 - rate));
  }
}

TEST(DropoutRate, BecomesAThresholdOf24BitsAndAFactorRoundedOnce) {
  EXPECT_FALSE(dropout_of(0).on());
  EXPECT_EQ(dropout_of(0).factor, 1.0F);
  EXPECT_EQ(dropout_of(0.5).threshold, 1U << 23);
  EXPECT_EQ(dropout_of(0.5).factor, 2.0F);
  EXPECT_EQ(dropout_of(0.1).threshold, 1677722U) << "0.1 * 2^24 = 1677721.6: the first number not below it";
  EXPECT_EQ(dropout_of(0.1).factor, static_cast<float>(1 / 0.9));
}

}  // namespace
}  // namespace seeksim::kernels::test
