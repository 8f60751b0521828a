// OuterStep: what makes one set of weights of those that workers have trained apart (LocalSgdPlan). Every rank holds
// the weights of the last outer step and its momentum, the same bits everywhere. The sum over workers goes by the tree
// over their numbers, so any number of ranks has the bits of one that serves all workers in turn. All arithmetic is
// fp32, and each product and each sum is rounded by itself.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/gradient_tree.h"
#include "runtime/launch/launcher.h"
#include "runtime/layout/shard.h"
#include "runtime/plan/plan.h"

namespace seeksim::runtime {

// Workers [begin, end) of the member at `position` of so many on the data axis.
SampleRange workers_of(const LocalSgdPlan& plan, int members, int position);
// Why members of the data axis cannot go on with what those `before` hold: weights and moments of a worker are on one
// rank. Empty: each worker's are where they are needed.
std::string lost_worker(const LocalSgdPlan& plan, const std::vector<int>& before, const std::vector<int>& members);

class OuterStep {
 public:
  // elements: of what is trained. Allocates.
  OuterStep(Rank& rank, const TrainPlan& plan, Index elements);

  // The weights that all workers begin with, and no momentum.
  void begin(Launcher& launch, VecView<const float> weights);
  // Whether one has to be made now that so many steps are committed.
  bool is_due(std::int64_t steps) const;
  // All of so many steps are made.
  void made(std::int64_t steps) { made_ = plan_.definition.local_sgd.meetings(steps); }
  void make_again() { made_ = made_ > 0 ? made_ - 1 : 0; }  // a planted bug

  // In this order, all members alike. Takes in the weights of each worker that is here, in order; sums over all
  // workers, enqueued on the communication queue (returns the Op to wait for); makes new weights of the sum.
  void begin_sum();
  void add(Launcher& launch, Index worker, VecView<const float> weights);
  Op sum(Communicator& comm, Op op);
  void apply(Launcher& launch);

  VecView<float> weights() const { return {weights_.get(), 0, elements_}; }
  // Without a buffer where the plan has none.
  VecView<float> momentum() const { return {momentum_.get(), 0, momentum_ ? elements_ : 0}; }

 private:
  const OuterPlan& outer() const { return plan_.definition.local_sgd.outer; }
  bool sums_weights() const { return outer().type == OuterRule::average; }

  Rank& rank_;
  const TrainPlan& plan_;
  Index elements_;
  std::int64_t made_ = 0;
  BufferPtr weights_, momentum_;
  BufferPtr mean_;  // over workers: of their weights, or of how far they went
  BufferPtr move_;  // what the weights move by
  GradientTree tree_;
};

}  // namespace seeksim::runtime
