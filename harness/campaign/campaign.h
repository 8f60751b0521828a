// One campaign: from its first step to its last hour. Only what disturbs steps is an event: failures, their detection,
// agreement, rebuild, restart, checkpoints, stragglers. The rest is known (stretch.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "harness/campaign/costs.h"
#include "harness/campaign/ledger.h"
#include "harness/campaign/plan.h"
#include "harness/campaign/statistics.h"

namespace seeksim::harness::campaign {

// What one cause of failures did to the job. Its lost time: from the failure to the first step afterwards, with the
// steps that are done again and those that were slow.
struct CauseToll {
  std::string name;
  std::int64_t interruptions = 0;
  TimeNs lost_ns = 0;
};

struct CampaignResult {
  TimeNs whole_ns = 0;
  TimeNs step_ns = 0;      // on all nodes
  std::int64_t steps = 0;  // that last
  std::int64_t steps_redone = 0;
  std::int64_t failures = 0;       // that hit the job, also while it was down already
  std::int64_t interruptions = 0;  // unplanned
  std::int64_t planned_stops = 0;
  std::int64_t spares_used = 0;
  std::vector<std::int64_t> checkpoints;  // that were begun, by tier
  std::vector<std::int64_t> restored;     // restarts from each tier
  std::int64_t from_nothing = 0;          // restarts without any checkpoint
  SpentTime spent;
  std::vector<CauseToll> tolls;  // in the study's order; the log's last
  RunLengths runs;               // from one unplanned stop to the next
  TimeNs outside_ns = 0;         // lost without a failure: checkpoints, fewer nodes, the first start, the last step
  double goodput() const { return whole_ns > 0 ? double(spent.of(Spent::useful)) / double(whole_ns) : 0; }
};

// Whoever wants to see it go by.
struct Watcher {
  // Steps [first + 1, first + steps] of the job were committed, the j-th at commit(j). A failure may take some of them
  // away later.
  std::function<void(const class Stretch& stretch, std::int64_t steps)> stretch;
};

CampaignResult run_campaign(const Study& study, const Costs& costs, std::uint64_t seed, const Watcher& watcher = {});

}  // namespace seeksim::harness::campaign
