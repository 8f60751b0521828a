// The transcendental functions: the same bits on every instruction set for every input, and errors against libm in
// double within the published bounds (kernels/math.h).

#include "kernels/pointwise.h"

#include <cmath>
#include <cstring>

#include "tests/kernels/reference.h"

namespace seeksim::kernels::test {
namespace {

constexpr std::uint64_t kAll = 1ULL << 32;
constexpr std::size_t kChunk = 1 << 14;
const Isa kIsas[] = {Isa::scalar, Isa::avx2, Isa::avx512};

struct Function {
  const char* name;
  Unary f;
  double (*exact)(double);
  double ulps;           // of the result
  double absolute;       // allowed beside it
  double relative_to_x;  // times |x|, allowed beside it
};

double gelu_exact(double x) {
  const double u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
  return x / (1 + std::exp(-2 * u));
}
double gelu_grad_exact(double x) {
  const double u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x), s = 1 / (1 + std::exp(-2 * u));
  const double slope = 2 * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
  return std::fabs(x) > 30 ? (x > 0 ? 1 : 0) : s + x * s * (1 - s) * slope;
}
double silu_exact(double x) { return x / (1 + std::exp(-x)); }
double silu_grad_exact(double x) {
  const double s = 1 / (1 + std::exp(-x));
  return std::fabs(x) > 200 ? (x > 0 ? 1 : 0) : s + x * s * (1 - s);
}
double rsqrt_exact(double x) { return 1 / std::sqrt(x); }

const std::vector<Function> kFunctions = {
    {"exp", Unary::exp, std::exp, 1.01, 0, 0},
    {"tanh", Unary::tanh, std::tanh, 1.32, 0, 0},
    {"log", Unary::log, std::log, 0.78, 0, 0},
    {"inverse_sqrt", Unary::inverse_sqrt, rsqrt_exact, 1.5, 0, 0},
    {"gelu", Unary::gelu, gelu_exact, 4.0, 0, 0x1p-21},
    {"gelu_grad", Unary::gelu_grad, gelu_grad_exact, 4.0, 0x1p-20, 0},
    {"silu", Unary::silu, silu_exact, 4.0, 0, 0x1p-21},
    {"silu_grad", Unary::silu_grad, silu_grad_exact, 4.0, 0x1p-21, 0},
};

// begin, begin + step, ... as bit patterns: kChunk of them at most.
Floats inputs(std::uint64_t begin, std::uint64_t step) {
  Floats x;
  for (std::uint64_t u = begin; u < kAll && x.size() < kChunk; u += step)
    x.push_back(from_bits(static_cast<std::uint32_t>(u)));
  return x;
}

// f of x by the active set.
void evaluate(Unary f, const Floats& x, Floats& y) {
  y.resize(x.size());
  unary({}, f, vec(x), vec(y));
}

void expect_equal_bits_on_every_set(std::uint64_t step) {
  Floats y, other;
  for (std::uint64_t begin = 0; begin < kAll; begin += step * kChunk) {
    const Floats x = inputs(begin, step);
    for (const Function& function : kFunctions) {
      force_isa(Isa::scalar);
      evaluate(function.f, x, y);
      for (Isa isa : kIsas) {
        if (isa == Isa::scalar || !cpu_has(isa)) continue;
        force_isa(isa);
        evaluate(function.f, x, other);
        if (std::memcmp(other.data(), y.data(), x.size() * sizeof(float)) == 0) continue;
        ASSERT_EQ(difference(other, y), "") << function.name << " " << name(isa) << " inputs from " << begin;
      }
    }
  }
}

TEST(Unary, EqualBitsOnEverySetForEvery257thInput) { expect_equal_bits_on_every_set(257); }
TEST(UnaryNightly, EqualBitsOnEverySetForAllInputs) { expect_equal_bits_on_every_set(1); }

// Distance from the exact value in units of the last place of a float of that size.
double error_in_ulps(double got, double exact) {
  int exponent = 0;
  std::frexp(exact, &exponent);
  return std::fabs(got - exact) / std::ldexp(1.0, std::max(exponent - 24, -149));
}

TEST(Unary, ErrorsStayWithinThePublishedBounds) {
  force_isa(cpu_has(Isa::avx512) ? Isa::avx512 : Isa::avx2);
  for (const Function& function : kFunctions) {
    Floats y;
    double worst = 0, worst_at = 0;
    for (std::uint64_t begin = 0; begin < kAll; begin += 257 * 13 * kChunk) {
      const Floats x = inputs(begin, 257 * 13);
      evaluate(function.f, x, y);
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double exact = function.exact(static_cast<double>(x[i]));
        if (std::isnan(exact)) {
          ASSERT_TRUE(std::isnan(y[i]) || std::isinf(x[i])) << function.name << " of " << x[i];
          continue;
        }
        const auto rounded = static_cast<float>(exact);
        if (std::isinf(rounded) || std::isinf(y[i]) || std::isnan(y[i])) {
          const bool infinite_either_way = std::isinf(rounded) && std::isinf(y[i]);
          ASSERT_TRUE(infinite_either_way || std::fabs(x[i]) > 1e12)
              << function.name << " of " << x[i] << " is " << y[i];
          continue;
        }
        const double slack = function.absolute + function.relative_to_x * std::fabs(static_cast<double>(x[i]));
        if (std::fabs(static_cast<double>(y[i]) - exact) <= slack) continue;
        const double ulps = error_in_ulps(static_cast<double>(y[i]), exact);
        if (ulps > worst) worst = ulps, worst_at = static_cast<double>(x[i]);
      }
    }
    EXPECT_LE(worst, function.ulps) << function.name << " at " << worst_at;
    RecordProperty(std::string(function.name) + "_ulps", std::to_string(worst));
  }
}

TEST(Unary, SpecialValuesAreWhatAMathematicianExpects) {
  for (Isa isa : kIsas) {
    if (!cpu_has(isa)) continue;
    force_isa(isa);
    const auto of = [](Unary f, float x) {
      Floats in(1, x), out(1);
      unary({}, f, vec(std::as_const(in)), vec(out));
      return out[0];
    };
    EXPECT_EQ(of(Unary::exp, -INFINITY), 0.0F);
    EXPECT_EQ(of(Unary::exp, INFINITY), INFINITY);
    EXPECT_EQ(of(Unary::exp, 0.0F), 1.0F);
    EXPECT_EQ(of(Unary::exp, -103.9F), 0x1p-149F) << "denormal results are kept";
    EXPECT_EQ(of(Unary::log, 0.0F), -INFINITY);
    EXPECT_EQ(of(Unary::log, -0.0F), -INFINITY);
    EXPECT_EQ(bits(of(Unary::log, 1.0F)), bits(0.0F));
    EXPECT_EQ(of(Unary::log, INFINITY), INFINITY);
    EXPECT_TRUE(std::isnan(of(Unary::log, -1.0F)));
    EXPECT_EQ(bits(of(Unary::tanh, -0.0F)), bits(-0.0F));
    EXPECT_EQ(of(Unary::tanh, -INFINITY), -1.0F);
    EXPECT_EQ(of(Unary::gelu, 0.0F), 0.0F);
    EXPECT_EQ(of(Unary::gelu, 50.0F), 50.0F);
    EXPECT_EQ(of(Unary::gelu_grad, 1e30F), 1.0F);
    EXPECT_LT(std::fabs(of(Unary::gelu_grad, -1e30F)), 1e-34F);
    EXPECT_EQ(of(Unary::silu, 0.0F), 0.0F);
    EXPECT_EQ(of(Unary::silu, 100.0F), 100.0F);
    EXPECT_EQ(of(Unary::silu_grad, 1e30F), 1.0F);
    EXPECT_EQ(of(Unary::silu_grad, 0.0F), 0.5F);
    EXPECT_LT(std::fabs(of(Unary::silu_grad, -1e30F)), 1e-32F);
    for (Unary f : {Unary::exp, Unary::tanh, Unary::log, Unary::inverse_sqrt, Unary::gelu, Unary::gelu_grad,
                    Unary::silu, Unary::silu_grad})
      EXPECT_TRUE(std::isnan(of(f, NAN)));
  }
}

// FNV-1a over the results of all 2^32 inputs in order: the golden that a GPU has to reproduce. The value is the one
// that the prototype of the contract had (numerics evidence, 2.4).
TEST(UnaryNightly, HashOfExpOverAllInputsIsTheGolden) {
  force_isa(cpu_has(Isa::avx512) ? Isa::avx512 : Isa::avx2);
  std::uint64_t hash = 1469598103934665603ULL;
  Floats y;
  for (std::uint64_t begin = 0; begin < kAll; begin += kChunk) {
    evaluate(Unary::exp, inputs(begin, 1), y);
    for (float value : y) hash = (hash ^ canonical(value)) * 1099511628211ULL;
  }
  EXPECT_EQ(hash, 0x14459894f7f6da42ULL);
}

}  // namespace
}  // namespace seeksim::kernels::test
