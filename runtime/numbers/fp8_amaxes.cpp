#include "runtime/numbers/fp8_amaxes.h"

#include <algorithm>

#include "kernels/slabs.h"
#include "runtime/comm/edge.h"
#include "runtime/launch/typed_ops.h"
#include "runtime/rules/bugs.h"
#include "runtime/seams/edges.h"

namespace seeksim::runtime {

using kernels::Lane;
using kernels::Mat;
using kernels::Vec;

Fp8Amaxes::Fp8Amaxes(Rank& rank, const TrainPlan& plan)
    : rank_(rank),
      plan_(plan),
      count_(fp8_tensors(plan.definition.model.layers)),
      own_(rank.device.allocate(std::size_t(count_) * sizeof(float), MemoryTag::scratch, "amaxes")) {}

void Fp8Amaxes::begin_step(Launcher& compute) {
  clear_values(compute, "amaxes", SEEKSIM_SITE, AnyVec(vec<float>(*own_, 0, count_)));
}

void Fp8Amaxes::agree(Launcher& compute, std::span<Communicator* const> over) {
  Queue& queue = rank_.device.communication_queue();
  after(queue, compute.queue().record(), Edge::amaxes_recorded, plan_.bug);
  Op op = compute.last();
  op.kind = OpKind::compute;
  op.phase = Phase::grad_reduce;
  Launcher launch(queue, op);
  last_ = nullptr;
  int members = 0;
  for (const Communicator* const comm : over) members = std::max(members, comm->size());
  const std::size_t bytes = std::size_t(members * count_) * sizeof(float);
  if (!all_ || all_->bytes < bytes) all_ = rank_.device.allocate(bytes, MemoryTag::scratch, "amaxes of all ranks");
  for (Communicator* const comm : over) {
    if (comm->size() > 1 || last_ == nullptr) gather(launch, *comm);
  }
  agreed_ = queue.record();
}

std::vector<float> Fp8Amaxes::read(bool has_values) {
  last_->wait(agreed_, op_);
  const VecView<const float> own = vec<const float>(*own_, 0, count_);
  rank_.device.host_touches(op_, own.range());
  if (!has_values) return {};
  const kernels::OnHost<float> values = on_host(own);
  std::vector<float> amaxes;
  for (Index i = 0; i < count_; ++i) amaxes.push_back(values[i]);
  return amaxes;
}

// A member's values are a row; the largest of each column are its own from there on.
void Fp8Amaxes::gather(Launcher& launch, Communicator& comm) {
  const Index members = comm.size();
  const VecView<float> own = vec<float>(*own_, 0, count_);
  copy_values(launch, "amaxes", SEEKSIM_SITE, own, vec<float>(*all_, comm.position() * count_, count_));
  std::vector<ShardInfo> shards;
  for (Index member = 0; member < members; ++member) shards.push_back({member * count_, count_});
  Op op;
  op.kind = OpKind::all_gather;
  op.phase = Phase::grad_reduce;
  op.step = launch.last().step;
  op.tensor = "amaxes";
  op.site = SEEKSIM_SITE;
  op_ = comm.all_gather(launch.queue(), op, vec<float>(*all_, 0, members * count_), shards);
  last_ = &comm;
  if (plan_.bug.is(Bug::fp8_amax_of_own_rank)) return;
  launch(
      "amaxes", SEEKSIM_SITE, memory_cost((members + 1) * count_),
      [](Lane lane, Mat<const float> rows, Vec<float> most) { kernels::max_over_ways(lane, rows, most); },
      mat<const float>(*all_, 0, members, count_), own);
}

}  // namespace seeksim::runtime
