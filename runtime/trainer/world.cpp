#include "runtime/trainer/world.h"

#include <algorithm>
#include <utility>

#include "kernels/check.h"
#include "runtime/parts/outer_step.h"

namespace seeksim::runtime {

void World::allocate(const Parameters& parameters) {
  if (!bench_.alone()) replica_.emplace(bench_.rank, bench_.plan, parameters);
  const ModelPart& part = parameters.part();
  if (part.ways == 1) return;
  const Index samples = bench_.plan.samples_at_once();
  if (part.by_experts)
    experts_.emplace(expert_shape(bench_.plan, samples), part.expert_ranks(), part.expert_rank(), bench_.plan.bug);
  if (part.by_tokens) {
    context_.emplace(bench_.rank.device, context_shape(bench_.plan, parameters, samples), part.way, bench_.plan.bug);
    return;
  }
  if (part.tensor_ways() > 1)
    tensor_.emplace(bench_.rank.device, tensor_shape(bench_.plan, samples, parameters.embeds()), part.tensor_ways(),
                    part.tensor_way(), bench_.plan.bug);
}

void World::seat(const Roster& roster) {
  seats_ = roster.seats;
  grid_.emplace(parallel(), roster.seats, roster.members);
  const std::optional<GridPlace> place = grid_->place(bench_.rank.id);
  SEEKSIM_CHECK(place.has_value(), "rank %d has no place in the grid of %zu members", bench_.rank.id,
                roster.members.size());
  place_ = *place;
  lowest_ = roster.members.front();
  for (int stage = 0; stage < parallel().pipeline; ++stage) {
    for (int way = 0; way < parallel().ways(); ++way) lowest_ = std::min(lowest_, grid_->rank_at({stage, 0, way}));
  }
  const Index batch = bench_.definition().global_batch;
  const StalenessPlan& late = bench_.definition().staleness;  // what is reduced then are workers' gradients
  const Index together = late.on() ? 1 : bench_.definition().model.experts.samples;
  ownership_ = {late.on() ? Index(late.workers) : batch, grid_->replicas(), parallel().expert, together};
  cut_ = step_cut(bench_.plan, grid_->replicas(), place_.data);
  groups_ = shard_groups(bench_.plan.layout, grid_->replicas());
}

void World::connect(std::uint32_t epoch) {
  const std::vector<int> axis = grid_->data_axis(place_.stage, place_.way);
  connect_data_axis(epoch, axis);
  if (groups_.groups() > 1) {
    const int group = groups_.group_of(place_.data), place = groups_.place_of(place_.data);
    const TimeNs watchdog = bench_.plan.recovery.watchdog_ns;
    shards_.emplace(bench_.rank, Axis::shard, epoch, groups_.members(axis, group), watchdog,
                    part() * groups_.groups() + group);
    replicas_.emplace(bench_.rank, Axis::replicate, epoch, groups_.replicas(axis, place), watchdog,
                      part() * groups_.size + place);
  }
  const ShardGroups keeping = secondary_groups(bench_.plan.layout, grid_->replicas());
  if (keeping.groups() > 1) {
    const int group = keeping.group_of(place_.data);
    secondary_.emplace(bench_.rank, Axis::shard, epoch, keeping.members(axis, group), bench_.plan.recovery.watchdog_ns,
                       part() * keeping.groups() + group);
  }
  if (replica_) replica_->connect(*grid_, place_, epoch);
  const int tensor = parallel().tensor, of_stage = place_.stage * grid_->replicas() + place_.data;
  if (tensor_) {
    // Of one rank of an expert group, where there is one.
    tensor_->connect(bench_.rank, epoch, ways_with([&](int way) { return way / tensor == place_.way / tensor; }),
                     bench_.plan.recovery.watchdog_ns, of_stage * parallel().expert + place_.way / tensor);
  }
  if (experts_) {
    const int group = of_stage * tensor + place_.way % tensor;
    const int all = parallel().pipeline * grid_->replicas() * tensor;
    experts_->connect(bench_.rank, epoch, ways_with([&](int way) { return way % tensor == place_.way % tensor; }),
                      bench_.plan.recovery.watchdog_ns, group, bench_.shards_gradients() ? all + group : -1);
  }
  if (context_) {
    context_->connect(bench_.rank, epoch, grid_->way_axis(place_.stage, place_.data), bench_.plan.recovery.watchdog_ns,
                      place_.stage * grid_->replicas() + place_.data);
  }
  if (parallel().pipeline > 1) links_.emplace(bench_, *grid_, place_, epoch);
}

// Launch ranks of this replica and stage, in order.
std::vector<int> World::ways_with(const std::function<bool(int)>& has) const {
  std::vector<int> ranks;
  for (int way = 0; way < parallel().ways(); ++way)
    if (has(way)) ranks.push_back(grid_->rank_at({place_.stage, place_.data, way}));
  return ranks;
}

void World::connect_data_axis(std::uint32_t epoch, std::vector<int> axis) {
  comm_.emplace(bench_.rank, Axis::data, epoch, std::move(axis), bench_.plan.recovery.watchdog_ns, part());
}

void World::disconnect() {
  links_.reset();
  if (tensor_) tensor_->disconnect();
  if (experts_) experts_->disconnect();
  if (context_) context_->disconnect();
  if (replica_) replica_->disconnect();
  secondary_.reset();
  replicas_.reset();
  shards_.reset();
  comm_.reset();
}

std::vector<SampleRange> World::own_micro_batches_of(int share) const {
  const bool grouped = cut_.groups > 1;
  const StepCut cut = grouped ? step_cut(bench_.plan, grid_->replicas(), share) : cut_;
  const int rank = grouped ? groups_.place_of(share) : share;
  if (bench_.definition().local_sgd.on())
    return micro_batches_of_parts(cut.samples_of_rank(0, rank), cut.micro, cut.grain);
  if (!bench_.shards_gradients()) return micro_batches(cut.samples_of_rank(0, rank), bench_.plan.layout.micro_batch);
  std::vector<SampleRange> all;
  for (int k = 0; k < cut.count(); ++k) all.push_back(cut.samples_of_rank(k, rank));
  return all;
}

std::vector<SampleRange> World::micro_batches_of(int share) const {
  std::vector<SampleRange> own = own_micro_batches_of(share);
  const int each = cut_.each, first = share / each * each;
  for (int other = first; other < first + each; ++other) {
    if (other == share) continue;
    const Index end = own.empty() ? cut_.samples_of_rank(0, share).end : own.back().end;
    own.resize(std::max(own.size(), own_micro_batches_of(other).size()), {end, end});
  }
  return own;
}

Index World::samples_of(int share) const {
  Index all = 0;
  for (const SampleRange& samples : micro_batches_of(share)) all += samples.size();
  return all;
}

SampleRange World::workers() const {
  const LocalSgdPlan& plan = bench_.definition().local_sgd;
  return plan.on() ? workers_of(plan, grid_->replicas(), place_.data) : SampleRange{0, 1};
}

Index World::worker_of(const SampleRange& samples) const {
  return bench_.definition().local_sgd.on() ? samples.begin / cut_.grain - workers().begin : 0;
}

std::vector<Communicator*> World::communicators() {
  std::vector<Communicator*> all;
  const auto add = [&](std::vector<Communicator*> more) { all.insert(all.end(), more.begin(), more.end()); };
  for (std::optional<Communicator>* comm : {&comm_, &shards_, &replicas_, &secondary_}) {
    if (*comm) all.push_back(&**comm);
  }
  if (tensor_ && tensor_->communicator() != nullptr) all.push_back(tensor_->communicator());
  if (experts_ && experts_->communicator() != nullptr) all.push_back(experts_->communicator());
  if (experts_ && experts_->gradients() != nullptr) all.push_back(experts_->gradients());
  if (context_ && context_->communicator() != nullptr) all.push_back(context_->communicator());
  if (replica_) add(replica_->communicators());
  if (links_) add(links_->communicators());
  return all;
}

}  // namespace seeksim::runtime
