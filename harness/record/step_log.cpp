#include "harness/record/step_log.h"

namespace seeksim::harness {

void StepLog::begin(std::function<Memory(int rank)> memory_of) {
  memory_of_ = std::move(memory_of);
  stands_for_.clear();
  rows_.clear();
  scores_.clear();
}

void StepLog::committed(int rank, const runtime::StepRecord& record) {
  Row& row = rows_[{record.step, rank}];
  row = {record, std::nullopt, std::nullopt};
  if (memory_of_) row.memory = memory_of_(rank);
  if (const auto score = scores_.find({record.step, rank}); score != scores_.end()) row.score = score->second;
}

void StepLog::scores(std::int64_t step, const std::vector<int>& ranks, const std::vector<double>& scores) {
  for (std::size_t i = 0; i < ranks.size() && i < scores.size(); ++i) {
    scores_[{step, ranks[i]}] = scores[i];
    if (const auto row = rows_.find({step, ranks[i]}); row != rows_.end()) row->second.score = scores[i];
  }
}

void StepLog::rolled_back(std::int64_t steps) {
  rows_.erase(rows_.lower_bound({steps, 0}), rows_.end());
  scores_.erase(scores_.lower_bound({steps, 0}), scores_.end());
}

int StepLog::weight(int rank) const {
  const auto at = stands_for_.find(rank);
  return at == stands_for_.end() ? 1 : at->second;
}

}  // namespace seeksim::harness
