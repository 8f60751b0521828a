#include "kernels/digest.h"

#include <xxhash.h>
#include <array>

#include "kernels/check.h"
#include "kernels/isa/table.h"

namespace seeksim::kernels {

template <class T>
std::uint64_t block_digest(InVec<T> block) {
  SEEKSIM_CHECK(block.n <= kBlock, "%lld elements", static_cast<long long>(block.n));
  return elements_in<T>().block_digest(block.data, block.n);
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
