// CodeWire: where the blocks of quantised weights or gradients travel. Blocks begin again with each slab of each
// parameter, as those of the norm do, and shards end between them: so no shard has a part of one.
#pragma once

#include <vector>

#include "kernels/compression.h"
#include "runtime/comm/gradient_tree.h"
#include "runtime/launch/any_vec.h"
#include "runtime/launch/launcher.h"
#include "runtime/layout/parameters.h"
#include "runtime/layout/quantised_groups.h"

namespace seeksim::runtime {

// Contiguous elements of the flat space, whole parameters, that are gathered together, and where they lie in the memory
// that they are gathered into.
struct Stretch {
  Index offset = 0;
  Index size = 0;
  Index at = 0;
};

kernels::CodeForm weights_form(const TrainPlan& plan);
// Bytes of a parameter on the wire.
Index code_bytes(const ParameterInfo& parameter, Index block, int bits = 8);

class CodeWire {
 public:
  CodeWire() = default;
  CodeWire(const Parameters& parameters, kernels::CodeForm form, std::vector<Stretch> stretches);

  // Where elements are in that memory, and where on the wire.
  const std::vector<kernels::WireRun>& runs() const { return runs_; }
  Index bytes() const { return bytes_; }
  // The byte of the block that begins with the element at a place of that memory; behind the last one: of what follows.
  Index at(Index place) const;
  Index bytes_of(Index place, Index n) const { return n == 0 ? 0 : at(place + n) - at(place); }
  Index last_block() const;  // the byte where it begins, with its scale
  const kernels::CodeForm& form() const { return form_; }

 private:
  kernels::CodeForm form_;
  std::vector<kernels::WireRun> runs_;
  Index bytes_ = 0;
};

// What gradients are rounded to, and where the blocks of the gradient space lie on a wire: those of groups, and those
// of sums of groups. The loss is in none of them. The blocks of a tied embedding's other use are those of the first.
struct GradientCodes {
  GradientCodes(const Parameters& parameters, const TrainPlan& plan);
  QuantisedGroups groups;
  CodeWire of_group, of_sum;
  // Of nodes that begin with element `first` of the gradient space, and have samples of all levels.
  std::vector<NodeRounding> rounding(Index first) const;
};

// How a gather travels: in 8 bits, through memory for its wire; or, without a wire, as the parameters are.
struct CodeWay {
  const CodeWire* wire = nullptr;
  Buffer* bytes = nullptr;
  kernels::CodeForm form;

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
