// Philox against the published vectors, and the properties of what is drawn from it.

#include "kernels/random.h"

#include <cmath>

#include "kernels/isa/table.h"
#include "tests/kernels/reference.h"

namespace seeksim::kernels::test {
namespace {

// Random123's kat_vectors for philox4x32 with 10 rounds.
TEST(Philox, KnownAnswers) {
  using Words = std::array<std::uint32_t, 4>;
  EXPECT_EQ(philox({0, 0, 0, 0}, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({~0U, ~0U, ~0U, ~0U}, ~0ULL), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822ULL),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

class FillNormal : public OnEveryIsa {};
SEEKSIM_ON_EVERY_ISA(FillNormal);

TEST_P(FillNormal, AnyRangeOfATensorCanBeDrawnAlone) {
  Floats all(5000);
  fill_normal({}, vec(all), 3, 0, 0.02F, 42);
  Rng rng(1);
  for (int round = 0; round < 100; ++round) {
    const std::size_t first = rng() % all.size(), n = rng() % (all.size() - first);
    Floats part(n);
    fill_normal({}, vec(part), 3, first, 0.02F, 42);
    ASSERT_EQ(difference(part, Floats(all.begin() + static_cast<std::ptrdiff_t>(first),
                                      all.begin() + static_cast<std::ptrdiff_t>(first + n))),
              "");
  }
}

TEST_P(FillNormal, EqualsTheScalarSet) {
  Floats got(4099), want(4099);
  fill_normal({}, vec(got), 9, (1ULL << 34) - 5, 1.0F, 7);
  force_isa(Isa::scalar);
  fill_normal({}, vec(want), 9, (1ULL << 34) - 5, 1.0F, 7);
  EXPECT_EQ(difference(got, want), "");
}

// Vectors of counters give what one counter at a time gives, where the element's half of the number overflows, too.
TEST_P(FillNormal, WordsOfManyBlocksAreThoseOfEach) {
  constexpr Index kBlocks = 21;
  const std::uint64_t number = (7ULL << 32) - 9, key = 0x123456789abcdefULL;
  std::array<std::uint32_t, 4 * kBlocks + 1> words{};
  words.back() = 99;
  elements().philox_words({static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32), 3, 5}, key,
                          words.data(), kBlocks);
  for (std::size_t b = 0; b < kBlocks; ++b) {
    const std::uint64_t block = number + b;
    const auto want = philox({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 3, 5}, key);
    for (std::size_t w = 0; w < 4; ++w) ASSERT_EQ(words[4 * b + w], want[w]) << "block " << b << " word " << w;
  }
  EXPECT_EQ(words.back(), 99U);
}

TEST_P(FillNormal, ChangesWithKeyOpAndElement) {
  Floats a(64), b(64);
  fill_normal({}, vec(a), 1, 0, 1, 1);
  fill_normal({}, vec(b), 2, 0, 1, 1);
  EXPECT_NE(difference(a, b), "");
  fill_normal({}, vec(b), 1, 0, 1, 1ULL << 40);
  EXPECT_NE(difference(a, b), "");
  fill_normal({}, vec(b), 1, 1ULL << 40, 1, 1);
  EXPECT_NE(difference(a, b), "");
}

// The quantile function itself: the value drawn for a word lies where erfc says that its probability lies.
TEST_P(FillNormal, IsTheInverseOfTheDistributionFunction) {
  constexpr std::size_t kN = 1 << 16;
  Floats z(kN);
  fill_normal({}, vec(z), 5, 0, 1.0F, 11);
  double mean = 0, square = 0, fourth = 0;
  for (std::size_t i = 0; i < kN; ++i) {
    const std::uint32_t word = philox({static_cast<std::uint32_t>(i / 4), 0, 5, 0xffffffffU}, 11)[i % 4];
    const double p = (static_cast<double>(word >> 8) + 0.5) * 0x1p-24;
    const double x = static_cast<double>(z[i]), cdf = 0.5 * std::erfc(-x / std::sqrt(2.0));
    const double density = std::exp(-x * x / 2) / std::sqrt(2 * M_PI);
    const double error = std::fabs(cdf - p) / density;  // in x, to first order
    ASSERT_LE(error, 5e-7 * std::max(1.0, std::fabs(x))) << "p " << p << " z " << x;
    mean += x, square += x * x, fourth += x * x * x * x;
  }
  EXPECT_NEAR(mean / kN, 0, 0.02);
  EXPECT_NEAR(square / kN, 1, 0.03);
  EXPECT_NEAR(fourth / kN, 3, 0.15);
}

}  // namespace
}  // namespace seeksim::kernels::test
