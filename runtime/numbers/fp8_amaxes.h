// Fp8Amaxes: the largest magnitude of each tensor that is cast to 8 bits, in the step that is under way. A rank records
// what it casts; before the vote all ranks of all stages and ways come to the same largest ones. A maximum is exact and
// has no order, so neither ranks nor micro-batches decide a bit of it.
#pragma once

#include <span>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/launch/launcher.h"
#include "runtime/plan/plan.h"
#include "runtime/rules/fp8_scaling.h"

namespace seeksim::runtime {

// What the casts of a pass need to know.
struct Fp8Pass {
  const Fp8Plan* plan = nullptr;      // null: nothing is cast
  const Fp8Scales* scales = nullptr;  // of this step
  Buffer* amaxes = nullptr;           // where magnitudes are recorded; null: they are not
  float times = 1;                    // a bug's: scales are multiplied by it
};

class Fp8Amaxes {
 public:
  Fp8Amaxes(Rank& rank, const TrainPlan& plan);

  Buffer* recorded() const { return own_.get(); }  // (tensors), on the device
  // Nothing is recorded yet. Enqueued.
  void begin_step(Launcher& compute);
  // Enqueues, after what compute has recorded: the largest of all members of each communicator, one after the other.
  void agree(Launcher& compute, std::span<Communicator* const> over);
  // Waits for what agree() enqueued, and returns it: of each tensor; empty in a run of shapes.
  std::vector<float> read(bool has_values);

 private:
  void gather(Launcher& launch, Communicator& comm);

  Rank& rank_;
  const TrainPlan& plan_;
  Index count_;
  BufferPtr own_;
  BufferPtr all_;                 // (members, tensors)
  Communicator* last_ = nullptr;  // the last one that was asked, and what it was asked
  Op op_;
  Event agreed_;
};

}  // namespace seeksim::runtime
