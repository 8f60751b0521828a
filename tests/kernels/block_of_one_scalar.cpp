#include "tests/kernels/block_of_one.h"

#include "kernels/cuda/prelude.h"

namespace seeksim::kernels {
namespace {

#include "kernels/cuda/block.inl"

}  // namespace

std::vector<int> test::shifted_by_one(bool barrier, bool backwards) {
  constexpr int kThreads = 32;
  std::vector<unsigned char> memory(HostBlock<kThreads>::kSharedBytes);
  HostBlock<kThreads> block{0, 0, 1, 1, backwards, memory.data()};
  int* const shared = block.shared<int, kThreads>();
  std::vector<int> seen(kThreads);
  const auto write = [&](int t) { shared[t] = 100 + t; };
  const auto read = [&](int t) { seen[static_cast<std::size_t>(t)] = shared[(t + 1) % kThreads]; };
  if (barrier) {
    block.threads(write);
    block.threads(read);
  } else {
    block.threads([&](int t) {
      write(t);
      read(t);
    });
  }
  return seen;
}

}  // namespace seeksim::kernels
