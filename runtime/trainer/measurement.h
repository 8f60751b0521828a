// Measurement: what a step's reduced gradients amount to, before the vote: non-finite values are counted, norm^2 is
// made by the tree (blocks inside slabs, slabs, parameters in their order), and the host reads both, with the loss.
// Where the optimizer is sharded each owner measures its shard, and all fold what all have measured.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/trainer/tensors.h"
#include "runtime/trainer/world.h"

namespace seeksim::runtime {

// What the host reads of a finished backward pass.
struct StepResult {
  float loss = 0;
  float grad_norm = 0;         // unscaled
  std::int64_t nonfinite = 0;  // elements of the gradients measured here
  bool finite = true;
};

class Measurement {
 public:
  Measurement(Workbench& bench, const Tensors& tensors, World& world)
      : bench_(bench), tensors_(tensors), world_(world) {}

  void allocate();
  // Where the reduction shall put the loss on its owner, where the optimizer is sharded.
  VecView<float> loss_of_owner() const;
  // Enqueues all of it; where the optimizer is sharded, waits for the others' norms.
  void measure();
  // Waits, and reads.
  StepResult read();

 private:
  void measure_all();
  void measure_shard();
  void square_shard(Launcher& launch, Buffer& squares);
  void gather_norms();
  void bring_norms(const ShardInfo& share);
  void fold_norms();
  void fold_parameters();
  VecView<float> norm_of(Index trainable) const;
  VecView<float> loss() const;
  float norm() const;
  float partition_norm() const;

  Workbench& bench_;
  const Tensors& tensors_;
  World& world_;
  BufferPtr norm_blocks_;  // norm^2 of blocks: of one slab, or (optimizer sharded) of all, then the loss
  BufferPtr home_norms_;   // norm^2 of the blocks of this rank's shard, then the loss, where the host measures them
  BufferPtr norms_;        // norm^2 of each parameter, then of all
  BufferPtr nonfinite_;    // a count
};

}  // namespace seeksim::runtime
