// Int8Wire: where the blocks of a gather of quantised weights travel. Blocks begin again with each slab of each
// parameter, as those of the norm do, and shards end between them: so no shard has a part of one.
#pragma once

#include <vector>

#include "kernels/compression.h"
#include "runtime/launch/any_vec.h"
#include "runtime/launch/launcher.h"
#include "runtime/layout/parameters.h"

namespace seeksim::runtime {

// Contiguous elements of the flat space, whole parameters, that are gathered together, and where they lie in the memory
// that they are gathered into.
struct Stretch {
  Index offset = 0;
  Index size = 0;
  Index at = 0;
};

kernels::Int8Form int8_form(const TrainPlan& plan);
// Bytes of a parameter on the wire.
Index int8_bytes(const ParameterInfo& parameter, Index block);

class Int8Wire {
 public:
  Int8Wire() = default;
  Int8Wire(const Parameters& parameters, Index block, std::vector<Stretch> stretches);

  // Where elements are in that memory, and where on the wire.
  const std::vector<kernels::WireRun>& runs() const { return runs_; }
  Index bytes() const { return bytes_; }
  // The byte of the block that begins with the element at a place of that memory; behind the last one: of what follows.
  Index at(Index place) const;
  Index bytes_of(Index place, Index n) const { return n == 0 ? 0 : at(place + n) - at(place); }
  Index last_block() const;  // the byte where it begins, with its scale

 private:
  Index block_ = kernels::kBlock;
  std::vector<kernels::WireRun> runs_;
  Index bytes_ = 0;
};

// How a gather travels: in 8 bits, through memory for its wire; or, without a wire, as the parameters are.
struct Int8Way {
  const Int8Wire* wire = nullptr;
  Buffer* bytes = nullptr;
  kernels::Int8Form form;

  bool on() const { return wire != nullptr; }
  // On the wire, n elements that are gathered to `place`; both ends are bounds of blocks.
  VecView<std::byte> bytes_of(Index place, Index n) const;
  // This rank's own elements, which belong to `place`, onto the wire. Enqueued.
  void quantise(Launcher& launch, const char* tensor, AnyVec own, Index place) const;
  // What the wire is worth, own elements too: every rank computes with the same. Enqueued.
  void dequantise(Launcher& launch, const char* tensor, Buffer& into, ElementType type) const;
  // Codes and scales as they are. Enqueued.
  static void copy(Launcher& launch, const char* tensor, VecView<const std::byte> from, VecView<std::byte> to);
  // A planted bug: the last block's scale becomes 0. Enqueued.
  void lose_last_scale(Launcher& launch, const char* tensor) const;
};

}  // namespace seeksim::runtime
