// Every form leaves a rest that fp32 can hold: 16-bit types and the largest elements by themselves, multiples of a
// power of two because the rest is below it, and signs because what is owed is first rounded to a grid on which the
// mean lies too.
#include "kernels/compression.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/cast.h"
#include "kernels/check.h"
#include "kernels/device_table.h"
#include "kernels/scratch.h"
#include "kernels/tree.h"

namespace seeksim::kernels {
namespace {

constexpr const char* kWhat = "compresses gradients or quantises weights";
using Block = std::array<float, std::size_t(kBlock)>;

constexpr Index kScale = sizeof(float);  // a block's first bytes, in int8 and sign

Index round_up(Index bytes) { return (bytes + 3) / 4 * 4; }

std::uint32_t magnitude_bits(float x) { return std::bit_cast<std::uint32_t>(x) & 0x7fffffffU; }
bool finite(float x) { return magnitude_bits(x) < 0x7f800000U; }
float power_of_two(int exponent) { return std::bit_cast<float>(std::uint32_t(exponent + 127) << 23); }

float read_float(const std::byte* at) {
  float value = 0;
  std::memcpy(&value, at, sizeof value);
  return value;
}
void write_float(float value, std::byte* at) { std::memcpy(at, &value, sizeof value); }

// The largest magnitude as bits, so that a NaN is larger than anything (F5).
std::uint32_t largest(const float* x, Index n) {
  std::uint32_t most = 0;
  for (Index i = 0; i < n; ++i) most = std::max(most, magnitude_bits(x[i]));
  return most;
}
// The power of two that is not above a finite magnitude; for a denormal one the least normal number.
int exponent_of(std::uint32_t magnitude) { return std::max(int(magnitude >> 23), 1) - 127; }

// Added and taken away again it rounds to multiples of its last bit (ties to even).
float rounded_by(float x, float shift) {
  const float up = x + shift;
  return up - shift;
}

// F4.
float mean_magnitude(const float* x, Index n) {
  std::array<float, 128> lane{};
  for (Index i = 0; i < n; ++i)
    lane[std::size_t(i % 128)] = lane[std::size_t(i % 128)] + std::bit_cast<float>(magnitude_bits(x[i]));
  for (std::size_t w = 64; w > 0; w /= 2)
    for (std::size_t l = 0; l < w; ++l) lane[l] = lane[l] + lane[l + w];
  return lane[0] / float(n);
}

// Rounded to multiples of 2^-22 of the power of two above all of them: then plus or minus their mean leaves a rest of
// at most 23 bits. Infinite where that grid is beyond fp32.
float sign_shift(std::uint32_t most) {
  const int exponent = exponent_of(most) + 2;
  return exponent > 126 ? std::numeric_limits<float>::infinity() : 1.5F * power_of_two(exponent);
}

float owed_at(const OwedGradient& owed, Index at) {
  float value = owed.values[at];
  if (at < owed.second.n) value = value + owed.second[at];
  value = value * owed.factor;
  if (owed.moment.n > 0) value = owed.moment[at] * owed.moment_factor + value * owed.gradient_factor;
  if (owed.kept.n > 0) value = value + owed.kept[at];
  return value;
}

// What is owed of a block, as it is compressed.
void owed_of(WireForm form, const WireRun& block, const OwedGradient& owed, float* x) {
  for (Index i = 0; i < block.n; ++i) x[i] = owed_at(owed, block.offset + i);
  if (form.wire != Wire::sign) return;
  const std::uint32_t most = largest(x, block.n);
  if (most >= 0x7f800000U) return;
  const float shift = sign_shift(most);
  for (Index i = 0; i < block.n; ++i) x[i] = rounded_by(x[i], shift);
}

template <class T>
void to_16_bits(const float* x, Index n, std::byte* wire) {
  narrow<T>(Lane{}, {x, n}, {reinterpret_cast<T*>(wire), n});
}

void to_int8(const float* x, Index n, std::byte* wire) {
  const std::uint32_t most = largest(x, n);
  const bool good = most < 0x7f800000U;
  const int exponent = good ? std::max(exponent_of(most) - 6, -126) : 0;
  write_float(good ? power_of_two(exponent) : std::numeric_limits<float>::quiet_NaN(), wire);
  const float inverse = power_of_two(-exponent);
  for (Index i = 0; i < n; ++i) {
    const float multiple = good ? rounded_by(x[i] * inverse, 0x1.8p23F) : 0.0F;
    wire[kScale + i] = std::byte(std::int8_t(std::clamp(multiple, -127.0F, 127.0F)));
  }
}

void to_signs(const float* x, Index n, std::byte* wire) {
  const std::uint32_t most = largest(x, n);
  const float mean =
      most < 0x7f800000U ? rounded_by(mean_magnitude(x, n), sign_shift(most)) : std::numeric_limits<float>::quiet_NaN();
  write_float(mean, wire);
  for (Index i = 0; i < n; ++i) {
    if (!(x[i] >= 0.0F)) wire[kScale + i / 8] |= std::byte(1U << (i % 8));
  }
}

// Sent in their order; among equal magnitudes the first ones.
void to_largest(const float* x, Index n, int top, std::byte* wire) {
  const Index count = std::min<Index>(top, n);
  std::array<std::uint16_t, std::size_t(kBlock)> order;
  std::iota(order.begin(), order.begin() + n, std::uint16_t(0));
  std::nth_element(order.begin(), order.begin() + (count - 1), order.begin() + n,
                   [x](std::uint16_t a, std::uint16_t b) {
                     const std::uint32_t left = magnitude_bits(x[a]), right = magnitude_bits(x[b]);
                     return left != right ? left > right : a < b;
                   });
  std::sort(order.begin(), order.begin() + count);
  for (Index k = 0; k < count; ++k) write_float(x[order[std::size_t(k)]], wire + k * kScale);
  std::memcpy(wire + count * kScale, order.data(), std::size_t(count) * sizeof order[0]);
}

Index block_bytes(WireForm form, Index n) {
  switch (form.wire) {
    case Wire::int8:
      return round_up(kScale + n);
    case Wire::sign:
      return round_up(kScale + (n + 7) / 8);
    case Wire::top:
      return round_up(std::min<Index>(form.top, n) * (kScale + Index(sizeof(std::uint16_t))));
    default:
      return round_up(2 * n);
  }
}

void pack(WireForm form, const float* x, Index n, std::byte* wire) {
  std::fill_n(wire, block_bytes(form, n), std::byte{});
  switch (form.wire) {
    case Wire::fp16:
      return to_16_bits<fp16>(x, n, wire);
    case Wire::bf16:
      return to_16_bits<bf16>(x, n, wire);
    case Wire::int8:
      return to_int8(x, n, wire);
    case Wire::sign:
      return to_signs(x, n, wire);
    case Wire::top:
      return to_largest(x, n, form.top, wire);
  }
}

void unpack(WireForm form, const std::byte* wire, Index n, float* x) {
  switch (form.wire) {
    case Wire::fp16:
      return widen<fp16>(Lane{}, {reinterpret_cast<const fp16*>(wire), n}, {x, n});
    case Wire::bf16:
      return widen<bf16>(Lane{}, {reinterpret_cast<const bf16*>(wire), n}, {x, n});
    case Wire::int8: {
      const float scale = read_float(wire);
      for (Index i = 0; i < n; ++i) x[i] = float(std::int8_t(wire[kScale + i])) * scale;
      return;
    }
    case Wire::sign: {
      const float mean = read_float(wire);
      for (Index i = 0; i < n; ++i)
        x[i] = (wire[kScale + i / 8] >> (i % 8) & std::byte{1}) != std::byte{} ? -mean : mean;
      return;
    }
    case Wire::top: {
      const Index count = std::min<Index>(form.top, n);
      std::fill_n(x, n, 0.0F);
      for (Index k = 0; k < count; ++k) {
        std::uint16_t place = 0;  // a stranger's: a flipped bit may name an element that the block does not have
        std::memcpy(&place, wire + count * kScale + k * Index(sizeof place), sizeof place);
        if (place < n) x[place] = read_float(wire + k * kScale);
      }
      return;
    }
  }
}

// Calls each(block) for the blocks of all runs, each a run of its own.
template <class Each>
void for_each_block(WireForm form, std::span<const WireRun> runs, Each each) {
  const Index whole = block_bytes(form, kBlock);
  for (const WireRun& run : runs) {
    for (Index i = 0; i * kBlock < run.n; ++i)
      each(WireRun{run.offset + i * kBlock, std::min(kBlock, run.n - i * kBlock), run.at + i * whole});
  }
}

}  // namespace

Index wire_bytes(WireForm form, Index n) {
  SEEKSIM_CHECK(n >= 0, "a run of %lld elements", static_cast<long long>(n));
  const Index rest = n % kBlock;
  return n / kBlock * block_bytes(form, kBlock) + (rest > 0 ? block_bytes(form, rest) : 0);
}

void compress(Lane lane, WireForm form, std::span<const WireRun> runs, const OwedGradient& owed, Vec<std::byte> wire,
              Vec<float> rest) {
  check_on_cpu(lane, kWhat);
  Block x, sent;
  for_each_block(form, runs, [&](const WireRun& block) {
    owed_of(form, block, owed, x.data());
    std::byte* const at = wire.data + block.at;
    pack(form, x.data(), block.n, at);
    unpack(form, at, block.n, sent.data());
    for (Index i = 0; i < block.n; ++i) rest[block.offset + i] = x[std::size_t(i)] - sent[std::size_t(i)];
  });
}

void decompress(Lane lane, WireForm form, std::span<const WireRun> runs, Vec<const std::byte> wire, Vec<float> values) {
  check_on_cpu(lane, kWhat);
  if (runs.empty()) return;
  const WireRun& first = runs.front();
  for_each_block(form, runs, [&](const WireRun& block) {
    unpack(form, wire.data + (block.at - first.at), block.n, values.data + (block.offset - first.offset));
  });
}

// a + b = sum + error, exactly.
void count_unconserved(Lane lane, WireForm form, std::span<const WireRun> runs, const OwedGradient& owed,
                       Vec<const std::byte> wire, Vec<const float> rest, Vec<std::int64_t> count) {
  check_on_cpu(lane, kWhat);
  Block x, sent;
  count[0] = 0;
  for_each_block(form, runs, [&](const WireRun& block) {
    owed_of(form, block, owed, x.data());
    unpack(form, wire.data + block.at, block.n, sent.data());
    for (Index i = 0; i < block.n; ++i) {
      const float a = sent[std::size_t(i)], b = rest[block.offset + i];
      if (!finite(x[std::size_t(i)]) || !finite(a)) continue;
      const float sum = a + b, back = sum - a;
      const float from_a = a - (sum - back), from_b = b - back;
      if (sum != x[std::size_t(i)] || from_a + from_b != 0.0F) ++count[0];
    }
  });
}

// ---- factors of a matrix -------------------------------------------------------------------------------------------

void owe(Lane lane, const OwedGradient& owed, Vec<float> out) {
  check_on_cpu(lane, kWhat);
  for (Index i = 0; i < out.n; ++i) out[i] = owed_at(owed, i);
}

void count_share_unconserved(Lane lane, const OwedGradient& owed, Vec<const float> sum, float share,
                             Vec<const float> rest, Vec<std::int64_t> count) {
  check_on_cpu(lane, kWhat);
  for (Index i = 0; i < rest.n; ++i) {
    const float whole = owed_at(owed, i), sent = sum[i] * share;
    if (finite(whole) && finite(sent) && !(rest[i] == whole - sent)) ++count[0];
  }
}

// ---- codes of few bits ----------------------------------------------------------------------------------------------

namespace {

float most_of(CodeForm form) { return form.bits == 4 ? 7.0F : 127.0F; }  // the largest code

float scale_of(CodeForm form, std::uint32_t most) {
  if (most >= 0x7f800000U) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(most) / most_of(form);
}

float code_of(CodeForm form, float x, float scale) {
  if (!(scale > 0.0F)) return 0.0F;
  const float multiple = std::clamp(x / scale, -most_of(form), most_of(form));
  return form.slip == CodeSlip::cut_off ? float(int(multiple)) : rounded_by(multiple, 0x1.8p23F);
}

Index bytes_of_codes(CodeForm form, Index n) { return (n * form.bits + 7) / 8; }

void write_codes(CodeForm form, const float* x, Index n, float scale, std::byte* codes) {
  if (form.bits == 4) std::fill_n(codes, bytes_of_codes(form, n), std::byte{});
  for (Index i = 0; i < n; ++i) {
    const auto code = std::byte(std::uint8_t(std::int8_t(code_of(form, x[i], scale))));
    if (form.bits == 4)
      codes[i / 2] |= i % 2 == 0 ? code & std::byte{0x0f} : code << 4;
    else
      codes[i] = code;
  }
}

// Of one block.
float read_code(CodeForm form, const std::byte* codes, Index i) {
  if (form.bits != 4) return float(std::int8_t(codes[i]));
  const bool low = (i % 2 == 0) != (form.slip == CodeSlip::halves_swapped);
  const std::byte half = low ? codes[i / 2] << 4 : codes[i / 2] & std::byte{0xf0};
  return float(std::int8_t(half) / 16);
}

void check_form(CodeForm form) {
  SEEKSIM_CHECK(
      form.block > 0 && form.block <= kBlock && kBlock % form.block == 0 && (form.bits == 8 || form.bits == 4),
      "blocks of %lld elements in codes of %d bits", static_cast<long long>(form.block), form.bits);
}

// Calls each(first, n, at) for the blocks of the runs that lie in [part.first, part.first + n): place of the first
// element and of the first byte in the vectors of the call.
template <class Each>
void for_code_blocks(CodeForm form, CodePart part, Index n, Each each) {
  check_form(form);
  const Index end = part.first + n;
  for (const WireRun& run : part.runs) {
    if (run.offset >= end || run.offset + run.n <= part.first) continue;
    const Index from = std::max<Index>(part.first - run.offset, 0), to = std::min(end - run.offset, run.n);
    SEEKSIM_CHECK(from % form.block == 0 && (to % form.block == 0 || to == run.n),
                  "[%lld, %lld) of a run is not of whole blocks", static_cast<long long>(from),
                  static_cast<long long>(to));
    for (Index at = from; at < to; at += form.block)
      each(run.offset + at - part.first, std::min(form.block, to - at),
           run.at + code_bytes(at, form.block, form.bits) - part.at);
  }
}

template <class T>
void load(const T* x, Index n, CodeSlip slip, Block& out) {
  if (sizeof(T) == sizeof(fp16) && slip == CodeSlip::as_fp16)
    widen<fp16>(Lane{}, {reinterpret_cast<const fp16*>(x), n}, {out.data(), n});
  else if constexpr (std::is_same_v<T, float>)
    std::copy_n(x, n, out.begin());
  else
    widen<T>(Lane{}, {x, n}, {out.data(), n});
}

template <class T>
void store(const Block& values, Index n, T* out) {
  if constexpr (std::is_same_v<T, float>)
    std::copy_n(values.begin(), n, out);
  else
    narrow<T>(Lane{}, {values.data(), n}, {out, n});
}

void round_block(CodeForm form, Block& values, Index n) {
  const float scale = scale_of(form, largest(values.data(), n));
  for (Index i = 0; i < n; ++i) values[std::size_t(i)] = code_of(form, values[std::size_t(i)], scale) * scale;
}

}  // namespace

template <class T>
void quantise(Lane lane, CodeForm form, CodePart part, InVec<T> x, Vec<std::byte> wire) {
  check_on_cpu(lane, kWhat);
  Block values{};
  std::uint32_t of_all = 0;
  if (form.slip == CodeSlip::one_scale)
    for_code_blocks(form, part, x.n, [&](Index first, Index n, Index) {
      load<T>(x.data + first, n, form.slip, values);
      of_all = std::max(of_all, largest(values.data(), n));
    });
  for_code_blocks(form, part, x.n, [&](Index first, Index n, Index at) {
    SEEKSIM_CHECK(at >= 0 && at + kScale + bytes_of_codes(form, n) <= wire.n, "a block goes to byte %lld of %lld",
                  static_cast<long long>(at), static_cast<long long>(wire.n));
    load<T>(x.data + first, n, form.slip, values);
    const float scale = scale_of(form, std::max(of_all, largest(values.data(), n)));
    write_float(scale, wire.data + at);
    write_codes(form, values.data(), n, scale, wire.data + at + kScale);
  });
}

template <class T>
void dequantise(Lane lane, CodeForm form, CodePart part, Vec<const std::byte> wire, OutVec<T> y) {
  check_on_cpu(lane, kWhat);
  Block values{};
  for_code_blocks(form, part, y.n, [&](Index first, Index n, Index at) {
    SEEKSIM_CHECK(at >= 0 && at + kScale + bytes_of_codes(form, n) <= wire.n, "a block comes from byte %lld of %lld",
                  static_cast<long long>(at), static_cast<long long>(wire.n));
    const float scale = read_float(wire.data + at);
    for (Index i = 0; i < n; ++i) values[std::size_t(i)] = read_code(form, wire.data + at + kScale, i) * scale;
    store<T>(values, n, y.data + first);
  });
}

template <class T>
void through_codes(Lane lane, CodeForm form, Index segment, InVec<T> x, OutVec<T> y) {
  check_on_cpu(lane, kWhat);
  check_form(form);
  SEEKSIM_CHECK_EQ(x.n, y.n);
  SEEKSIM_CHECK(segment > 0, "segments of %lld elements", static_cast<long long>(segment));
  Block values{};
  for (Index begin = 0; begin < x.n; begin += segment) {
    const Index end = std::min(begin + segment, x.n);
    for (Index at = begin; at < end; at += form.block) {
      const Index n = std::min(form.block, end - at);
      load<T>(x.data + at, n, form.slip, values);
      round_block(form, values, n);
      store<T>(values, n, y.data + at);
    }
  }
}

void through_codes(Lane lane, CodeForm form, CodePart part, Vec<float> x) {
  check_on_cpu(lane, kWhat);
  Block values{};
  for_code_blocks(form, part, x.n, [&](Index first, Index n, Index) {
    load<float>(x.data + first, n, form.slip, values);
    round_block(form, values, n);
    store<float>(values, n, x.data + first);
  });
}

void sum_codes(Lane lane, CodeForm form, CodePart part, CodeWires wires, Vec<const std::byte> bytes, Vec<float> sum,
               float factor) {
  check_on_cpu(lane, kWhat);
  float* const worth = scratch(Scratch::rows, wires.count * kBlock);
  std::vector<TreePart> leaves;
  for (Index k = 0; k < wires.count; ++k) leaves.push_back({{0, k}, worth + k * kBlock});
  Index before = -1;  // the block before, on its wire
  for_code_blocks(form, part, sum.n, [&](Index first, Index n, Index at) {
    const Index last = (wires.count - 1) * wires.stride + at;
    SEEKSIM_CHECK(at >= 0 && last + kScale + bytes_of_codes(form, n) <= bytes.n, "a block comes from byte %lld of %lld",
                  static_cast<long long>(last), static_cast<long long>(bytes.n));
    const Index scale_at = form.slip == CodeSlip::neighbours_scale && before >= 0 ? before : at;
    before = at;
    const bool late = form.slip == CodeSlip::codes_summed;
    for (Index k = 0; k < wires.count; ++k) {
      const std::byte* const wire = bytes.data + k * wires.stride;
      const float scale = late ? 1.0F : read_float(wire + scale_at);
      for (Index i = 0; i < n; ++i) worth[k * kBlock + i] = read_code(form, wire + at + kScale, i) * scale;
    }
    const float once = late ? read_float(bytes.data + at) * factor : factor;
    tree_sum(lane, leaves.data(), wires.count, wires.count, {sum.data + first, n}, once);
  });
}

#define SEEKSIM_INSTANTIATE(T)                                                         \
  template void quantise<T>(Lane, CodeForm, CodePart, Vec<const T>, Vec<std::byte>);   \
  template void dequantise<T>(Lane, CodeForm, CodePart, Vec<const std::byte>, Vec<T>); \
  template void through_codes<T>(Lane, CodeForm, Index, Vec<const T>, Vec<T>);
SEEKSIM_INSTANTIATE(float)
SEEKSIM_INSTANTIATE(bf16)
SEEKSIM_INSTANTIATE(fp16)
#undef SEEKSIM_INSTANTIATE

}  // namespace seeksim::kernels
