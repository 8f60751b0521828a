#include "harness/estimate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/segments.h"

namespace seeksim::harness {

Estimate estimate(const Scenario& scenario) {
  const runtime::Definition& d = scenario.train.definition;
  const double v = d.model.vocab, t = d.model.context, c = d.model.width, l = d.model.layers, h = d.model.heads;
  const double micro = scenario.train.layout.micro_batch, ranks = scenario.world.ranks();
  Estimate estimate;
  estimate.parameters =
      v * c + t * c + l * (12 * c * c + 13 * c) + 2 * c + (d.model.tied ? 0 : v * c) + (d.model.logit_scale ? 1 : 0);
  // Weights, gradient, two moments, and the subtree roots of the samples: at most two a level of the rank's share of
  // the batch, sent and received once each.
  const double levels = std::log2(std::max(2.0, double(d.global_batch) / ranks)) + 2;
  const double state = 4 * estimate.parameters * (4 + 2 * levels);
  // Activations kept for the backward pass, fp32: some 20 values of the width and the attention's probabilities, a
  // layer; logits and their gradient once.
  double kept = 0, longest = 0;
  for (const runtime::Segment& segment : runtime::segments_of(d.model.layers, scenario.train.layout.checkpointing)) {
    if (segment.recomputed) longest = std::max(longest, double(segment.layers()));
    kept += segment.recomputed ? 0 : 1;
  }
  const double activations =
      4 * micro *
      (l * t * c + (kept + longest) * (20 * t * c + 2 * h * t * t) + (d.model.logit_scale ? 3 : 2) * t * v + 4 * t * c);
  constexpr double kRank = 24 << 10;  // a fiber, its queues and its recorder
  estimate.bytes_per_rank = state + activations + kRank;
  estimate.bytes = estimate.bytes_per_rank * (ranks + 1) + double(d.data.bytes.size()) * 2;
  return estimate;
}

std::string count_text(double n) {
  if (n >= 1e9) return fmt::format("{:.4g} G", n / 1e9);
  if (n >= 1e6) return fmt::format("{:.4g} M", n / 1e6);
  if (n >= 1e4) return fmt::format("{:.4g} k", n / 1e3);
  return fmt::format("{:.0f}", n);
}

std::string bytes_text(double bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  int unit = 0;
  for (; bytes >= 1024 && unit < 6; ++unit) bytes /= 1024;
  return fmt::format("{:.4g} {}", bytes, kUnits[unit]);
}

}  // namespace seeksim::harness
