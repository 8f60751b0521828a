#include "runtime/layout/segments.h"

#include <algorithm>

namespace seeksim::runtime {

std::vector<Segment> segments_of(int begin, int end, const CheckpointingPlan& plan) {
  std::vector<Segment> segments;
  const auto chosen = [&](int l) { return std::find(plan.layers.begin(), plan.layers.end(), l) != plan.layers.end(); };
  const int each = plan.every > 0 ? plan.every : 1;
  for (int first = begin; first < end; first += each) {
    segments.push_back({first, std::min(first + each, end), plan.every > 0 || chosen(first)});
  }
  return segments;
}

std::vector<ModuleUse> forward_uses(const ModelPiece& piece, int layers) {
  std::vector<ModuleUse> uses;
  if (piece.embeds) uses.push_back({0, Phase::forward});
  for (int l = piece.first; l < piece.end; ++l) uses.push_back({1 + l, Phase::forward});
  if (piece.heads) uses.push_back({layers + 1, Phase::forward});
  return uses;
}

std::vector<ModuleUse> backward_uses(const ModelPiece& piece, int layers, const CheckpointingPlan& plan) {
  std::vector<ModuleUse> uses;
  if (piece.heads) uses.push_back({layers + 1, Phase::backward});
  const std::vector<Segment> segments = segments_of(piece.first, piece.end, plan);
  for (auto segment = segments.rbegin(); segment != segments.rend(); ++segment) {
    for (int l = segment->first; l + 1 < segment->end; ++l) uses.push_back({1 + l, Phase::recompute});
    for (int l = segment->end - 1; l >= segment->first; --l) uses.push_back({1 + l, Phase::backward});
  }
  if (piece.embeds) uses.push_back({0, Phase::backward});
  return uses;
}

std::vector<ModuleUse> weight_uses(const ModelPiece& piece, const CheckpointingPlan& plan) {
  std::vector<ModuleUse> uses;
  const std::vector<Segment> segments = segments_of(piece.first, piece.end, plan);
  for (auto segment = segments.rbegin(); segment != segments.rend(); ++segment) {
    for (int l = segment->first; segment->recomputed && l < segment->end; ++l)
      uses.push_back({1 + l, Phase::recompute});
  }
  return uses;
}

std::vector<ModuleUse> module_uses(int layers, const CheckpointingPlan& plan) {
  const ModelPiece whole{0, layers, true, true};
  std::vector<ModuleUse> uses = forward_uses(whole, layers);
  const std::vector<ModuleUse> backward = backward_uses(whole, layers, plan);
  uses.insert(uses.end(), backward.begin(), backward.end());
  return uses;
}

}  // namespace seeksim::runtime
