// Evaluation: the loss of held-out samples with the weights as they are: forward passes alone, nothing dropped, and one
// sum over ranks. The samples are cut among the ranks and their micro-batches as those of a step are, and their losses
// are added up by the same tree, so that the bits are those of one rank. Nothing is remembered: a step that is made
// anew evaluates anew.
#pragma once

#include <vector>

#include "runtime/samples/data.h"
#include "runtime/trainer/passes.h"

namespace seeksim::runtime {

class Evaluation {
 public:
  Evaluation(Workbench& bench, Tensors& tensors, World& world, Passes& passes)
      : bench_(bench), tensors_(tensors), world_(world), passes_(passes) {}

  void allocate();
  // This rank's held-out samples, in the world that was seated.
  void schedule();
  // Before a step. Where it is due: waits for the sum of all ranks, and tells the observer.
  void before_step();
  // After the last step, with room for activations. The same.
  void after_the_last();

 private:
  bool on() const { return bench_.definition().evaluation.on(); }
  Index samples() const { return bench_.definition().evaluation.samples; }
  TreeOwnership ownership() const;
  void run();
  void go_forward();
  void forward(int micro_batch, std::size_t piece);
  void fetch(Model& model, const SampleRange& samples, int micro_batch);
  void begin_group(int micro_batch);
  void gather_in_group();
  float sum_up();

  Workbench& bench_;
  Tensors& tensors_;
  World& world_;
  Passes& passes_;
  DataSource data_;
  SampleRange of_member_;                           // of this rank, or of its expert group
  std::vector<SampleRange> of_rank_;                // each rank's of the group; without one, this rank's
  std::vector<std::vector<SampleRange>> of_group_;  // their micro-batches, as many of each
  BufferPtr losses_;                                // of the member's samples; then of its subtree roots; then the sum
};

}  // namespace seeksim::runtime
