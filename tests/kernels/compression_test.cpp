// Compressed gradients: each form against a second text of it, in double where that is exact; and that nothing is lost
// between what is sent and what is kept, which is seen to fail.
#include "kernels/compression.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/norms.h"
#include "kernels/optimizer.h"
#include "kernels/pointwise.h"
#include "tests/kernels/half.h"
#include "tests/kernels/reference.h"

namespace seeksim::kernels::test {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

const WireForm kForms[] = {{Wire::fp16}, {Wire::bf16}, {Wire::int8}, {Wire::sign}, {Wire::top, 5}, {Wire::top, 1024}};

// Two whole blocks, a short one, and one of a single element.
std::vector<WireRun> blocks_in(WireForm form) {
  std::vector<WireRun> blocks;
  Index offset = 0, at = 0;
  for (const Index n : {kBlock, kBlock, Index(131), Index(1)}) {
    blocks.push_back({offset, n, at});
    offset += n;
    at += wire_bytes(form, n);
  }
  return blocks;
}
constexpr std::size_t kElements = 2 * 1024 + 131 + 1;

std::size_t bytes_of(WireForm form) {
  const WireRun last = blocks_in(form).back();
  return std::size_t(last.at + wire_bytes(form, last.n));
}

// From denormals to large values, in one block; zeroes of both signs.
Floats gradient(unsigned seed, int least, int most) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> exponent(least, most);
  std::uniform_real_distribution<float> mantissa(-2.0F, 2.0F);
  Floats x(kElements);
  for (float& value : x) value = std::ldexp(mantissa(random), exponent(random));
  for (std::size_t i = 0; i < x.size(); i += 17) x[i] = i % 2 == 0 ? 0.0F : -0.0F;
  return x;
}

struct Sent {
  std::vector<std::byte> wire;
  Floats rest, values;
  std::int64_t unconserved = -1;
};

Sent send(WireForm form, const OwedGradient& owed) {
  const std::vector<WireRun> blocks = blocks_in(form);
  Sent sent{std::vector<std::byte>(bytes_of(form), std::byte{0xa5}), Floats(kElements, kNaN), Floats(kElements, kNaN)};
  const Vec<std::byte> wire{sent.wire.data(), Index(sent.wire.size())};
  const Vec<float> rest{sent.rest.data(), Index(kElements)}, values{sent.values.data(), Index(kElements)};
  compress(Lane{}, form, blocks, owed, wire, rest);
  decompress(Lane{}, form, blocks, {wire.data, wire.n}, values);
  count_unconserved(Lane{}, form, blocks, owed, {wire.data, wire.n}, {rest.data, rest.n}, {&sent.unconserved, 1});
  return sent;
}

OwedGradient plain(const Floats& x) { return {{x.data(), Index(x.size())}, {}, 1.0F, {}}; }

// ---- a second text -------------------------------------------------------------------------------------------------

double grid_above(const float* x, Index n) {
  float most = 0;
  for (Index i = 0; i < n; ++i) most = std::max(most, std::fabs(x[i]));
  int exponent = -126;  // of the least normal number
  if (most >= std::numeric_limits<float>::min()) exponent = std::ilogb(most);
  return std::ldexp(1.0, exponent);
}

// What a block stands for, element by element.
Floats meant_by(WireForm form, const float* x, Index n) {
  Floats meant;
  const double above = grid_above(x, n);
  float mean = 0;
  if (form.wire == Wire::sign) {
    mean = lanes(std::size_t(n), [&](float lane, std::size_t i) { return lane + std::fabs(x[i]); }) / float(n);
    const double grid = std::ldexp(above, -21);
    mean = float(std::nearbyint(double(mean) / grid) * grid);
  }
  std::vector<Index> order;
  for (Index i = 0; i < n; ++i) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](Index a, Index b) { return std::fabs(x[a]) > std::fabs(x[b]); });
  const double step = std::max(std::ldexp(above, -6), std::ldexp(1.0, -126));
  for (Index i = 0; i < n; ++i) {
    switch (form.wire) {
      case Wire::fp16:
        meant.push_back(float(value_of(rounded(x[i], 5), 5)));
        break;
      case Wire::bf16:
        meant.push_back(float(value_of(rounded(x[i], 8), 8)));
        break;
      case Wire::int8:
        meant.push_back(float(std::clamp(std::nearbyint(double(x[i]) / step), -127.0, 127.0) * step));
        break;
      case Wire::sign:
        meant.push_back(x[i] >= 0 ? mean : -mean);
        break;
      case Wire::top:
        meant.push_back(std::find(order.begin(), order.begin() + std::min<Index>(form.top, n), i) <
                                order.begin() + std::min<Index>(form.top, n)
                            ? x[i]
                            : 0.0F);
        break;
    }
  }
  return meant;
}

Floats as_owed(WireForm form, Floats x, const std::vector<WireRun>& blocks) {
  if (form.wire != Wire::sign) return x;
  for (const WireRun& block : blocks) {
    const double grid = std::ldexp(grid_above(x.data() + block.offset, block.n), -21);
    for (Index i = 0; i < block.n; ++i) {
      float& value = x[std::size_t(block.offset + i)];
      value = float(std::nearbyint(double(value) / grid) * grid);
    }
  }
  return x;
}

TEST(Compression, EachFormStandsForWhatItsSecondTextSays) {
  for (const WireForm form : kForms) {
    for (const auto& [least, most] : {std::pair(-8, 2), std::pair(-30, -10), std::pair(-150, -120)}) {
      const std::vector<WireRun> blocks = blocks_in(form);
      const Floats x = as_owed(form, gradient(7, least, most), blocks);
      const Sent sent = send(form, plain(x));
      for (const WireRun& block : blocks) {
        const Floats meant = meant_by(form, x.data() + block.offset, block.n);
        for (Index i = 0; i < block.n; ++i)
          ASSERT_EQ(sent.values[std::size_t(block.offset + i)], meant[std::size_t(i)])
              << "form " << int(form.wire) << ", exponents from " << least << ", block at " << block.offset
              << ", element " << i << ", " << x[std::size_t(block.offset + i)];
      }
    }
  }
}

// In double, where the sum of two floats of such exponents is exact.
TEST(Compression, WhatIsSentAndWhatIsKeptAddUpExactly) {
  for (const WireForm form : kForms) {
    for (const auto& [least, most] : {std::pair(-6, 6), std::pair(-24, -2), std::pair(-149, -126)}) {
      const Floats x = as_owed(form, gradient(11, least, most), blocks_in(form));
      const Sent sent = send(form, plain(x));
      EXPECT_EQ(sent.unconserved, 0) << int(form.wire);
      for (std::size_t i = 0; i < x.size(); ++i)
        ASSERT_EQ(double(sent.values[i]) + double(sent.rest[i]), double(x[i])) << int(form.wire) << ", element " << i;
    }
  }
}

TEST(Compression, WhatIsOwedIsTheGradientItsOtherUseAndWhatWasKept) {
  const Floats x = gradient(3, -4, 2), kept = gradient(4, -9, -3);
  const Floats second = {0.5F, 0.25F, -3.0F};
  const OwedGradient owed{{x.data(), Index(kElements)}, {second.data(), 3}, 0.37F, {kept.data(), Index(kElements)}};
  Floats want;
  for (std::size_t i = 0; i < kElements; ++i) {
    const float used = i < 3 ? x[i] + second[i] : x[i];
    want.push_back(used * 0.37F + kept[i]);
  }
  const WireForm all{Wire::top, 1024};
  const Sent sent = send(all, owed);
  EXPECT_EQ(sent.values, want);
  EXPECT_EQ(sent.unconserved, 0);
}

TEST(Compression, WhatIsOwedOfAMomentumIsAShareOfItAndOfTheGradient) {
  const Floats x = gradient(3, -4, 2), kept = gradient(4, -9, -3), moment = gradient(9, -3, 1);
  OwedGradient owed{{x.data(), Index(kElements)}, {}, 0.37F, {kept.data(), Index(kElements)}};
  owed.moment = {moment.data(), Index(kElements)};
  owed.moment_factor = 0.225F;
  owed.gradient_factor = 0.1F;
  Floats want;
  for (std::size_t i = 0; i < kElements; ++i) {
    const float g = x[i] * 0.37F, old = moment[i] * 0.225F, fresh = g * 0.1F;
    want.push_back((old + fresh) + kept[i]);
  }
  const Sent sent = send({Wire::top, 1024}, owed);
  EXPECT_EQ(sent.values, want);
  EXPECT_EQ(sent.unconserved, 0);
  owed.moment_factor = 0.9F;
  EXPECT_NE(send({Wire::top, 1024}, owed).values, want);
}

// ---- the step of a frozen variance ---------------------------------------------------------------------------------

class FrozenStep : public OnEveryIsa {};
SEEKSIM_ON_EVERY_ISA(FrozenStep);

TEST_P(FrozenStep, TakesTheMomentumAndLeavesTheVariance) {
  for (const std::size_t n : {1, 7, 16, 17, 1000}) {
    for (const float decay : {0.0F, 0.1F}) {
      Rng rng(n);
      const Floats grad = wilds(rng, n, 4), old = wilds(rng, n, 4);
      Floats p = wilds(rng, n, 6), m = old, v = wilds(rng, n, 6), want = p;
      for (float& one : v) one = std::fabs(one);
      const Floats variance = v;
      const OptimizerStep step{.rule = OptimizerRule::frozen,
                               .lr = 1e-2F,
                               .weight_decay = decay,
                               .inverse_bias1 = 1.7F,
                               .inverse_sqrt_bias2 = 9.3F,
                               .grad_factor = 0.25F};
      optimize({}, step, vec(grad), vec(p), vec(m), vec(v));
      for (std::size_t i = 0; i < n; ++i) {
        const float moment = grad[i] * 0.25F, root = fma1(std::sqrt(variance[i]), 9.3F, step.eps);
        if (decay != 0) want[i] = fma1(-(step.lr * decay), want[i], want[i]);
        want[i] = fma1(-step.lr, moment * 1.7F / root, want[i]);
        ASSERT_EQ(difference({m[i]}, {moment}), "") << n;
      }
      ASSERT_EQ(difference(p, want), "") << n << " decay " << decay;
      ASSERT_EQ(difference(v, variance), "") << n;
    }
  }
}

// ---- factors of a matrix -------------------------------------------------------------------------------------------

TEST(Factors, RowsAreMadeOrthogonalInOrder) {
  constexpr Index kRows = 3, kCols = 71;
  Floats got = gradient(5, -2, 2);
  got.resize(std::size_t(kRows * kCols));
  Floats want = got;
  orthogonalise({}, {got.data(), kRows, kCols, kCols});
  const auto at = [](Floats& x, Index row, Index col) -> float& { return x[std::size_t(row * kCols + col)]; };
  const auto dot = [&](Floats& x, Index a, Index b) {
    float sum = 0;
    for (Index k = 0; k < kCols; ++k) {
      const float product = at(x, a, k) * at(x, b, k);
      sum = sum + product;
    }
    return sum;
  };
  for (Index i = 0; i < kRows; ++i) {
    const float length = std::sqrt(dot(want, i, i));
    for (Index k = 0; k < kCols; ++k) at(want, i, k) = at(want, i, k) / length;
    for (Index j = i + 1; j < kRows; ++j) {
      const float along = dot(want, i, j);
      for (Index k = 0; k < kCols; ++k) {
        const float part = along * at(want, i, k);
        at(want, j, k) = at(want, j, k) - part;
      }
    }
  }
  EXPECT_EQ(difference(got, want), "");
  for (Index i = 0; i < kRows; ++i)
    for (Index j = 0; j <= i; ++j) EXPECT_NEAR(dot(got, i, j), i == j ? 1 : 0, 1e-5) << i << ", " << j;
}

TEST(Factors, ARowOfZeroesStaysOne) {
  Floats rows = {0, 0, 0, 3, 4, 0};
  orthogonalise({}, {rows.data(), 2, 3, 3});
  EXPECT_EQ(rows, (Floats{0, 0, 0, 0.6F, 0.8F, 0}));
}

TEST(Factors, ARestThatIsNotWhatWasOwedMinusAShareIsCounted) {
  const Floats x = gradient(3, -4, 2), kept = gradient(4, -9, -3), sum = gradient(6, -4, 2);
  const OwedGradient owed{{x.data(), Index(kElements)}, {}, 0.37F, {kept.data(), Index(kElements)}};
  const Vec<const float> all{sum.data(), Index(kElements)};
  Floats rest(kElements);
  owe({}, owed, {rest.data(), Index(kElements)});
  for (std::size_t i = 0; i < kElements; ++i) {
    const float used = x[i] * 0.37F;
    ASSERT_EQ(rest[i], used + kept[i]);
  }
  take_share({}, all, 0.25F, {rest.data(), Index(kElements)});
  const auto unconserved = [&] {
    std::int64_t count = 0;
    count_share_unconserved({}, owed, all, 0.25F, {rest.data(), Index(kElements)}, {&count, 1});
    return count;
  };
  EXPECT_EQ(unconserved(), 0);
  rest[5] = std::nextafter(rest[5], kInf);
  rest[77] = 0;
  EXPECT_EQ(unconserved(), 2);
}

TEST(Compression, APlantedLossIsCounted) {
  for (const WireForm form :
       {WireForm{Wire::bf16}, WireForm{Wire::int8}, WireForm{Wire::sign}, WireForm{Wire::top, 5}}) {
    const std::vector<WireRun> blocks = blocks_in(form);
    const Floats x = gradient(5, -4, 2);
    Sent sent = send(form, plain(x));
    const auto count = [&] {
      std::int64_t lost = 0;
      count_unconserved(Lane{}, form, blocks, plain(x), {sent.wire.data(), Index(sent.wire.size())},
                        {sent.rest.data(), Index(kElements)}, {&lost, 1});
      return lost;
    };
    const Floats right = sent.rest;
    std::size_t at = 0;
    while (right[at] == 0) ++at;
    sent.rest[at] = std::nextafter(right[at], kInf);  // the last bit of one element
    EXPECT_EQ(count(), 1) << int(form.wire);
    sent.rest = Floats(kElements, 0.0F);  // residuals that nobody keeps
    EXPECT_GT(count(), 900) << int(form.wire);
    sent.rest = right;
    sent.wire[0] ^= std::byte{1};  // a flipped bit on the way
    EXPECT_GT(count(), 0) << int(form.wire);
  }
}

TEST(Compression, ABlockWithAValueThatIsNotFiniteArrivesAsOne) {
  for (const WireForm form : kForms) {
    for (const float bad : {kNaN, kInf, -kInf}) {
      Floats x = gradient(6, -4, 2);
      x[1024 + 300] = bad;
      const Sent sent = send(form, plain(x));
      const auto not_finite = [](float value) { return !std::isfinite(value); };
      EXPECT_EQ(std::count_if(sent.values.begin(), sent.values.begin() + 1024, not_finite), 0) << int(form.wire);
      EXPECT_GT(std::count_if(sent.values.begin() + 1024, sent.values.begin() + 2048, not_finite), 0) << int(form.wire);
    }
  }
}

TEST(Compression, LargeGradientsAreNotFiniteOnTheWireOrAreWhole) {
  for (const WireForm form : kForms) {
    const Floats x = gradient(8, 100, 126);
    const Sent sent = send(form, plain(x));
    EXPECT_EQ(sent.unconserved, 0) << int(form.wire);
  }
}

TEST(Compression, EqualMagnitudesAreTakenInTheirOrder) {
  Floats x(kElements, 0.0F);
  for (const std::size_t i : {3U, 9U, 40U, 41U, 900U, 901U, 902U}) x[i] = i % 2 == 0 ? 1.0F : -1.0F;
  const Sent sent = send({Wire::top, 5}, plain(x));
  for (const std::size_t i : {3U, 9U, 40U, 41U, 900U}) EXPECT_EQ(sent.values[i], x[i]) << i;
  EXPECT_EQ(sent.values[901], 0.0F);
  EXPECT_EQ(sent.rest[901], -1.0F);
}

TEST(Compression, ARunIsItsBlocks) {
  for (const WireForm form : kForms) {
    const Floats x = gradient(9, -4, 2);
    const std::vector<WireRun> one = {{0, 2 * kBlock + 131, 0}};
    const Sent apart = send(form, plain(x));
    std::vector<std::byte> wire(std::size_t(wire_bytes(form, one[0].n)));
    Floats rest(kElements);
    compress(Lane{}, form, one, plain(x), {wire.data(), Index(wire.size())}, {rest.data(), Index(kElements)});
    EXPECT_TRUE(std::equal(wire.begin(), wire.end(), apart.wire.begin())) << int(form.wire);
    EXPECT_TRUE(std::equal(rest.begin(), rest.end() - 1, apart.rest.begin())) << int(form.wire);
  }
}

TEST(Compression, BytesOnTheWire) {
  EXPECT_EQ(wire_bytes({Wire::fp16}, 1024), 2048);
  EXPECT_EQ(wire_bytes({Wire::bf16}, 3), 8);
  EXPECT_EQ(wire_bytes({Wire::int8}, 1024), 1028);
  EXPECT_EQ(wire_bytes({Wire::sign}, 1024), 132);
  EXPECT_EQ(wire_bytes({Wire::sign}, 9), 8);
  EXPECT_EQ(wire_bytes({Wire::top, 16}, 1024), 96);
  EXPECT_EQ(wire_bytes({Wire::top, 16}, 3), 20);
}

// A receiver reads what a stranger wrote: places outside of the block are left out.
TEST(Compression, AnyBytesAreTakenApartWithinTheBlock) {
  for (const WireForm form : kForms) {
    const std::vector<WireRun> blocks = blocks_in(form);
    const std::vector<std::byte> wire(bytes_of(form), std::byte{0xff});
    Floats values(kElements + 1, 7.0F);
    decompress(Lane{}, form, blocks, {wire.data(), Index(wire.size())}, {values.data(), Index(kElements)});
    EXPECT_EQ(values.back(), 7.0F);
  }
}

}  // namespace
}  // namespace seeksim::kernels::test
