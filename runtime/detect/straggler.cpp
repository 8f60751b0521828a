// The scores are ratios of times of the same work, so that neither the model's size nor the machine's speed matters.
#include "runtime/detect/straggler.h"

#include <algorithm>

namespace seeksim::runtime {
namespace {

double share(std::int64_t mine, std::int64_t theirs) { return theirs > 0 ? double(mine) / double(theirs) : 1.0; }

// At most so long would `other` have taken for the work of `own`.
double bound(const BusyStep& own, const BusyStep& other) {
  const double times = std::max(
      {1.0, share(own.work.samples, other.work.samples), share(own.work.micro_batches, other.work.micro_batches)});
  return times * double(other.busy_ns);
}

}  // namespace

std::vector<double> straggler_scores(std::span<const BusyStep> steps) {
  std::vector<double> scores;
  for (const BusyStep& own : steps) {
    double least = double(own.busy_ns);
    for (const BusyStep& other : steps) {
      const bool idle = other.busy_ns <= 0 || (other.work.samples == 0 && own.work.samples > 0);
      if (other.part == own.part && !idle) least = std::min(least, bound(own, other));
    }
    scores.push_back(own.busy_ns > 0 ? least / double(own.busy_ns) : 1.0);
  }
  return scores;
}

void StragglerMonitor::begin_world() { seen_.clear(); }

std::vector<Straggler> StragglerMonitor::look(std::span<const BusyStep> steps) {
  scores_ = straggler_scores(steps);
  seen_.resize(steps.size());
  std::vector<Straggler> found;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    Seen& seen = seen_[i];
    const TimeNs busy = steps[i].busy_ns;
    if (busy > 0 && seen.best_ns > 0) scores_[i] = std::min(scores_[i], double(seen.best_ns) / double(busy));
    if (busy > 0) seen.best_ns = seen.best_ns > 0 ? std::min(seen.best_ns, busy) : busy;
    seen.below = scores_[i] < plan_.score_below ? seen.below + 1 : 0;
    if (seen.below == plan_.steps) found.push_back({steps[i].rank, scores_[i], seen.below});
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Straggler& a, const Straggler& b) { return a.score < b.score; });
  return found;
}

}  // namespace seeksim::runtime
