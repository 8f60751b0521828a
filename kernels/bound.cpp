#include "kernels/bound.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/check.h"
#include "kernels/isa/table.h"

namespace seeksim::kernels {
namespace {

// The rows of x, end to end.
template <class T>
std::vector<float> widened(Mat<const T> x) {
  std::vector<float> out(static_cast<std::size_t>(x.rows * x.cols));
  for (Index i = 0; i < x.rows; ++i) {
    if constexpr (std::is_same_v<T, float>) {
      std::copy(x.row(i), x.row(i) + x.cols, out.data() + i * x.cols);
    } else {
      half_elements<T>().widen(x.row(i), out.data() + i * x.cols, x.cols);
    }
  }
  return out;
}

float magnitude(float x) { return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0x7fffffffU); }
double magnitude(double x) { return x < 0 ? -x : x; }
bool is_finite(float x) { return (std::bit_cast<std::uint32_t>(x) & 0x7f800000U) != 0x7f800000U; }

template <class T>
std::vector<float> magnitudes(Mat<const T> x) {
  std::vector<float> out = widened(x);
  for (float& value : out) value = magnitude(value);
  return out;
}

// 2^exponent, normal.
double power_of_two(int exponent) { return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52); }
// floor(log2 x) of a positive x.
int exponent_of(double x) { return static_cast<int>(std::bit_cast<std::uint64_t>(x) >> 52) - 1023; }

struct Format {
  int digits;        // of the significand, the leading one included
  int least;         // exponent of the smallest normal value
  double past_last;  // from here on a value is rounded to infinity
};
template <class To>
Format format_of() {
  if constexpr (std::is_same_v<To, bf16>) return {8, -126, 0x1.ffp127};
  if constexpr (std::is_same_v<To, fp16>) return {11, -14, 65520.0};
  return {24, -126, 0x1.ffffffp127};
}

}  // namespace

template <class T, class To>
void gemm_magnitudes(const GemmCall<T, To>& call, Mat<float> out) {
  const std::vector<float> a = magnitudes(call.a), b = magnitudes(call.b);
  products_in<float>().gemm(call.ta, call.tb, {a.data(), call.a.rows, call.a.cols, call.a.cols},
                            {b.data(), call.b.rows, call.b.cols, call.b.cols}, out, 0, nullptr);
  if (call.bias.n == 0) return;
  const std::vector<float> bias = magnitudes(Mat<const T>{call.bias.data, 1, call.bias.n, call.bias.n});
  for (Index i = 0; i < out.rows; ++i)
    for (Index j = 0; j < out.cols; ++j) out(i, j) += bias[static_cast<std::size_t>(j)];
}

void sum_magnitudes(const SumCall& call, Vec<float> out) {
  std::fill(out.data, out.data + out.n, 0.0F);
  for (Index p = 0; p < call.count; ++p)
    for (Index i = 0; i < out.n; ++i) out[i] += magnitude(call.parts[p].data[i]);
  for (Index i = 0; i < out.n; ++i) out[i] *= magnitude(call.factor);
}

double sum_bound(Index terms, float magnitude, bool tf32) {
  const double n = static_cast<double>(terms);
  // Rounding to a denormal value is off by at most half of the smallest one. tf32 adds 2^-9 of the sum of all products.
  return 2 * n * 0x1p-24 * magnitude + 2 * n * 0x1p-150 + (tf32 ? 0x1p-9 * magnitude : 0);
}

template <class To>
double half_ulp(double at_most) {
  const Format format = format_of<To>();
  return power_of_two(std::max(at_most > 0 ? exponent_of(at_most) : format.least, format.least) - format.digits);
}

template <class To>
Comparison compare(Mat<const To> fast, Mat<const float> exact, Mat<const float> magnitudes, Index terms, bool tf32) {
  SEEKSIM_CHECK(fast.rows == exact.rows && fast.cols == exact.cols, "(%lld, %lld) against (%lld, %lld)",
                static_cast<long long>(fast.rows), static_cast<long long>(fast.cols),
                static_cast<long long>(exact.rows), static_cast<long long>(exact.cols));
  Comparison all;
  const std::vector<float> values = widened(fast);
  for (Index i = 0; i < fast.rows; ++i) {
    for (Index j = 0; j < fast.cols; ++j) {
      Looked one{i, j, exact(i, j), values[static_cast<std::size_t>(i * fast.cols + j)], 0, 0};
      const double of_sum = sum_bound(terms, magnitudes(i, j), tf32);
      const double reach = magnitude(static_cast<double>(one.exact)) + of_sum;  // the largest that could be stored
      ++all.elements;
      if (!is_finite(one.exact)) {
        one.bound = std::numeric_limits<double>::infinity();
        one.ratio = is_finite(one.fast) ? one.bound : 0;
      } else if (!is_finite(one.fast)) {
        one.bound = of_sum;
        one.ratio = reach >= format_of<To>().past_last ? 0 : std::numeric_limits<double>::infinity();
      } else if (is_finite(magnitudes(i, j))) {
        const double stored = half_ulp<To>(reach);
        const double off = magnitude(static_cast<double>(one.fast) - static_cast<double>(one.exact)) - stored;
        one.bound = of_sum + stored;
        one.ratio = off > 0 ? off / of_sum : 0;
      }
      if (one.ratio > 1 && all.over++ == 0) all.first = one;
      if (all.elements == 1 || one.ratio > all.worst.ratio) all.worst = one;
    }
  }
  return all;
}

#define SEEKSIM_CALL(T, To) template void gemm_magnitudes(const GemmCall<T, To>&, Mat<float>);
SEEKSIM_CALL(float, float)
SEEKSIM_CALL(bf16, bf16)
SEEKSIM_CALL(bf16, float)
SEEKSIM_CALL(fp16, fp16)
SEEKSIM_CALL(fp16, float)
#undef SEEKSIM_CALL
#define SEEKSIM_STORED(To)              \
  template double half_ulp<To>(double); \
  template Comparison compare<To>(Mat<const To>, Mat<const float>, Mat<const float>, Index, bool);
SEEKSIM_STORED(float)
SEEKSIM_STORED(bf16)
SEEKSIM_STORED(fp16)
#undef SEEKSIM_STORED

}  // namespace seeksim::kernels
