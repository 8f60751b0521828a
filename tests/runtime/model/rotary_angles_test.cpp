// The angles of rotary positions, and the functions that they are made of, against libm in long double.
#include "runtime/model/rotary_angles.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/digest.h"
#include "runtime/rules/host_math.h"

namespace seeksim::test {
namespace {

using namespace seeksim::runtime;

TEST(HostMath, ExpIsWithinTwoUlp) {
  double worst = 0;
  for (double x = -700; x <= 700; x += 0.0917) {
    const long double exact = std::exp(static_cast<long double>(x));
    worst = std::max(worst, double(std::fabs((static_cast<long double>(host_exp(x)) - exact) / exact)));
  }
  EXPECT_LE(worst, 4.5e-16);
  EXPECT_EQ(host_exp(0), 1.0);
}

TEST(HostMath, SinAndCosAreWithinTheirBound) {
  double worst = 0;
  const auto look = [&](double a) {
    const SinCos got = host_sin_cos(a);
    const long double angle = a;
    worst = std::max(worst, double(std::fabs(static_cast<long double>(got.sin) - std::sin(angle))));
    worst = std::max(worst, double(std::fabs(static_cast<long double>(got.cos) - std::cos(angle))));
  };
  for (double a = 0; a < 40; a += 0.00371) look(a);
  for (double a = 40; a < 0x1p26; a *= 1.00073) look(a);
  for (double k = 0; k < 0x1p25; k += 1 + std::floor(k / 50)) look(k * 1.5707963267948966);  // next to whole quarters
  EXPECT_LE(worst, 0x1p-50);
  EXPECT_EQ(host_sin_cos(0).sin, 0.0);
  EXPECT_EQ(host_sin_cos(0).cos, 1.0);
}

TEST(RotaryAngles, AreThoseOfTheFormula) {
  for (const double theta : {10000.0, 500000.0})
    for (const kernels::Index d : {2, 8, 10, 128}) {
      const kernels::Index positions = 300;
      const std::vector<float> angles = rotary_angles(positions, d, theta);
      ASSERT_EQ(kernels::Index(angles.size()), positions * d);
      for (kernels::Index t = 0; t < positions; ++t)
        for (kernels::Index i = 0; i < d / 2; ++i) {
          const long double angle =
              static_cast<long double>(t) * std::pow(static_cast<long double>(theta), -2.0L * i / d);
          ASSERT_NEAR(double(angles[std::size_t(t * d + i)]), double(std::cos(angle)), 0x1.02p-25) << t << " " << i;
          ASSERT_NEAR(double(angles[std::size_t(t * d + d / 2 + i)]), double(std::sin(angle)), 0x1.02p-25)
              << t << " " << i;
        }
    }
}

// They are part of the contract: other bits are another model.
TEST(RotaryAngles, KeepTheirBits) {
  const std::vector<float> angles = rotary_angles(4096, 64, 10000);
  EXPECT_EQ(kernels::digest({angles.data(), kernels::Index(angles.size())}), 0x5e8c94dae5ed5ad9U);
}

TEST(RotaryAngles, NeedHalves) { EXPECT_ANY_THROW(rotary_angles(4, 3, 10000)); }

}  // namespace
}  // namespace seeksim::test
