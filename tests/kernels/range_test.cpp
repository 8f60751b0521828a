// Ranges of tensors in every storage type against an element-by-element count, on every instruction set.

#include "kernels/range.h"

#include "tests/kernels/half.h"

namespace seeksim::kernels::test {
namespace {

class Range : public OnEveryIsa {};
SEEKSIM_ON_EVERY_ISA(Range);

struct Grid {
  std::size_t rows, cols, stride;
};

// The range of the values as floats; `smallest_normal` is that of the storage type.
TensorRange expected(const Floats& x, const Grid& g, float smallest_normal) {
  TensorRange r;
  Floats blocks;
  for (std::size_t i = 0; i < g.rows; ++i) {
    for (std::size_t j = 0; j < g.cols; ++j) {
      const float v = x[i * g.stride + j];
      ++r.n;
      r.zeros += v == 0;
      r.subnormals += v != 0 && std::fabs(v) < smallest_normal;
      r.infinities += std::isinf(v);
      r.nans += std::isnan(v);
      if (!std::isfinite(v)) {
        if (r.first_nonfinite < 0) r.first_nonfinite = static_cast<Index>(i * g.cols + j);
        continue;
      }
      r.min = std::fmin(r.min, v + 0.0F);
      r.max = std::fmax(r.max, v + 0.0F);
    }
    for (std::size_t begin = 0; begin < g.cols; begin += 1024) {
      const float* const block = &x[i * g.stride + begin];
      blocks.push_back(lanes(std::min<std::size_t>(1024, g.cols - begin), [&](float s, std::size_t k) {
        return s + (std::isfinite(block[k]) ? block[k] + 0.0F : 0.0F);
      }));
    }
  }
  const Index finite = r.n - r.infinities - r.nans;
  if (finite > 0) r.mean = tree(blocks) / static_cast<float>(finite);
  return r;
}

void expect_same(const TensorRange& got, const TensorRange& want) {
  EXPECT_EQ(bits(got.min), bits(want.min)) << got.min << " " << want.min;
  EXPECT_EQ(bits(got.max), bits(want.max)) << got.max << " " << want.max;
  EXPECT_EQ(bits(got.mean), bits(want.mean)) << got.mean << " " << want.mean;
  EXPECT_EQ(got.n, want.n);
  EXPECT_EQ(got.zeros, want.zeros);
  EXPECT_EQ(got.subnormals, want.subnormals);
  EXPECT_EQ(got.infinities, want.infinities);
  EXPECT_EQ(got.nans, want.nans);
  EXPECT_EQ(got.first_nonfinite, want.first_nonfinite);
}

template <class T>
void check(Mat<const T> x, const Floats& wide, const Grid& g, float smallest_normal) {
  TensorRange got;
  range<T>({}, x, {&got, 1});
  const TensorRange want = expected(wide, g, smallest_normal);
  expect_same(got, want);
  std::int64_t first = 77;
  first_nonfinite<T>({}, x, {&first, 1});
  EXPECT_EQ(first, want.first_nonfinite);
}

TEST_P(Range, CountsEveryKindOfElement) {
  Rng rng(1);
  for (const Grid& g : {Grid{1, 1, 1}, Grid{1, 0, 0}, Grid{3, 17, 20}, Grid{1, 5000, 5000}, Grid{4, 1030, 1033},
                        Grid{40, 31, 31}, Grid{2, 128, 128}})
    for (unsigned odd : {1U, 5U, 4000U})
      for (bool poison : {false, true}) {
        const std::size_t n = std::max<std::size_t>(1, g.rows * g.stride);
        const auto b = draw<bf16>(rng, n, odd, poison);
        const auto h = draw<fp16>(rng, n, odd, poison);
        const Floats f = poison ? wilds(rng, n, odd) : tames(rng, n, odd);
        check<bf16>(b.mat(g.rows, g.cols, g.stride), b.wide, g, 0x1p-126F);
        check<fp16>(h.mat(g.rows, g.cols, g.stride), h.wide, g, 0x1p-14F);
        check<float>(mat(f, g.rows, g.cols, g.stride), f, g, 0x1p-126F);
        ASSERT_FALSE(HasFailure()) << g.rows << " x " << g.cols << " odd " << odd << " poison " << poison;
      }
}

TEST_P(Range, OneBadElementIsFoundWhereverItIs) {
  for (std::size_t at : {0U, 1U, 127U, 128U, 1023U, 1024U, 1500U, 2047U, 3999U}) {
    Tensor<fp16> x(Floats(4000, 0.25F));
    x.stored[at].bits = at % 2 == 0 ? 0x7c00 : 0xfe00;
    TensorRange got;
    range<fp16>({}, x.mat(2, 2000), {&got, 1});
    std::int64_t first = -1;
    first_nonfinite<fp16>({}, x.mat(2, 2000), {&first, 1});
    EXPECT_EQ(got.first_nonfinite, static_cast<Index>(at));
    EXPECT_EQ(first, static_cast<Index>(at));
    EXPECT_EQ(got.infinities, at % 2 == 0);
    EXPECT_EQ(got.nans, at % 2 == 1);
    EXPECT_EQ(got.mean, 0.25F) << "the mean is that of the finite elements";
  }
}

}  // namespace
}  // namespace seeksim::kernels::test
