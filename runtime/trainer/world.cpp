#include "runtime/trainer/world.h"

#include <algorithm>
#include <utility>

#include "kernels/check.h"

namespace seeksim::runtime {

void World::allocate(const Parameters& parameters) {
  if (!bench_.alone()) replica_.emplace(bench_.rank, bench_.plan, parameters);
  const ModelPart& part = parameters.part();
  if (part.ways == 1) return;
  const Index samples = std::min(bench_.plan.layout.micro_batch, bench_.definition().global_batch);
  if (part.by_experts) {
    experts_.emplace(expert_shape(bench_.plan, samples), part.ways, part.way, bench_.plan.bug);
    return;
  }
  tensor_.emplace(bench_.rank.device, tensor_shape(bench_.plan, samples, parameters.embeds()), part.ways, part.way,
                  bench_.plan.bug);
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
  ownership_ = {batch, grid_->replicas(), parallel().expert};
  cut_ = {batch,
          grid_->replicas(),
          std::min<Index>(bench_.plan.layout.micro_batch, batch),
          bench_.shards_gradients(),
          bench_.definition().compression.group_samples(batch),
          parallel().expert};
}

void World::connect(std::uint32_t epoch) {
  connect_data_axis(epoch, grid_->data_axis(place_.stage, place_.way));
  if (replica_) replica_->connect(*grid_, place_, epoch);
  if (tensor_) {
    tensor_->connect(bench_.rank, epoch, grid_->way_axis(place_.stage, place_.data), bench_.plan.recovery.watchdog_ns,
                     place_.stage * grid_->replicas() + place_.data);
  }
  if (experts_) {
    experts_->connect(bench_.rank, epoch, grid_->way_axis(place_.stage, place_.data), bench_.plan.recovery.watchdog_ns,
                      place_.data);
  }
  if (parallel().pipeline > 1) links_.emplace(bench_, *grid_, place_, epoch);
}

void World::connect_data_axis(std::uint32_t epoch, std::vector<int> axis) {
  comm_.emplace(bench_.rank, Axis::data, epoch, std::move(axis), bench_.plan.recovery.watchdog_ns, part());
}

void World::disconnect() {
  links_.reset();
  if (tensor_) tensor_->disconnect();
  if (experts_) experts_->disconnect();
  if (replica_) replica_->disconnect();
  comm_.reset();
}

std::vector<SampleRange> World::own_micro_batches_of(int share) const {
  if (!bench_.shards_gradients()) return micro_batches(cut_.samples_of_rank(0, share), bench_.plan.layout.micro_batch);
  std::vector<SampleRange> all;
  for (int k = 0; k < cut_.count(); ++k) all.push_back(cut_.samples_of_rank(k, share));
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

std::vector<Communicator*> World::communicators() {
  std::vector<Communicator*> all;
  const auto add = [&](std::vector<Communicator*> more) { all.insert(all.end(), more.begin(), more.end()); };
  if (comm_) all.push_back(&*comm_);
  if (tensor_ && tensor_->communicator() != nullptr) all.push_back(tensor_->communicator());
  if (experts_ && experts_->communicator() != nullptr) all.push_back(experts_->communicator());
  if (replica_) add(replica_->communicators());
  if (links_) add(links_->communicators());
  return all;
}

}  // namespace seeksim::runtime
