// LateGradients: what this rank's workers have made and no step has applied yet, where gradients come late
// (StalenessPlan). A worker has a place for each of its last bound + 1 gradients, and a gradient stays in its place
// until another one needs it. State of the training as weights are: checkpoints hold it, and where a worker is cannot
// change without it. A step that is not applied moves no clock, so the next one fills the same places.
#pragma once

#include <string>
#include <vector>

#include "runtime/launch/launcher.h"
#include "runtime/layout/shard.h"
#include "runtime/plan/plan.h"
#include "runtime/seams/seams.h"

namespace seeksim::runtime {

class LateGradients {
 public:
  // elements: of a gradient, with the head's share of a tied embedding.
  LateGradients(Device& device, const TrainPlan& plan, Index elements)
      : device_(device), plan_(plan), elements_(elements) {}

  // Workers [begin, end) of a member of the data axis.
  static SampleRange workers_of(const StalenessPlan& plan, int members, int position) {
    return samples_of(plan.workers, members, position);
  }

  // For these members of the data axis, of whom this is the one at `position`: memory, and zeroes in it (launched).
  // Does nothing where it is laid out for them already.
  void lay_out(Launcher& launch, const std::vector<int>& members, int position);
  // Why these members cannot go on with it; empty: it is where they need it, or there is none yet.
  std::string lost(const std::vector<int>& members) const;

  const SampleRange& workers() const { return workers_; }  // that are here
  Index places() const;                                    // of a worker
  VecView<float> place(Index worker, Index place) const;   // worker: among those that are here
  // A checkpoint was read: the places hold what they did when so many steps had been applied.
  void continue_at(Launcher& launch, std::int64_t clock);

  // fresh: the gradient of each worker that is here, elements of them. Puts each into its place, times `unscale`, and
  // leaves in its stead the sum of those that come now, times `scale`. Not finite where the fresh one is not.
  void exchange(Launcher& launch, std::int64_t clock, float unscale, float scale,
                const std::vector<VecView<float>>& fresh);
  // After exchange(), waited for: of a worker, the clocks of the gradients that came, as they stood in their places.
  VecView<const std::int64_t> came(Index worker) const;

 private:
  Index place_of(std::int64_t clock) const;
  std::vector<std::int64_t> arrivals_of(Index worker, std::int64_t clock) const;
  VecView<std::int64_t> stamps(Index worker) const;
  void stamp(Launcher& launch, Index worker, std::int64_t clock, const std::vector<std::int64_t>& come);
  void give(Launcher& launch, Index worker, const std::vector<std::int64_t>& come, float scale, VecView<float> to);

  Device& device_;
  const TrainPlan& plan_;
  Index elements_;
  std::vector<int> members_;
  SampleRange workers_;
  BufferPtr gradients_;
  BufferPtr stamps_;  // of each place the clock of what is in it, and of each worker those that came
  std::vector<Index> came_;
};

}  // namespace seeksim::runtime
