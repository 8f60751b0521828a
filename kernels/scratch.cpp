#include "kernels/scratch.h"

#include <array>
#include <cstdlib>
#include <new>

namespace seeksim::kernels {
namespace {

struct Block {
  float* data = nullptr;
  Index size = 0;
  ~Block() { std::free(data); }
};

}  // namespace

float* scratch(Scratch slot, Index floats) {
  thread_local std::array<Block, static_cast<std::size_t>(Scratch::count)> blocks;
  Block& block = blocks[static_cast<std::size_t>(slot)];
  if (block.size < floats) {
    std::free(block.data);
    block.size = 0;
    constexpr Index kRound = 1024;  // a multiple of the alignment, and fewer regrowths
    const Index size = (floats + floats / 4 + kRound) / kRound * kRound;
    block.data = static_cast<float*>(std::aligned_alloc(64, static_cast<std::size_t>(size) * sizeof(float)));
    if (block.data == nullptr) throw std::bad_alloc();
    block.size = size;
  }
  return block.data;
}

}  // namespace seeksim::kernels
