#include "runtime/comm/expert_group.h"

#include <algorithm>
#include <utility>

#include "kernels/check.h"
#include "kernels/host_access.h"
#include "runtime/rules/bugs.h"
#include "runtime/seams/edges.h"

namespace seeksim::runtime {

using kernels::Lane;
using kernels::Vec;

ExpertShape expert_shape(const TrainPlan& plan, Index samples_max) {
  const ModelPlan& model = plan.definition.model;
  const bool by_sample = !plan.bug.is(Bug::experts_count_micro_batch);
  return {samples_max, model.context, model.experts.per_token, model.experts.count,
          by_sample ? model.experts.capacity(model.context * model.experts.samples) : 0};
}

// A token names an expert once, so a rank gets at most one row of it for each of its experts; and of all tokens at most
// what its experts take.
ExpertGroup::ExpertGroup(const ExpertShape& shape, int ranks, int me, const PlantedBug& bug)
    : shape_(shape), ranks_(ranks), me_(me), bug_(bug) {
  SEEKSIM_CHECK(shape.experts % ranks == 0, "%lld experts, %d ranks", static_cast<long long>(shape.experts), ranks);
  places_ = shape.tokens * std::min<Index>(shape.choices, own_experts());
  if (shape.capacity > 0) places_ = std::min(places_, shape.capacity * own_experts());
  samples_.resize(std::size_t(ranks));
}

void ExpertGroup::connect(Rank& rank, std::uint32_t epoch, const std::vector<int>& members, TimeNs timeout_ns,
                          int group, int of_gradients) {
  comm_.emplace(rank, Axis::expert, epoch, members, timeout_ns, group);
  if (of_gradients >= 0) gradients_.emplace(rank, Axis::expert, epoch, members, timeout_ns, of_gradients);
  SEEKSIM_CHECK_EQ(comm_->size(), ranks_);
  SEEKSIM_CHECK_EQ(comm_->position(), me_);
  queue_ = &rank.device.message_queue(MessageQueue::expert);
}

void ExpertGroup::disconnect() {
  gradients_.reset();
  comm_.reset();
}

void ExpertGroup::begin(std::span<const SampleRange> samples, std::span<const std::vector<SampleRange>> blocks) {
  SEEKSIM_CHECK_EQ(int(samples.size()), ranks_);
  samples_.assign(samples.begin(), samples.end());
  blocks_.clear();
  blocks_of_step_.clear();
  Index before = 0;
  for (std::size_t rank = 0; rank < samples.size(); ++rank) {
    for (const SampleRange& block : blocks[rank]) {
      const Index first = before + block.begin - samples[rank].begin;
      blocks_.push_back({first, first + block.size()});
      blocks_of_step_.push_back(block);
    }
    before += samples[rank].size();
  }
}

Index ExpertGroup::arrived_samples() const {
  Index all = 0;
  for (const SampleRange& samples : samples_) all += samples.size();
  return all;
}

AnyVec ExpertGroup::block(AnyVec packed, int rank) const {
  const Index each = packed.n / ranks_;
  return packed.part(rank * each, each);
}

AnyVec ExpertGroup::stretch(AnyVec arrived, int rank) const {
  const Index samples = arrived_samples(), each = samples > 0 ? arrived.n / samples : 0;
  Index first = 0;
  for (int before = 0; before < rank; ++before) first += samples_[std::size_t(before)].size();
  return arrived.part(first * each, samples_[std::size_t(rank)].size() * each);
}

void ExpertGroup::add(int rank, bool send, AnyVec values) {
  if (values.n == 0) return;
  const Range r = values.range(!send);
  pieces_.push_back({comm_->members()[std::size_t(rank)], send, r.buffer, r.lo, r.hi, nullptr, r.type});
}

void ExpertGroup::copy_own(Launcher& launch, const char* tensor, AnyVec from, AnyVec to) {
  if (from.n == 0) return;
  if (from.type != ElementType::i32) return copy_values(launch, tensor, SEEKSIM_SITE, from, to);
  launch(
      tensor, SEEKSIM_SITE, memory_cost(2 * from.n, 0),
      [](Lane lane, Vec<const std::int32_t> x, Vec<std::int32_t> y) {
        kernels::copy_bytes(lane, x.data, y.data, std::size_t(x.n) * sizeof(std::int32_t));
      },
      from.as<const std::int32_t>(), to.as<std::int32_t>());
}

// What the pieces say, after what is enqueued on the compute queue; what is enqueued there from now on comes after it.
// A rank without samples in this micro-batch takes part for those of the others.
void ExpertGroup::exchange(Launcher& launch, const char* tensor, const char* site) {
  SEEKSIM_CHECK(comm_.has_value(), "rank %d of an expert group of %d is not connected", me_, ranks_);
  Op op = launch.last();
  op.kind = OpKind::all_to_all;
  op.tensor = tensor;
  op.site = site;
  after(*queue_, launch.queue().record(), Edge::expert_rows_packed, bug_);
  comm_->exchange(*queue_, op, pieces_);
  pieces_.clear();
  after(launch.queue(), queue_->record(), Edge::expert_rows_arrived, bug_);
}

void ExpertGroup::dispatch(Launcher& launch, const char* tensor, const char* site, std::span<const Rows> all) {
  if (arrived_samples() == 0) return;  // no rank of the group has any
  for (const Rows& rows : all) {
    copy_own(launch, tensor, block(rows.packed, me_), stretch(rows.arrived, me_));
    for (int rank = 0; rank < ranks_; ++rank) {
      if (rank == me_) continue;
      add(rank, true, block(rows.packed, rank));
      add(rank, false, stretch(rows.arrived, rank));
    }
  }
  exchange(launch, tensor, site);
}

void ExpertGroup::give_back(Launcher& launch, const char* tensor, const char* site, std::span<const Rows> all) {
  if (arrived_samples() == 0) return;
  const int off = bug_.is(Bug::combined_in_anothers_order) ? 1 : 0;
  const auto place_of = [&](int rank) { return (rank + off) % ranks_; };
  for (const Rows& rows : all) {
    copy_own(launch, tensor, stretch(rows.arrived, me_), block(rows.packed, place_of(me_)));
    for (int rank = 0; rank < ranks_; ++rank) {
      if (rank == me_) continue;
      add(rank, true, stretch(rows.arrived, rank));
      add(rank, false, block(rows.packed, place_of(rank)));
    }
  }
  exchange(launch, tensor, site);
}

}  // namespace seeksim::runtime
