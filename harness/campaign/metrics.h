// Figures of a campaign: what tables show, and what published figures are compared with.
#pragma once

#include <string_view>
#include <vector>

#include "harness/campaign/campaign.h"

namespace seeksim::harness::campaign {

struct Metric {
  const char* name;
  const char* text;
  double (*of)(const Study& study, const CampaignResult& result);
};

const std::vector<Metric>& metrics();
const Metric* find_metric(std::string_view name);  // null: there is none

// What all GPUs did that was useful, of all that there are, spares included.
double yield_of(const Study& study, const CampaignResult& result);

}  // namespace seeksim::harness::campaign
