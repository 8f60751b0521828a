// The keys of a study, one row each.
#pragma once

#include "harness/campaign/plan.h"
#include "harness/input/keys.h"

namespace seeksim::harness::campaign {

const Keys<Distribution>& distribution_keys();
const Keys<Arrivals>& arrival_keys();
const Keys<Slow>& slow_keys();
const Keys<Cause>& cause_keys();
const Keys<Cluster>& cluster_keys();
const Keys<Spares>& spares_keys();
const Keys<Tier>& tier_keys();
const Keys<Recovery>& recovery_keys();
const Keys<Published>& published_keys();
const Keys<Study>& study_keys();

}  // namespace seeksim::harness::campaign
