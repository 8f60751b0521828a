// Measurement: what a step's reduced gradients amount to, before the vote: non-finite values are counted, norm^2 is
// made by the tree (blocks inside slabs, slabs, parameters in their order), and the host reads both, with the loss.
// Where the optimizer is sharded each owner measures its shard, and all fold what all have measured.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/trainer/commit_vote.h"
#include "runtime/trainer/tensors.h"
#include "runtime/trainer/world.h"

namespace seeksim::runtime {

// What the host reads of a finished backward pass.
struct StepResult {
  float loss = 0;       // where workers train apart the mean of theirs, and
  float grad_norm = 0;  // unscaled; the largest of theirs: of those that are here before the vote, of all after it
  std::int64_t nonfinite = 0;  // elements of the gradients measured here
  bool finite = true;
};

// Where workers train apart each is measured by itself. What they come to travels with the vote on the step.
class Measurement final : public VoteRider {
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
  // After the vote: the loss and the norm of all workers, where they train apart.
  void complete(StepResult& result) const;
  float norm_of_worker(Index worker) const { return here_[std::size_t(worker)].norm; }

  void tell(Vote about, Ballot& own) override;
  void hear(Vote about, const Agreement& agreement, bool all_good) override;

 private:
  struct OfWorker {
    float loss = 0;
    float norm = 0;  // unscaled
  };
  bool apart() const { return bench_.definition().local_sgd.on(); }
  static void sum_up(const std::vector<OfWorker>& workers, StepResult& result);

  void measure_all();
  void measure_shard();
  void square_shard(Launcher& launch, Buffer& squares);
  void gather_norms();
  void bring_norms(const ShardInfo& share);
  void fold_norms();
  void fold_parameters();
  VecView<float> norms_of(Index trainable) const;        // one, or one an expert
  VecView<float> norms(Index first, Index count) const;  // of the chosen worker
  VecView<std::int64_t> nonfinite() const;               // likewise
  VecView<float> loss() const;
  float norm() const;
  float partition_norm() const;

  Workbench& bench_;
  const Tensors& tensors_;
  World& world_;
  BufferPtr norm_blocks_;  // norm^2 of blocks: of one slab, or (optimizer sharded) of all, then the loss
  BufferPtr home_norms_;   // norm^2 of the blocks of this rank's shard, then the loss, where the host measures them
  std::vector<Index> norms_begin_;  // of each trained parameter, where its norms are among those of all; where they end
  BufferPtr norms_;  // norm^2 of each parameter (of each expert, where its slabs are on several ways), then of all; one
                     // after another of each worker that is here
  BufferPtr nonfinite_;               // a count, likewise
  std::vector<OfWorker> here_, all_;  // of the step under way: those that are here; all, as the vote told
};

}  // namespace seeksim::runtime
