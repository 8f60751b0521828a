#include "harness/campaign/saves.h"

#include <algorithm>
#include <cmath>

#include "harness/campaign/nodes.h"

namespace seeksim::harness::campaign {

const char* name(SavedTo to) {
  constexpr const char* kNames[] = {"memory", "neighbours", "storage"};
  return kNames[int(to)];
}

std::int64_t steps_between(const Tier& tier, TimeNs step_ns) {
  if (tier.every_steps > 0) return tier.every_steps;
  return std::max<std::int64_t>(1, std::llround(tier.every_s * 1e9 / double(std::max<TimeNs>(1, step_ns))));
}

Saves::Saves(const Study& study, const Costs& costs)
    : study_(study), costs_(costs), of_(study.tiers.size()), begun_(study.tiers.size()) {}

// A checkpoint waits for the write of the one before it.
std::vector<Stretch::Stop> Saves::stops(TimeNs step_ns) const {
  std::vector<Stretch::Stop> stops;
  for (std::size_t i = 0; i < of_.size(); ++i) {
    const std::int64_t every = steps_between(study_.tiers[i], costs_.step_ns);
    const TierCosts& costs = costs_.tiers[i];
    stops.push_back({every, std::max(costs.blocks_ns, costs.write_ns - every * step_ns)});
  }
  return stops;
}

void Saves::settle(Saved& saved, TimeNs at) const {
  if (saved.pending_step < 0 || saved.pending_at > at) return;
  saved.step = std::max(saved.step, saved.pending_step);
  saved.pending_step = -1;
}

void Saves::ran(const Stretch& stretch, std::int64_t done, TimeNs at) {
  for (std::size_t i = 0; i < of_.size(); ++i) {
    settle(of_[i], at);
    const std::int64_t every = steps_between(study_.tiers[i], costs_.step_ns);
    const std::int64_t last = (stretch.first() + done) / every * every;
    begun_[i] += last / every - stretch.first() / every;
    for (std::int64_t step = last; step > stretch.first(); step -= every) {
      const std::int64_t j = step - stretch.first();
      const TimeNs usable = stretch.checkpoint_begins(i, j) + costs_.tiers[i].write_ns;
      if (usable <= at) {
        of_[i].step = std::max(of_[i].step, step);
        break;
      }
      of_[i].pending_step = step;
      of_[i].pending_at = usable;
    }
  }
}

void Saves::saved_all(std::int64_t step) {
  for (Saved& saved : of_) saved = {step, -1, 0};
}

void Saves::strike(TimeNs at, const std::vector<std::int64_t>& lost_seats) {
  for (std::size_t i = 0; i < of_.size(); ++i) {
    const Tier& tier = study_.tiers[i];
    settle(of_[i], at);
    of_[i].pending_step = -1;
    const bool lasts = tier.to == SavedTo::storage || lost_seats.empty() ||
                       (tier.to == SavedTo::neighbours && copies_last(lost_seats, study_.cluster.nodes, tier.copies,
                                                                      stride_of(study_.cluster, tier.stride)));
    if (!lasts) of_[i].step = -1;
  }
}

int Saves::newest() const {
  int best = -1;
  for (int i = 0; i < int(of_.size()); ++i) {
    if (step(i) < 0) continue;
    const auto rank = [&](int tier) { return std::pair(step(tier), -costs_.tiers[std::size_t(tier)].read_ns); };
    if (best < 0 || rank(i) > rank(best)) best = i;
  }
  return best;
}

}  // namespace seeksim::harness::campaign
