// What a rank tells of itself so that others can be held against it: the shards that it uses, and after each step
// digests of all that should be equal somewhere else. Also the planted bugs of replicas, which are edits of memory.
#include <algorithm>
#include <cstddef>

#include "runtime/host/host_writes.h"
#include "runtime/launch/typed_ops.h"
#include "runtime/trainer/trainer.h"

namespace seeksim::runtime {

void Trainer::report_shards() {
  const Partition& partition = keeper_->partition();
  const ShardState& own = keeper_->own();
  const int me = comm_->position();
  ShardRecord record;
  record.epoch = comm_->epoch();
  record.part = place_.stage * plan_.layout.parallel.tensor + place_.way;
  record.members = comm_->size();
  record.position = me;
  record.own = own.shard;
  record.elements = {own.parameters.n, own.gradients.n, own.optimizer->first_moments().n,
                     own.optimizer->second_moments().n};
  for (const OwnedRange& range : partition.owned(me, 0, parameters_.gradient_size())) {
    record.gradients.push_back({range.offset, range.size});
  }
  for (const auto& copy : keeper_->copies()) record.copies.emplace_back(copy->owner, copy->shard);
  observer_.shards(rank_.id, record);
}

std::vector<std::pair<const char*, std::uint64_t>> Trainer::replicated_digests() const {
  std::vector<std::pair<const char*, std::uint64_t>> digests;
  for (const ParameterInfo& p : parameters_.all()) {
    digests.emplace_back(p.name, digest_of(host_reads(SEEKSIM_SITE, flat_parameters().part(p.offset, p.size))));
  }
  return digests;
}

void Trainer::list_what_all_ways_hold(ReplicaRecord& record) const {
  record.ways = parameters_.part().ways;
  for (std::size_t i = 0; record.ways > 1 && i < record.parameters.size(); ++i) {
    if (!parameters_.all()[i].splits) record.on_all_ways.push_back(record.parameters[i]);
  }
}

// Nothing is pending now: the update was drained, and publish waited for.
void Trainer::report_replica() {
  published_ = true;
  if (!has_values() || !observer_.wants_replicas(rank_.id)) return;
  ReplicaRecord record;
  record.step = step_ - 1;
  record.part = place_.stage * plan_.layout.parallel.tensor + place_.way;
  record.epoch = comm_->epoch();
  record.training_seed = plan_.definition.training_seed;
  record.lr = committed_.lr;
  record.loss_scale = committed_.loss_scale;
  record.data_position = step_ * plan_.definition.global_batch;
  if (!keeper_) {
    record.optimizer_steps = optimizer_->steps();
    record.parameters = replicated_;
    list_what_all_ways_hold(record);
    observer_.replica(rank_.id, record);
    return;
  }
  record.optimizer_steps = keeper_->own().optimizer->steps();
  if (weights_) record.parameters = replicated_digests();
  list_what_all_ways_hold(record);
  if (gathered_ && gathered_->persistent() != nullptr) {
    Buffer* buffer = gathered_->persistent();
    const AnyVec all(buffer, 0, Index(buffer->bytes / size_of(compute_type())), compute_type());
    record.parameters.emplace_back("persistent parameters", digest_of(host_reads(SEEKSIM_SITE, all)));
  }
  if (keeper_->keeps_copies()) {
    const auto digests_of = [this](const ShardState& state) {
      using Kind = SwappedState::Kind;
      if (const SwappedState* files = state.files.get())
        return ReplicaRecord::OfShard{files->digest(Kind::weights), files->digest(Kind::first),
                                      files->digest(Kind::second)};
      const auto digest = [this](AnyVec values) { return digest_of(host_reads(SEEKSIM_SITE, values)); };
      return ReplicaRecord::OfShard{digest(state.weights()), digest(state.optimizer->first_moments()),
                                    digest(state.optimizer->second_moments())};
    };
    record.own = digests_of(keeper_->own());
    for (const auto& copy : keeper_->copies())
      record.copies.emplace_back(keeper_->members()[std::size_t(copy->owner)], digests_of(*copy));
  }
  observer_.replica(rank_.id, record);
}

// ---- planted bugs ------------------------------------------------------------------------------------------------

// The last bit of one parameter that this rank holds and, where parameters have owners, does not own.
void Trainer::drift() {
  const bool owns_first = keeper_ && keeper_->own().shard.offset == 0 && keeper_->own().shard.size > 0;
  const Index at = owns_first ? parameters_.trainable_size() - 1 : 0;
  const VecView<std::byte> low{&*weights_, Index(flat_parameters().part(at, 1).range(true).lo), 1};
  kernels::change_on_host(weights_->lane, low.get(), [](kernels::Vec<std::byte> bits) { bits[0] ^= std::byte{1}; });
  settle(*weights_);
}

std::vector<std::byte> Trainer::copy_of_weights(Index end) const {
  std::vector<std::byte> copy(flat_parameters().part(0, end).bytes());
  kernels::copy_bytes(weights_->lane, weights_->data, copy.data(), copy.size());
  return copy;
}

// Old values from the front of the flat space, except what this rank owns.
void Trainer::restore_weights(const std::vector<std::byte>& old) {
  if (old.empty()) return;
  const ShardInfo shard = keeper_ ? keeper_->own().shard : ShardInfo{};
  const Range own = flat_parameters().part(shard.offset, shard.size).range(true);
  const auto restore = [&](std::size_t lo, std::size_t hi) {
    if (lo < hi) kernels::copy_bytes(weights_->lane, old.data() + lo, weights_->data + lo, hi - lo);
  };
  restore(0, std::min(own.lo, old.size()));
  restore(std::min(own.hi, old.size()), old.size());
  settle(*weights_);
}

}  // namespace seeksim::runtime
