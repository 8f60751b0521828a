#include "runtime/segments.h"

#include <algorithm>

namespace seeksim::runtime {

std::vector<Segment> segments_of(int layers, const CheckpointingPlan& plan) {
  std::vector<Segment> segments;
  const auto chosen = [&](int l) { return std::find(plan.layers.begin(), plan.layers.end(), l) != plan.layers.end(); };
  const int each = plan.every > 0 ? plan.every : 1;
  for (int first = 0; first < layers; first += each) {
    segments.push_back({first, std::min(first + each, layers), plan.every > 0 || chosen(first)});
  }
  return segments;
}

std::vector<ModuleUse> module_uses(int layers, const CheckpointingPlan& plan) {
  const int head = layers + 1;
  std::vector<ModuleUse> uses;
  for (int module = 0; module <= head; ++module) uses.push_back({module, Phase::forward});
  uses.push_back({head, Phase::backward});
  const std::vector<Segment> segments = segments_of(layers, plan);
  for (auto segment = segments.rbegin(); segment != segments.rend(); ++segment) {
    for (int l = segment->first; l + 1 < segment->end; ++l) uses.push_back({1 + l, Phase::recompute});
    for (int l = segment->end - 1; l >= segment->first; --l) uses.push_back({1 + l, Phase::backward});
  }
  uses.push_back({0, Phase::backward});
  return uses;
}

}  // namespace seeksim::runtime
