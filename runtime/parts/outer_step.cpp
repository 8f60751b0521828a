// Only sums and products that other pages use too, so there is nothing here that a GPU could not do.
#include "runtime/parts/outer_step.h"

#include <algorithm>

#include "kernels/pointwise.h"
#include "kernels/tree.h"
#include "runtime/launch/typed_ops.h"
#include "runtime/parts/residuals.h"
#include "runtime/rules/bugs.h"

namespace seeksim::runtime {

using kernels::Lane;
using kernels::Vec;

namespace {

// x *= factor.
void multiply(Launcher& launch, const char* tensor, VecView<float> x, float factor) {
  launch(
      tensor, SEEKSIM_SITE, memory_cost(2 * x.n),
      [factor](Lane lane, Vec<float> y) { kernels::scale(lane, y, factor); }, x);
}

// to = x + to.
void add_to(Launcher& launch, const char* tensor, VecView<const float> x, VecView<float> to) {
  launch(
      tensor, SEEKSIM_SITE, memory_cost(3 * to.n, 1.0 / 3),
      [](Lane lane, Vec<const float> from, Vec<float> y) { kernels::tree_add(lane, from, y, y); }, x, to);
}

}  // namespace

SampleRange workers_of(const LocalSgdPlan& plan, int members, int position) {
  return samples_of(plan.workers, members, position);
}

std::string lost_worker(const LocalSgdPlan& plan, const std::vector<int>& before, const std::vector<int>& members) {
  return part_lost(plan.workers, before, members, "the weights and moments of worker");
}

OuterStep::OuterStep(Rank& rank, const TrainPlan& plan, Index elements)
    : rank_(rank), plan_(plan), elements_(elements), tree_(rank.device, elements) {
  const auto make = [&](MemoryTag tag, const char* name) {
    return rank.device.allocate(std::size_t(std::max<Index>(elements, 1)) * sizeof(float), tag, name);
  };
  weights_ = make(MemoryTag::optimizer, "outer weights");
  if (outer().keeps_momentum()) momentum_ = make(MemoryTag::optimizer, "outer momentum");
  mean_ = make(MemoryTag::communication, "outer gradient");
  if (!sums_weights()) move_ = make(MemoryTag::scratch, "outer step");
}

void OuterStep::begin(Launcher& launch, VecView<const float> weights) {
  copy_values(launch, "outer weights", SEEKSIM_SITE, AnyVec(weights), AnyVec(this->weights()));
  if (momentum_) clear_values(launch, "outer momentum", SEEKSIM_SITE, AnyVec(momentum()));
}

bool OuterStep::is_due(std::int64_t steps) const {
  const LocalSgdPlan& plan = plan_.definition.local_sgd;
  if (plan_.bug.is(Bug::workers_meet_each_step)) return steps > 0;
  return plan.meets_after(steps) && plan.meetings(steps) > made_;
}

void OuterStep::begin_sum() { tree_.begin(plan_.definition.local_sgd.workers); }

// Of weights themselves their mean is wanted, so that one worker's come back bit for bit; else of how far each worker
// went, which is what SGD calls a gradient.
void OuterStep::add(Launcher& launch, Index worker, VecView<const float> weights) {
  const kernels::TreeNode node{0, worker};
  const VecView<float> own = tree_.open(node);
  const bool left_out =
      plan_.bug.is(Bug::worker_left_out) && worker + 1 == plan_.definition.local_sgd.workers && worker > 0;
  const VecView<const float> from = left_out ? reads(this->weights()) : weights;
  copy_values(launch, "outer gradient", SEEKSIM_SITE, AnyVec(from), AnyVec(own));
  if (!sums_weights()) {
    multiply(launch, "outer gradient", own, -1.0f);
    add_to(launch, "outer gradient", reads(this->weights()), own);
  }
  tree_.close(launch, node);
}

Op OuterStep::sum(Communicator& comm, Op op) {
  const Index workers = plan_.definition.local_sgd.workers;
  float factor = static_cast<float>(1.0 / double(workers));
  if (plan_.bug.is(Bug::outer_gradient_divided_twice) && !sums_weights()) factor /= float(workers);
  return comm.all_reduce(rank_.device.communication_queue(), op, {workers, comm.size(), 1}, tree_.parts(), factor,
                         {mean_.get(), 0, elements_});
}

void OuterStep::apply(Launcher& launch) {
  const VecView<float> mean{mean_.get(), 0, elements_};
  if (sums_weights()) return copy_values(launch, "outer weights", SEEKSIM_SITE, AnyVec(mean), AnyVec(weights()));
  const float momentum_factor = static_cast<float>(outer().momentum), rate = static_cast<float>(outer().lr);
  const VecView<float> move{move_.get(), 0, elements_};
  if (momentum_) {
    multiply(launch, "outer momentum", momentum(), momentum_factor);
    add_to(launch, "outer momentum", reads(mean), momentum());
  }
  copy_values(launch, "outer step", SEEKSIM_SITE, AnyVec(momentum_ ? momentum() : mean), AnyVec(move));
  if (momentum_ && outer().type == OuterRule::nesterov) {
    multiply(launch, "outer step", move, momentum_factor);
    add_to(launch, "outer step", reads(mean), move);
  }
  multiply(launch, "outer step", move, plan_.bug.is(Bug::outer_gradient_reversed) ? rate : -rate);
  add_to(launch, "outer weights", reads(move), weights());
}

}  // namespace seeksim::runtime
