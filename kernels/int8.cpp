#include "kernels/int8.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "kernels/cast.h"
#include "kernels/check.h"
#include "kernels/device_table.h"

namespace seeksim::kernels {
namespace {

constexpr float kMost = 127.0F;  // the largest code
constexpr Index kScale = sizeof(float);

// A block's elements in fp32.
using Elements = std::array<float, std::size_t(kBlock)>;

std::uint32_t magnitude_bits(float x) { return std::bit_cast<std::uint32_t>(x) & 0x7fffffffU; }

// As bits, so that a NaN is larger than anything (F5).
std::uint32_t largest_of(const float* x, Index n) {
  std::uint32_t most = 0;
  for (Index i = 0; i < n; ++i) most = std::max(most, magnitude_bits(x[i]));
  return most;
}

float scale_of(std::uint32_t most) {
  if (most >= 0x7f800000U) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(most) / kMost;
}

// To nearest even, of magnitudes below 2^22.
float rounded(float x) {
  const float up = x + 0x1.8p23F;
  return up - 0x1.8p23F;
}

float code_of(float x, float scale, Int8Slip slip) {
  if (!(scale > 0.0F)) return 0.0F;
  const float multiple = std::clamp(x / scale, -kMost, kMost);
  return slip == Int8Slip::cut_off ? float(int(multiple)) : rounded(multiple);
}

// Calls each(first, n, at) for the blocks of the runs that lie in [part.first, part.first + n): place of the first
// element and of the first byte in the vectors of the call.
template <class Each>
void for_blocks(Int8Form form, Int8Part part, Index n, Each each) {
  SEEKSIM_CHECK(form.block > 0 && form.block <= kBlock && kBlock % form.block == 0, "blocks of %lld elements",
                static_cast<long long>(form.block));
  const Index end = part.first + n;
  for (const WireRun& run : part.runs) {
    if (run.offset >= end || run.offset + run.n <= part.first) continue;
    const Index from = std::max<Index>(part.first - run.offset, 0), to = std::min(end - run.offset, run.n);
    SEEKSIM_CHECK(from % form.block == 0 && (to % form.block == 0 || to == run.n),
                  "[%lld, %lld) of a run is not of whole blocks", static_cast<long long>(from),
                  static_cast<long long>(to));
    for (Index at = from; at < to; at += form.block)
      each(run.offset + at - part.first, std::min(form.block, to - at), run.at + int8_bytes(at, form.block) - part.at);
  }
}

template <class T>
void load(const T* x, Index n, Int8Slip slip, Elements& out) {
  if (sizeof(T) == sizeof(fp16) && slip == Int8Slip::as_fp16)
    widen<fp16>(Lane{}, {reinterpret_cast<const fp16*>(x), n}, {out.data(), n});
  else if constexpr (std::is_same_v<T, float>)
    std::copy_n(x, n, out.begin());
  else
    widen<T>(Lane{}, {x, n}, {out.data(), n});
}

template <class T>
void store(const Elements& values, Index n, T* out) {
  if constexpr (std::is_same_v<T, float>)
    std::copy_n(values.begin(), n, out);
  else
    narrow<T>(Lane{}, {values.data(), n}, {out, n});
}

void check_on_host(Lane lane) {
  SEEKSIM_CHECK(device_of(lane) == nullptr, "there is no kernel for GPUs that quantises weights");
}

}  // namespace

template <class T>
void quantise(Lane lane, Int8Form form, Int8Part part, InVec<T> x, Vec<std::byte> wire) {
  check_on_host(lane);
  Elements values{};
  std::uint32_t of_all = 0;
  if (form.slip == Int8Slip::one_scale)
    for_blocks(form, part, x.n, [&](Index first, Index n, Index) {
      load<T>(x.data + first, n, form.slip, values);
      of_all = std::max(of_all, largest_of(values.data(), n));
    });
  for_blocks(form, part, x.n, [&](Index first, Index n, Index at) {
    SEEKSIM_CHECK(at >= 0 && at + kScale + n <= wire.n, "a block goes to byte %lld of %lld", static_cast<long long>(at),
                  static_cast<long long>(wire.n));
    load<T>(x.data + first, n, form.slip, values);
    const float scale = scale_of(std::max(of_all, largest_of(values.data(), n)));
    std::memcpy(wire.data + at, &scale, sizeof scale);
    for (Index i = 0; i < n; ++i)
      wire[at + kScale + i] = std::byte(std::int8_t(code_of(values[std::size_t(i)], scale, form.slip)));
  });
}

template <class T>
void dequantise(Lane lane, Int8Form form, Int8Part part, Vec<const std::byte> wire, OutVec<T> y) {
  check_on_host(lane);
  Elements values{};
  for_blocks(form, part, y.n, [&](Index first, Index n, Index at) {
    SEEKSIM_CHECK(at >= 0 && at + kScale + n <= wire.n, "a block comes from byte %lld of %lld",
                  static_cast<long long>(at), static_cast<long long>(wire.n));
    float scale = 0;
    std::memcpy(&scale, wire.data + at, sizeof scale);
    for (Index i = 0; i < n; ++i) values[std::size_t(i)] = float(std::int8_t(wire[at + kScale + i])) * scale;
    store<T>(values, n, y.data + first);
  });
}

template <class T>
void through_int8(Lane lane, Int8Form form, Index segment, InVec<T> x, OutVec<T> y) {
  check_on_host(lane);
  SEEKSIM_CHECK_EQ(x.n, y.n);
  SEEKSIM_CHECK(segment > 0, "segments of %lld elements", static_cast<long long>(segment));
  Elements values{};
  for (Index begin = 0; begin < x.n; begin += segment) {
    const Index end = std::min(begin + segment, x.n);
    for (Index at = begin; at < end; at += form.block) {
      const Index n = std::min(form.block, end - at);
      load<T>(x.data + at, n, form.slip, values);
      const float scale = scale_of(largest_of(values.data(), n));
      for (Index i = 0; i < n; ++i) values[std::size_t(i)] = code_of(values[std::size_t(i)], scale, form.slip) * scale;
      store<T>(values, n, y.data + at);
    }
  }
}

#define SEEKSIM_INSTANTIATE(T)                                                         \
  template void quantise<T>(Lane, Int8Form, Int8Part, Vec<const T>, Vec<std::byte>);   \
  template void dequantise<T>(Lane, Int8Form, Int8Part, Vec<const std::byte>, Vec<T>); \
  template void through_int8<T>(Lane, Int8Form, Index, Vec<const T>, Vec<T>);
SEEKSIM_INSTANTIATE(float)
SEEKSIM_INSTANTIATE(bf16)
SEEKSIM_INSTANTIATE(fp16)
#undef SEEKSIM_INSTANTIATE

}  // namespace seeksim::kernels
