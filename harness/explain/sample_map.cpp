#include "harness/explain/sample_map.h"

#include <algorithm>
#include <optional>

#include "runtime/layout/grid.h"
#include "runtime/layout/seats.h"
#include "runtime/layout/shard_groups.h"

namespace seeksim::harness {

using runtime::SampleRange;

SampleMap::SampleMap(const Scenario& scenario, const RunRecord* record) : scenario_(scenario) {
  std::vector<int> all;
  for (int rank = 0; rank < scenario.world.ranks() - scenario.train.recovery.spares; ++rank) all.push_back(rank);
  members_[0] = std::move(all);
  if (record == nullptr) return;
  for (const Recovery& one : record->detection.recoveries) members_[one.epoch + 1] = one.survivors;
  for (const runtime::JoinRecord& join : record->detection.joins) {
    for (const int rank : join.ranks) joined_.emplace(join.epoch, rank);
    std::vector<int>& members = members_[join.epoch];
    if (members.empty() && join.epoch > 0) members = members_[join.epoch - 1];
    members.insert(members.end(), join.ranks.begin(), join.ranks.end());
    std::sort(members.begin(), members.end());
    members.erase(std::unique(members.begin(), members.end()), members.end());
  }
}

SampleRange SampleMap::samples(int rank, std::uint32_t epoch, int micro_batch) const {
  const auto found = members_.find(epoch);
  if (found == members_.end() || found->second.empty() || micro_batch < 0) return {};
  const runtime::Layout& layout = scenario_.train.layout;
  const int seats = scenario_.world.ranks() - scenario_.train.recovery.spares;
  const runtime::Grid grid(layout.parallel, runtime::Seats{seats, {}}, found->second);
  if (grid.replicas() == 0) return {};
  const std::optional<runtime::GridPlace> place = grid.place(rank);
  if (!place) return {};
  const int group = layout.parallel.expert;  // ranks of an expert group have samples of their own
  const runtime::StepCut cut = runtime::step_cut(scenario_.train, grid.replicas(), place->data);
  const int in_group = runtime::shard_groups(layout, grid.replicas()).place_of(place->data);
  const int share = group > 1 ? place->data * group + place->way / layout.parallel.tensor : in_group;
  if (cut.interleaved) return micro_batch < cut.count() ? cut.samples_of_rank(micro_batch, share) : SampleRange{};
  const std::vector<SampleRange> all = runtime::micro_batches(cut.samples_of_rank(0, share), layout.micro_batch);
  return std::size_t(micro_batch) < all.size() ? all[std::size_t(micro_batch)] : SampleRange{};
}

bool SampleMap::joins_in(int rank, std::uint32_t epoch) const { return joined_.contains({epoch, rank}); }

int SampleMap::ways() const { return scenario_.train.layout.parallel.tensor; }

int SampleMap::way(int rank) const { return rank % ways(); }

}  // namespace seeksim::harness
