// Gradients that are not those of the model: tags, by which it can be proven that each sample enters each sum exactly
// once, and the mistakes of planted bugs. A sink around the real one, used only where there is something to edit.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "runtime/layout/shard.h"
#include "runtime/model/model.h"

namespace seeksim::runtime {

// What a sample's gradient of one element is in a tagged run: a small integer from a hash, so that sums are exact in
// fp32 and a sample that is missing or counted twice shows which one it is. element: of the gradient space.
constexpr Index kTagMax = 128;
inline Index gradient_tag(std::int64_t step, Index sample, Index element) {
  std::uint64_t x = std::uint64_t(step) * 0x9e3779b97f4a7c15ull + std::uint64_t(sample) * 0xc2b2ae3d27d4eb4full +
                    std::uint64_t(element) * 0x165667b19e3779f9ull;
  x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9ull;
  return 1 + Index(x >> 57);
}

struct GradientEdit {
  bool tagged = false;
  std::int64_t step = 0;
  Index loss_offset = -1;  // of the loss, which travels with gradients and which none of these mistakes touched
  float first_block_times = 1;
  float times = 1;
  // Of experts that are divided among ranks: of all samples, and of those of the group's other ranks.
  float experts_times = 1;
  float others_times = 1;
  explicit operator bool() const {
    return tagged || first_block_times != 1 || times != 1 || experts_times != 1 || others_times != 1;
  }
};

// A block whose gradients are edited: samples of the step.
struct EditedBlock {
  Index begin = 0;
  Index end = 0;
  float times = 1;
};

class EditedSink final : public GradientSink {
 public:
  using Blocks = std::function<std::vector<EditedBlock>(Index)>;
  // place: where an element of this rank's gradients is in those of the whole model. blocks: of an element, in order.
  EditedSink(GradientSink& inner, Launcher& compute, Blocks blocks, const GradientEdit& edit,
             std::function<Index(Index)> place)
      : inner_(inner), compute_(compute), blocks_(std::move(blocks)), edit_(edit), place_(std::move(place)) {}
  VecView<float> open(Index block, Index offset, Index size) override { return inner_.open(block, offset, size); }
  void close(Index offset, Index size) override;

 private:
  void edit(const EditedBlock& block, Index place, Index loss, VecView<float> range);

  GradientSink& inner_;
  Launcher& compute_;
  Blocks blocks_;
  GradientEdit edit_;
  std::function<Index(Index)> place_;
};

}  // namespace seeksim::runtime
