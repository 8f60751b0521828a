// Studies for tests, made by hand: times that are easy to add up.
#pragma once

#include "harness/campaign/campaign.h"
#include "harness/campaign/study_run.h"

namespace seeksim::harness::campaign::testing {

inline constexpr TimeNs kS = 1'000'000'000;

// 8 nodes, steps of 10 s, 1000 s long; a checkpoint after each 5 steps blocks 2 s and is read in 3 s. A failure is
// noticed after 7 s, agreed on after 1 s more; a restart takes 20 s, and 4 s more to the first step.
inline Study by_hand() {
  Study study;
  study.name = "by_hand";
  study.hours = 1000.0 / 3600;
  study.seeds = 2;
  study.step_s = 10;
  study.start_s = 4;
  study.cluster.nodes = 8;
  Tier tier;
  tier.every_steps = 5;
  tier.blocks_s = 2;
  tier.read_s = 3;
  study.tiers = {tier};
  study.recovery.detect_s = Distribution::of(7);
  study.recovery.agree_s = Distribution::of(1);
  study.recovery.restart_s = Distribution::of(20);
  return study;
}

inline CampaignResult run(const Study& study, std::uint64_t seed = 1) {
  return run_campaign(study, given_costs(study), seed);
}

inline Incident incident(double at_s, std::int64_t node, double repair_s = 0) {
  return {TimeNs(at_s * 1e9), node, "test", TimeNs(repair_s * 1e9)};
}

}  // namespace seeksim::harness::campaign::testing
