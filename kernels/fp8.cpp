#include "kernels/fp8.h"

#include <algorithm>
#include <bit>

#include "kernels/check.h"
#include "kernels/device_table.h"
#include "kernels/isa/table.h"

namespace seeksim::kernels {
namespace {

constexpr std::uint32_t kInfinity = 0x7f800000U;

int mantissa_bits(Fp8 format) { return format == Fp8::e4m3 ? 3 : 2; }
int bias(Fp8 format) { return format == Fp8::e4m3 ? 7 : 15; }

void check_cast(Index rows, Index cols, Mat<float> y) {
  SEEKSIM_CHECK_EQ(rows, y.rows);
  SEEKSIM_CHECK_EQ(cols, y.cols);
}

// Calls each(first, size) for the blocks of n elements, in segments.
template <class Each>
void for_blocks(Index n, Index segment, Each each) {
  if (segment <= 0) segment = n;
  for (Index begin = 0; begin < n; begin += segment) {
    const Index end = std::min(begin + segment, n);
    for (Index at = begin; at < end; at += kMxBlock) each(at, std::min(kMxBlock, end - at));
  }
}

}  // namespace

// By integers: the magnitude's mantissa with its hidden bit is shifted to the format's last place, with what falls off
// below it deciding the rounding.
std::uint8_t to_fp8(Fp8 format, float value, bool saturates) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint8_t>((bits >> 24) & 0x80U);
  const std::uint32_t a = bits & 0x7fffffffU;
  constexpr std::uint8_t kNan = 0x7f;
  const std::uint8_t most = format == Fp8::e4m3 ? 0x7e : 0x7b;
  const std::uint8_t beyond = saturates ? most : format == Fp8::e4m3 ? kNan : std::uint8_t{0x7c};
  if (a > kInfinity) return sign | kNan;
  if (a == kInfinity) return sign | (format == Fp8::e5m2 && !saturates ? std::uint8_t{0x7c} : kNan);
  const int m = mantissa_bits(format);
  const int exponent = std::max(int(a >> 23), 1) - 127;  // of the hidden bit's place
  const std::uint64_t mantissa = (a & 0x7fffffU) | (a >> 23 > 0 ? 0x800000U : 0U);
  const int field = std::max(exponent + bias(format), 1);  // 1 serves the subnormals too
  const int drop = std::min(23 - m + (field - bias(format) - exponent), 63);
  const std::uint64_t kept = mantissa >> drop, rest = mantissa & ((std::uint64_t{1} << drop) - 1);
  const std::uint64_t half = std::uint64_t{1} << (drop - 1);
  const std::uint64_t rounded = kept + (rest > half || (rest == half && (kept & 1U) != 0) ? 1 : 0);
  // A hidden bit that is there adds 1 to the field below, a carry one more.
  const std::uint64_t code = (std::uint64_t(field - 1) << m) + rounded;
  return sign | (code > most ? beyond : std::uint8_t(code));
}

float from_fp8(Fp8 format, std::uint8_t code) {
  const int m = mantissa_bits(format), field = (code & 0x7f) >> m, mantissa = code & ((1 << m) - 1);
  const bool last = field == (format == Fp8::e4m3 ? 15 : 31);
  const std::uint32_t sign = std::uint32_t(code & 0x80U) << 24;
  if (last && format == Fp8::e5m2)
    return std::bit_cast<float>(mantissa == 0 ? kInfinity | sign : std::uint32_t{0x7fffffffU});
  if (last && mantissa == 7) return std::bit_cast<float>(std::uint32_t{0x7fffffffU});
  const int exponent = std::max(field, 1) - bias(format) - m;  // of the last place
  const auto place = std::bit_cast<float>(std::uint32_t(exponent + 127) << 23);
  const float a = float(mantissa + (field > 0 ? 1 << m : 0)) * place;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(a) | sign);
}

float fp8_scale(const Fp8Rule& rule, float amax, float otherwise) {
  constexpr float kMost = 0x1.fffffep127F, kLeastNormal = 0x1p-126F;
  if (!(amax > 0) || !(amax <= kMost)) return otherwise;
  float scale = largest(rule.format) / amax;
  for (int i = 0; i < rule.margin; ++i) scale = scale * 0.5F;
  scale = std::min(scale, kMost);
  if (rule.power_2_scale) scale = std::bit_cast<float>(std::bit_cast<std::uint32_t>(scale) & kInfinity);
  return std::max(scale, kLeastNormal);
}

template <class T>
void fp8_cast(Lane lane, const Fp8Cast& cast, InMat<T> x, Mat<float> y) {
  check_cast(x.rows, x.cols, y);
  if (const DeviceTable* device = device_of(lane)) return device->casts<T>().cast(lane, cast, x, y);
  for (Index r = 0; r < x.rows; ++r) elements_in<T>().fp8_cast(cast, x.row(r), y.row(r), x.cols);
}

template <class T>
void fp8_cast_samples(Lane lane, const Fp8Rule& rule, Index rows, InMat<T> x, Mat<float> y) {
  SEEKSIM_CHECK(rows > 0 && x.rows % rows == 0, "%lld rows in samples of %lld", static_cast<long long>(x.rows),
                static_cast<long long>(rows));
  check_cast(x.rows, x.cols, y);
  if (const DeviceTable* device = device_of(lane)) return device->casts<T>().cast_samples(lane, rule, rows, x, y);
  for (Index first = 0; first < x.rows; first += rows) {
    const Mat<const T> sample{x.row(first), rows, x.cols, x.stride};
    float amax = 0;
    fold_magnitude<T>(lane, sample, {&amax, 1});
    fp8_cast<T>(lane, {rule.format, fp8_scale(rule, amax, 1)}, sample, {y.row(first), rows, y.cols, y.stride});
  }
}

template <class T>
void mx_cast(Lane lane, Fp8 format, bool down, Index segment, InMat<T> x, Mat<float> y) {
  check_cast(x.rows, x.cols, y);
  if (const DeviceTable* device = device_of(lane)) return device->casts<T>().cast_mx(lane, format, down, segment, x, y);
  if (down) {
    for_blocks(x.rows, segment, [&](Index first, Index size) {
      elements_in<T>().mx_columns(format, {x.row(first), size, x.cols, x.stride},
                                  {y.row(first), size, y.cols, y.stride});
    });
    return;
  }
  for (Index r = 0; r < x.rows; ++r) {
    for_blocks(x.cols, segment, [&](Index first, Index size) {
      elements_in<T>().mx_row(format, x.row(r) + first, y.row(r) + first, size);
    });
  }
}

template <class T>
void fold_magnitude(Lane lane, InMat<T> x, Vec<float> out) {
  SEEKSIM_CHECK(out.n >= 1, "nowhere to put the magnitude");
  if (const DeviceTable* device = device_of(lane)) return device->casts<T>().fold_magnitude(lane, x, out);
  std::uint32_t most = std::bit_cast<std::uint32_t>(out[0]);
  for (Index r = 0; r < x.rows; ++r) most = std::max(most, elements_in<T>().magnitude_bits(x.row(r), x.cols));
  out[0] = std::bit_cast<float>(std::min(most, kInfinity));
}

#define SEEKSIM_INSTANTIATE(T)                                                          \
  template void fp8_cast<T>(Lane, const Fp8Cast&, InMat<T>, Mat<float>);                \
  template void fp8_cast_samples<T>(Lane, const Fp8Rule&, Index, InMat<T>, Mat<float>); \
  template void mx_cast<T>(Lane, Fp8, bool, Index, InMat<T>, Mat<float>);               \
  template void fold_magnitude<T>(Lane, InMat<T>, Vec<float>);
SEEKSIM_INSTANTIATE(float)
SEEKSIM_INSTANTIATE(bf16)
SEEKSIM_INSTANTIATE(fp16)
#undef SEEKSIM_INSTANTIATE

}  // namespace seeksim::kernels
