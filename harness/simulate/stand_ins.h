// Collects what ranks tell in a world of classes: what a rank tells counts for all that it stands for.
#pragma once

#include <memory>
#include <vector>

#include "harness/record/collector.h"
#include "harness/scenario/scenario.h"
#include "sim/alike.h"

namespace seeksim::harness {

class StandInCollector final : public Collector {
 public:
  // The other arguments are a Collector's. classes: null where every rank is simulated.
  StandInCollector(const Scenario& scenario, std::shared_ptr<const sim::RankClasses> classes, std::int64_t gradients_of,
                   bool digest_gradients, OnGradients on_gradients);

  // Logs the steps of the ranks that are simulated, and for how many each of them stands.
  void log_steps(StepLog& log);
  void step_committed(int rank, const runtime::StepRecord& record) override;
  // Where the shards of the others lie follows from the partition; their sizes are those of the class.
  void shards(int rank, const runtime::ShardRecord& record) override;
  void pipeline(int rank, const runtime::PipelineRecord& record) override;
  // How each rank ended and what it held: as whoever stood for it.
  void spread_endings();

 private:
  const Scenario& scenario_;
  std::shared_ptr<const sim::RankClasses> classes_;
  std::vector<std::vector<int>> others_;  // by rank that is simulated: for whom it stands besides itself
};

}  // namespace seeksim::harness
