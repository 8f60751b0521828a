#include "harness/campaign/metrics.h"

#include <algorithm>

#include "harness/oracles/goodput.h"

namespace seeksim::harness::campaign {
namespace {

double share(const CampaignResult& result, std::initializer_list<Spent> of) {
  double sum = 0;
  for (const Spent what : of) sum += double(result.spent.of(what));
  return result.whole_ns > 0 ? sum / double(result.whole_ns) : 0;
}

double hours(const CampaignResult& result) { return double(result.whole_ns) / 3600e9; }

double interruptions(const Study&, const CampaignResult& result) { return double(result.interruptions); }

// From a failure to the first step afterwards, without the steps that are done again.
double down_minutes(const Study&, const CampaignResult& result) {
  const double down = share(result, {Spent::detection, Spent::agreement, Spent::waiting, Spent::swapping,
                                     Spent::restarting, Spent::reading, Spent::starting, Spent::rebuilding});
  return 60 * down * hours(result) / double(std::max<std::int64_t>(1, result.interruptions + result.planned_stops));
}

// Of the time in which the job is up: while it is down, most failures do not count.
double mtti_hours(const Study&, const CampaignResult& result) {
  const double up = 1 - share(result, {Spent::detection, Spent::agreement, Spent::waiting, Spent::swapping,
                                       Spent::restarting, Spent::reading, Spent::starting, Spent::rebuilding});
  return up * hours(result) / double(std::max<std::int64_t>(1, result.interruptions));
}

}  // namespace

double yield_of(const Study& study, const CampaignResult& result) {
  const double job = double(study.cluster.nodes);
  return result.goodput() * job / (job + double(study.spares.hot) + double(study.spares.cold));
}

const std::vector<Metric>& metrics() {
  static const std::vector<Metric> kMetrics = {
      {"goodput", "share of the time in steps that last, at the speed of all nodes (ETTR)",
       [](const Study&, const CampaignResult& r) { return r.goodput(); }},
      {"yield", "the same, of all nodes with the spares", yield_of},
      {"interruptions", "unplanned stops of the job", interruptions},
      {"mtti_hours", "hours that the job is up between two of them", mtti_hours},
      {"down_minutes", "from a failure to the next step, in the mean of all stops", down_minutes},
      {"down_share", "share of the time in which the job is down",
       [](const Study&, const CampaignResult& r) {
         return share(r, {Spent::detection, Spent::agreement, Spent::waiting, Spent::swapping, Spent::restarting,
                          Spent::reading, Spent::starting, Spent::rebuilding});
       }},
      {"redone_share", "share of the time in steps that failures undid or broke off",
       [](const Study&, const CampaignResult& r) {
         return share(r, {Spent::redone, Spent::cut_short});
       }},
      {"checkpoint_share", "share of the time in which training waits for checkpoints",
       [](const Study&, const CampaignResult& r) { return share(r, {Spent::checkpoints}); }},
      {"waiting_share", "share of the time in which no node replaces a lost one",
       [](const Study&, const CampaignResult& r) { return share(r, {Spent::waiting}); }},
      {"slow_share", "share of the time lost beside slow nodes and on fewer nodes",
       [](const Study&, const CampaignResult& r) {
         return share(r, {Spent::straggling, Spent::shrunk});
       }},
      {"error_share", "share of the time that failures take: down, undone and broken off",
       [](const Study& s, const CampaignResult& r) {
         return find_metric("down_share")->of(s, r) + find_metric("redone_share")->of(s, r);
       }},
  };
  return kMetrics;
}

const Metric* find_metric(std::string_view name) {
  for (const Metric& metric : metrics()) {
    if (name == metric.name) return &metric;
  }
  return nullptr;
}

}  // namespace seeksim::harness::campaign
