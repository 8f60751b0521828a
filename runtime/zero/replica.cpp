#include "runtime/zero/replica.h"

#include <algorithm>
#include <cmath>

#include "kernels/check.h"
#include "kernels/tree.h"
#include "runtime/launch/typed_ops.h"
#include "runtime/layout/shard_groups.h"
#include "runtime/rules/bugs.h"
#include "runtime/seams/edges.h"

namespace seeksim::runtime {

using kernels::Lane;
using kernels::Vec;

Replica::Replica(Rank& rank, const TrainPlan& plan, const Parameters& own) : rank_(rank), plan_(plan), own_(own) {
  const Definition& d = plan.definition;
  const ParallelPlan& parallel = plan.layout.parallel;
  Index at = 0;
  for (int stage = 0; stage < parallel.pipeline; ++stage) {
    stages_.push_back(
        std::make_unique<const Parameters>(d.model, d.optimizer, model_part(d.model, parallel, stage, own.part().way)));
    for (int way = 0; way < parallel.ways(); ++way) {
      Part part;
      part.at = at;
      part.norms.push_back(0);
      for (const ParameterInfo* p : of_stage(stage).trainable()) {
        part.trainable.push_back(p->number);
        part.norms.push_back(part.norms.back() + own.part().norm_parts(*p));
      }
      at += part.norms.back() + 1;
      parts_.push_back(std::move(part));
    }
  }
  norms_ = rank.device.allocate(std::size_t(at) * sizeof(float), MemoryTag::scratch, "norms of a replica");
}

void Replica::connect(const Grid& grid, const GridPlace& place, std::uint32_t epoch) {
  disconnect();
  place_ = place;
  replicas_ = grid.replicas();
  const TimeNs watchdog = plan_.recovery.watchdog_ns;
  comm_.emplace(rank_, Axis::replica, epoch, grid.replica(place.data), watchdog, place.data);
  if (!shares()) return;
  const int last = plan_.layout.parallel.pipeline - 1;
  std::vector<int> members = grid.data_axis(0, place.way);
  const std::vector<int> others = grid.data_axis(last, place.way);
  members.insert(members.end(), others.begin(), others.end());
  // Links take the numbers up to this one.
  const int group = 2 * int(parts_.size()) * replicas_ + place.way;
  tied_.emplace(rank_, Axis::pipeline, epoch, std::move(members), watchdog, group);
}

void Replica::disconnect() {
  tied_.reset();
  comm_.reset();
}

std::vector<Communicator*> Replica::communicators() {
  std::vector<Communicator*> all;
  for (std::optional<Communicator>* comm : {&comm_, &tied_}) {
    if (*comm) all.push_back(&**comm);
  }
  return all;
}

// ---- norms
// -----------------------------------------------------------------------------------------------------------

VecView<float> Replica::own_norms() {
  const int me = place_.stage * plan_.layout.parallel.ways() + place_.way;
  const Part& part = parts_[std::size_t(me)];
  return vec<float>(*norms_, part.at, part.norms.back() + 1);
}

Replica::Sum Replica::gather_norms(Launcher& compute, bool has_values) {
  Queue& queue = rank_.device.communication_queue();
  std::vector<ShardInfo> shards;
  for (const Part& part : parts_) shards.push_back({part.at, part.norms.back() + 1});
  const Index n = shards.back().offset + shards.back().size;
  after(queue, compute.queue().record(), Edge::replica_norms_measured, plan_.bug);
  Op op;
  op.phase = Phase::grad_reduce;
  op.step = compute.last().step;
  op.tensor = "norms of a replica";
  op.site = SEEKSIM_SITE;
  op = comm_->all_gather(queue, op, vec<float>(*norms_, 0, n), shards);
  host_after(*comm_, queue.record(), op, Edge::replica_norms_gathered, plan_.bug);
  const VecView<const float> all = vec<const float>(*norms_, 0, n);
  rank_.device.host_touches(op, all.range());
  if (!has_values) return {};

  const kernels::OnHost<float> norms = on_host(all);
  const int expert_ranks = own_.part().expert_ranks();
  if (expert_ranks == 1 || !plan_.bug.is(Bug::norm_is_a_mean)) return {norm2_of_all(norms, std::nullopt), norms[n - 1]};
  float mean = 0;
  for (int rank = 0; rank < expert_ranks; ++rank) mean += std::sqrt(norm2_of_all(norms, rank)) / float(expert_ranks);
  return {mean * mean, norms[n - 1]};
}

float Replica::norm2_of_all(const kernels::OnHost<float>& norms, std::optional<int> experts_of) const {
  std::vector<std::pair<std::uint32_t, float>> of_parameters;
  const bool own_alone = plan_.bug.is(Bug::norm_of_own_stage);
  for (int stage = 0; stage < int(stages_.size()); ++stage) {
    if (own_alone && stage != place_.stage) continue;
    const std::vector<const ParameterInfo*>& trainable = of_stage(stage).trainable();
    for (std::size_t i = 0; i < trainable.size(); ++i) {
      if (stage_of(trainable[i]->number) != stage) continue;  // shared: measured where it is first
      of_parameters.emplace_back(trainable[i]->number, norm2_of(norms, stage, i, experts_of));
    }
  }
  std::sort(of_parameters.begin(), of_parameters.end());
  std::vector<float> in_order;
  for (const auto& [number, norm2] : of_parameters) in_order.push_back(norm2);
  return kernels::tree_fold({in_order.data(), Index(in_order.size())});
}

// Of a parameter: the nodes of tensor ways over its slabs, or each expert's over that expert's, then over experts.
float Replica::norm2_of(const kernels::OnHost<float>& all, int stage, std::size_t trainable,
                        std::optional<int> experts_of) const {
  const ParameterInfo& p = *of_stage(stage).trainable()[trainable];
  const ModelPart& cut = own_.part();
  const bool forgets = plan_.bug.is(Bug::experts_norm_of_first_way);
  const int tensor = cut.cuts_slabs(p) && !(forgets && p.experts > 0) ? cut.tensor_ways() : 1;
  std::vector<float> of_experts;
  for (int rank = 0; rank < (cut.cuts_experts(p) ? cut.expert_ranks() : 1); ++rank) {
    if (cut.cuts_experts(p) && experts_of && rank != *experts_of) continue;
    for (Index part = 0; part < cut.norm_parts(p); ++part) {
      std::vector<float> nodes;
      for (int way = 0; way < tensor; ++way) {
        const Part& of_way = parts_[std::size_t(stage * cut.ways + rank * cut.tensor_ways() + way)];
        nodes.push_back(all[of_way.at + of_way.norms[trainable] + part]);
      }
      of_experts.push_back(kernels::tree_fold({nodes.data(), Index(nodes.size())}));
    }
  }
  return kernels::tree_fold({of_experts.data(), Index(of_experts.size())});
}

int Replica::stage_of(std::uint32_t number) const {
  int stage = 0;
  while (of_stage(stage).numbered(number) == nullptr) ++stage;
  return stage;
}

// ---- a parameter of two stages
// ---------------------------------------------------------------------------------------

VecView<float> Replica::room_for(BufferPtr& buffer, Index n, Space space, const char* name) {
  const std::size_t bytes = std::size_t(std::max<Index>(n, 1)) * sizeof(float);
  const MemoryTag tag = space == Space::device ? MemoryTag::communication : MemoryTag::staging;
  if (!buffer || buffer->bytes < bytes) buffer = rank_.device.allocate_in(space, bytes, tag, name);
  return vec<float>(*buffer, 0, n);
}

// A network takes what is on a device: sums of the host go there, and what comes of the other stage goes home.
Op Replica::add_tied(Launcher& launch, std::int64_t step, VecView<float> sums, Index first, const AtHome* home) {
  const VecView<float> theirs = room_for(other_, sums.n, Space::device, "other stage's sums");
  if (home == nullptr) {
    const Op op = exchange_tied(launch, step, sums, theirs, first);
    add_uses(launch, theirs, sums);
    return op;
  }
  const char* const name = own_.tied_here().name;
  const VecView<float> sent = room_for(sent_, sums.n, Space::device, "sums for another stage");
  const VecView<float> arrived = room_for(arrived_, sums.n, home->space, "other stage's sums at home");
  Launcher &copies = home->copies, &host = home->host;
  after(copies.queue(), host.queue().record(), Edge::tied_at_home, plan_.bug);
  if (sums.n > 0) copy_values(copies, name, SEEKSIM_SITE, sums, sent);
  after(launch.queue(), copies.queue().record(), Edge::tied_on_device, plan_.bug);
  const Op op = exchange_tied(launch, step, sent, theirs, first);
  after(copies.queue(), launch.queue().record(), Edge::landing_filled, plan_.bug);
  if (sums.n > 0) copy_values(copies, name, SEEKSIM_SITE, theirs, arrived);
  after(host.queue(), copies.queue().record(), Edge::gradients_arrived, plan_.bug);
  add_uses(host, arrived, sums);
  return op;
}

Op Replica::exchange_tied(Launcher& launch, std::int64_t step, VecView<float> sums, VecView<float> theirs,
                          Index first) {
  const bool embeds = own_.embeds();
  const Parameters& other = embeds ? *stages_.back() : *stages_.front();
  const ParameterInfo& tied = other.tied_here();
  const bool cut = plan_.layout.zero.placement().optimizer == Place::sharded;
  const ShardGroups groups = shard_groups(plan_.layout, replicas_);
  const int first_of_group = groups.group_of(place_.data) * groups.size;
  const Partition partition(other, cut ? groups.size : 1);
  pieces_.clear();
  for (int place = 0; place < groups.size; ++place) {
    const int member = first_of_group + place;
    if (!cut && member != place_.data) continue;  // each has all of it
    const ShardInfo shard = partition.shard_in(cut ? place : 0, tied.offset, tied.offset + tied.size);
    const ShardInfo both = common({first, sums.n}, {shard.offset - tied.offset, shard.size});
    if (both.size == 0) continue;
    const int peer = tied_->members()[std::size_t(embeds ? replicas_ + member : member)];
    const Range out = sums.part(both.offset - first, both.size).range();
    const Range in = theirs.part(both.offset - first, both.size).range();
    pieces_.push_back({peer, true, out.buffer, out.lo, out.hi, nullptr, out.type});
    pieces_.push_back({peer, false, in.buffer, in.lo, in.hi, nullptr, in.type});
  }
  Op op;
  op.kind = OpKind::tied_gradient;
  op.phase = Phase::grad_reduce;
  op.step = step;
  op.tensor = tied.name;
  op.site = SEEKSIM_SITE;
  return tied_->exchange(launch.queue(), op, pieces_);
}

// root(embedding use) + root(head use), in that order
void Replica::add_uses(Launcher& launch, VecView<float> theirs, VecView<float> sums) const {
  if (sums.n == 0) return;
  launch(
      own_.tied_here().name, SEEKSIM_SITE, memory_cost(3 * sums.n, 1.0 / 3),
      [embeds = own_.embeds(), off = plan_.bug.is(Bug::tied_misaligned)](Lane lane, Vec<const float> in,
                                                                         Vec<float> own) {
        if (off && in.n > 1) in = {in.data + 1, --own.n};
        if (embeds)
          kernels::tree_add(lane, own, in, own);
        else
          kernels::tree_add(lane, in, own, own);
      },
      reads(theirs), sums);
}

// ---- whole parameters
// --------------------------------------------------------------------------------------------------

Op Replica::gather_whole(Queue& queue, std::int64_t step, const ParameterInfo& whole, AnyVec values) {
  const int home = stage_of(whole.number);
  ModelPart part = own_.part();
  // Slabs of experts come expert by expert, since a way's are no one stretch.
  const bool apart = whole.experts > 0 && part.cuts_slabs(whole);
  const Index each = apart ? whole.whole_expert : values.n;
  Op op;
  for (Index first = 0; first < values.n; first += each) {
    std::vector<ShardInfo> shards(parts_.size());
    for (part.way = 0; part.way < part.ways; ++part.way) {
      const ShardInfo range = range_of_way(whole, part);
      ShardInfo& shard = shards[std::size_t(home * part.ways + part.way)];
      if (!part.is_first_with(whole)) continue;
      if (!apart)
        shard = range;
      else if (first >= range.offset && first < range.offset + range.size)
        shard = range_in_expert(whole, part);
    }
    op = {};
    op.phase = Phase::checkpoint;
    op.step = step;
    op.tensor = whole.name;
    op.site = SEEKSIM_SITE;
    op = comm_->all_gather(queue, op, values.part(first, each), shards);
    host_after(*comm_, queue.record(), op, Edge::shard_handed_out, plan_.bug);
  }
  return op;
}

}  // namespace seeksim::runtime
