// Checkpoints of a campaign: how far each tier's newest usable one is, and which is taken after a failure.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/campaign/costs.h"
#include "harness/campaign/plan.h"
#include "harness/campaign/stretch.h"

namespace seeksim::harness::campaign {

class Saves {
 public:
  // Both outlive it.
  Saves(const Study& study, const Costs& costs);

  // How training stops for checkpoints, by tier: as a stretch takes it.
  std::vector<Stretch::Stop> stops(TimeNs step_ns) const;
  // A stretch ran up to `at`, where `done` of its steps were committed. Counts what was begun.
  void ran(const Stretch& stretch, std::int64_t done, TimeNs at);
  // All tiers hold step `step` now: the job saved before a planned stop.
  void saved_all(std::int64_t step);
  // A failure at `at`: what is not written yet is lost, and so are tiers that the lost seats take with them.
  void strike(TimeNs at, const std::vector<std::int64_t>& lost_seats);
  // The tier with the newest checkpoint, the fastest to read of equals; -1: there is none.
  int newest() const;
  std::int64_t step(int tier) const { return of_[std::size_t(tier)].step; }
  const std::vector<std::int64_t>& begun() const { return begun_; }

 private:
  struct Saved {
    std::int64_t step = -1;  // usable; -1: none
    std::int64_t pending_step = -1;
    TimeNs pending_at = 0;  // when it becomes usable
  };
  void settle(Saved& saved, TimeNs at) const;

  const Study& study_;
  const Costs& costs_;
  std::vector<Saved> of_;  // by tier
  std::vector<std::int64_t> begun_;
};

// How many steps lie between two checkpoints of a tier.
std::int64_t steps_between(const Tier& tier, TimeNs step_ns);

}  // namespace seeksim::harness::campaign
