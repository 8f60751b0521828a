#include "harness/record/choices.h"

#include <algorithm>

namespace seeksim::harness {

void Choices::add(const runtime::ChoicesRecord& told, std::uint32_t epochs) {
  OfStep& step = steps_[told.step];
  const std::uint32_t epoch = told.epoch + epochs;
  if (epoch != step.epoch) step.by_layer.clear();
  step.epoch = epoch;
  const std::size_t each = told.counts.size() / told.layers.size();
  for (std::size_t k = 0; k < told.layers.size(); ++k) {
    std::vector<std::int64_t>& sums = step.by_layer[told.layers[k]];
    sums.resize(std::max(sums.size(), each));
    for (std::size_t i = 0; i < each; ++i) sums[i] += told.counts[k * each + i];
  }
}

void Choices::keep(std::size_t steps) { steps_.erase(steps_.lower_bound(std::int64_t(steps)), steps_.end()); }

std::vector<ExpertLoad> Choices::loads() const {
  std::vector<ExpertLoad> loads;
  for (const auto& [step, of] : steps_) {
    ExpertLoad load{.step = step};
    double choices = 0, dropped = 0;
    for (const auto& [layer, counts] : of.by_layer) {
      const std::size_t experts = counts.size() / 2;
      double here = 0;
      for (std::size_t e = 0; e < experts; ++e) here += double(counts[e]), dropped += double(counts[experts + e]);
      choices += here;
      for (std::size_t e = 0; e < experts && here > 0; ++e) {
        const double share = double(counts[e]) / here;
        if (share > load.share) load.share = share, load.layer = layer, load.expert = int(e);
      }
    }
    if (choices > 0) load.dropped = dropped / choices;
    loads.push_back(load);
  }
  return loads;
}

}  // namespace seeksim::harness
