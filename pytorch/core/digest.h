// What a tensor was, in a few bytes: a hash that only equal bits share, whether all its numbers are finite, and a
// measure that tells how far apart two tensors are that nobody keeps.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "pytorch/core/record.h"

namespace seeksim::pytorch {

struct Digest {
  std::uint64_t hash = 0;  // never 0 for a tensor that was looked at
  bool nonfinite = false;
  Measure measure;  // 0 unless asked for
};

// Digest of the elements of some arrays, one after the other. Every NaN counts as the same one (docs/numerics.md, R9).
class Digester {
 public:
  Digester(DType type, bool measured);
  ~Digester();
  Digester(const Digester&) = delete;
  Digester& operator=(const Digester&) = delete;
  // Whole elements only.
  void add(std::span<const std::byte> elements);
  void again();         // as new
  Digest done() const;  // its hash is 0 where nothing was added, not even an empty array

 private:
  struct State;
  std::unique_ptr<State> state_;
};

Digest digest(DType type, std::span<const std::byte> elements, bool measured);

}  // namespace seeksim::pytorch
