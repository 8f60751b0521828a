#include "kernels/digest.h"

#include <xxhash.h>
#include <array>
#include <cstring>

#include "kernels/check.h"

namespace seeksim::kernels {
namespace {

constexpr std::uint32_t kCanonicalNan = 0x7fffffffU;

bool is_nan(std::uint32_t bits) { return (bits & 0x7fffffffU) > 0x7f800000U; }

}  // namespace

std::uint64_t block_digest(Vec<const float> block) {
  SEEKSIM_CHECK(block.n <= kBlock, "%lld elements", static_cast<long long>(block.n));
  const auto bytes = static_cast<std::size_t>(block.n) * sizeof(float);
  std::array<std::uint32_t, kBlock> bits;
  if (bytes > 0) std::memcpy(bits.data(), block.data, bytes);
  for (Index i = 0; i < block.n; ++i) {
    std::uint32_t& b = bits[static_cast<std::size_t>(i)];
    b = is_nan(b) ? kCanonicalNan : b;
  }
  return XXH3_64bits(bits.data(), bytes);
}

std::uint64_t digest(Vec<const float> x) {
  std::uint64_t hash = combine(0, static_cast<std::uint64_t>(x.n));
  for (Index begin = 0; begin < x.n; begin += kBlock) {
    const Index left = x.n - begin;
    hash = combine(hash, block_digest({x.data + begin, left < kBlock ? left : kBlock}));
  }
  return hash;
}

std::uint64_t combine(std::uint64_t seed, std::uint64_t value) {
  const std::array<std::uint64_t, 2> both = {seed, value};
  return XXH3_64bits(both.data(), sizeof both);
}

}  // namespace seeksim::kernels
