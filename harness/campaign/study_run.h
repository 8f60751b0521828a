// A study at work: every policy of its sweep, for every seed, on all cores; and what came of it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/campaign/campaign.h"
#include "harness/campaign/metrics.h"
#include "harness/campaign/statistics.h"
#include "harness/input/json.h"

namespace seeksim::harness::campaign {

// One time between two checkpoints of the last tier that was tried.
struct TriedInterval {
  double every_s = 0;
  Estimated goodput;
};

// Young's and Daly's formula, for the last tier alone, from what the campaigns met.
struct YoungDaly {
  double cost_s = 0, interval_s = 0, mtbf_s = 0, down_s = 0;
  double goodput = 0;          // 1 - C/tau - tau/2M - R/M
  double best_interval_s = 0;  // sqrt(2CM)
};

struct PolicyResult {
  Settings settings;  // of the sweep; empty: there is none
  Study study;
  Costs costs;
  std::vector<CampaignResult> campaigns;  // by seed
  std::optional<YoungDaly> formula;       // with checkpoints and interruptions
  std::vector<TriedInterval> tried;       // where the study looks for the best interval
  std::string wrong;                      // the first campaign whose time does not add up, and how; empty: all do

  Estimated of(const Metric& metric) const;
  RunLengths runs() const;                                                  // of all campaigns
  Estimated share(Spent spent) const;                                       // of the time
  Estimated beyond(const Metric& metric, const PolicyResult& other) const;  // differences, seed by seed
};

struct StudyResult {
  Study study;  // the first policy's, with the sweep
  std::vector<PolicyResult> policies;
  std::vector<std::string> broken;  // what became of a process that did not end well
  double wall_s = 0;
};

// Given costs as campaigns take them.
Costs given_costs(const Study& study);

// file, sets: as load_study. processes: at once; 0: one a core. Throws BadInput.
StudyResult run_study(const std::string& file, const std::vector<std::string>& sets, int processes);

// What a campaign leaves, to and from text between processes.
Json to_json(const CampaignResult& result);
CampaignResult campaign_from(const Json& json);

// Where the times of a campaign do not add up to the whole, or the causes' tolls not to what was lost; empty: they do.
std::string what_is_wrong(const CampaignResult& result);

}  // namespace seeksim::harness::campaign
