#include "harness/simulate/stand_ins.h"

#include "runtime/layout/grid.h"
#include "runtime/layout/partition.h"

namespace seeksim::harness {

StandInCollector::StandInCollector(const Scenario& scenario, std::shared_ptr<const sim::RankClasses> classes,
                                   std::int64_t gradients_of, bool digest_gradients, OnGradients on_gradients)
    : Collector(scenario.world.ranks(), gradients_of, digest_gradients, std::move(on_gradients)),
      scenario_(scenario),
      classes_(std::move(classes)) {
  if (classes_ == nullptr) return;
  others_.resize(classes_->stand_in.size());
  for (int rank = 0; rank < int(others_.size()); ++rank) {
    const int other = classes_->stand_in[std::size_t(rank)];
    if (other != rank) others_[std::size_t(other)].push_back(rank);
  }
}

void StandInCollector::log_steps(StepLog& log) {
  log_steps_to(&log);
  for (std::size_t rank = 0; rank < others_.size(); ++rank) log.stands_for(int(rank), int(others_[rank].size()) + 1);
}

void StandInCollector::step_committed(int rank, const runtime::StepRecord& record) {
  Collector::step_committed(rank, record);
  if (classes_ == nullptr) return;
  for (const int other : others_[std::size_t(rank)]) also_committed(other, record);
}

void StandInCollector::shards(int rank, const runtime::ShardRecord& record) {
  Collector::shards(rank, record);
  if (classes_ == nullptr || others_[std::size_t(rank)].empty()) return;
  const runtime::Definition& d = scenario_.train.definition;
  const runtime::ParallelPlan& parallel = scenario_.train.layout.parallel;
  const auto place_of = [&](int of) { return runtime::launch_place(parallel, scenario_.world.ranks(), of); };
  const runtime::GridPlace here = place_of(rank);
  const runtime::Parameters parameters(d.model, d.optimizer,
                                       runtime::model_part(d.model, parallel, here.stage, here.way));
  const runtime::Partition partition(parameters, record.members);
  for (const int other : others_[std::size_t(rank)]) {
    runtime::ShardRecord told = record;
    told.position = place_of(other).data;
    told.own = partition.shard(told.position);
    told.gradients.clear();
    for (const runtime::OwnedRange& range : partition.owned(told.position, 0, parameters.gradient_size()))
      told.gradients.push_back({range.offset, range.size});
    Collector::shards(other, told);
  }
}

void StandInCollector::pipeline(int rank, const runtime::PipelineRecord& record) {
  Collector::pipeline(rank, record);
  if (classes_ == nullptr) return;
  for (const int other : others_[std::size_t(rank)]) Collector::pipeline(other, record);
}

void StandInCollector::spread_endings() {
  if (classes_ == nullptr) return;
  std::vector<RankRecord>& ranks = record().ranks;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto other = std::size_t(classes_->stand_in[rank]);
    if (other != rank) ranks[rank] = ranks[other];
  }
}

}  // namespace seeksim::harness
