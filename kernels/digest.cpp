#include "kernels/digest.h"

#include <xxhash.h>
#include <array>
#include <cstring>

#include "kernels/cast.h"
#include "kernels/check.h"

namespace seeksim::kernels {
namespace {

// Per type: an element's bits, its infinity, and the pattern that every NaN is read as.
template <class T>
struct Pattern {
  using Bits = std::uint16_t;
  static constexpr Bits kInfinity = std::is_same_v<T, bf16> ? 0x7f80 : 0x7c00;
  static constexpr Bits kMagnitude = 0x7fff;  // and the canonical NaN
};
template <>
struct Pattern<float> {
  using Bits = std::uint32_t;
  static constexpr Bits kInfinity = 0x7f800000U;
  static constexpr Bits kMagnitude = 0x7fffffffU;
};

}  // namespace

template <class T>
std::uint64_t block_digest(InVec<T> block) {
  using P = Pattern<T>;
  SEEKSIM_CHECK(block.n <= kBlock, "%lld elements", static_cast<long long>(block.n));
  const auto bytes = static_cast<std::size_t>(block.n) * sizeof(T);
  std::array<typename P::Bits, kBlock> bits;
  if (bytes > 0) std::memcpy(bits.data(), block.data, bytes);
  for (Index i = 0; i < block.n; ++i) {
    auto& b = bits[static_cast<std::size_t>(i)];
    b = (b & P::kMagnitude) > P::kInfinity ? P::kMagnitude : b;
  }
  return XXH3_64bits(bits.data(), bytes);
}

template <class T>
std::uint64_t digest(InVec<T> x) {
  std::uint64_t hash = combine(0, static_cast<std::uint64_t>(x.n));
  for (Index begin = 0; begin < x.n; begin += kBlock) {
    const Index left = x.n - begin;
    hash = combine(hash, block_digest<T>({x.data + begin, left < kBlock ? left : kBlock}));
  }
  return hash;
}

std::uint64_t combine(std::uint64_t seed, std::uint64_t value) {
  const std::array<std::uint64_t, 2> both = {seed, value};
  return XXH3_64bits(both.data(), sizeof both);
}

template std::uint64_t block_digest<float>(InVec<float>);
template std::uint64_t block_digest<bf16>(InVec<bf16>);
template std::uint64_t block_digest<fp16>(InVec<fp16>);
template std::uint64_t digest<float>(InVec<float>);
template std::uint64_t digest<bf16>(InVec<bf16>);
template std::uint64_t digest<fp16>(InVec<fp16>);

}  // namespace seeksim::kernels
