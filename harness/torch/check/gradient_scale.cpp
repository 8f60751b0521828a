#include "harness/torch/check/gradient_scale.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

namespace seeksim::harness::torch {
namespace {

// The first step begins with the same weights: what is left is rounding, and much less than this.
constexpr double kSameScale = 0.05;

// Norms by name, of the first step.
std::map<std::string, double> norms_of(const TorchRun& run) {
  std::map<std::string, double> norms;
  if (run.ranks.empty() || !run.ranks.front().record) return norms;
  const pytorch::RankRecord& record = *run.ranks.front().record;
  for (const pytorch::TensorEntry& tensor : record.tensors)
    if (tensor.use == pytorch::TensorUse::gradient && tensor.whole && tensor.step == 0)
      norms.emplace(record.text(tensor.name), tensor.measure.norm);
  return norms;
}

}  // namespace

double gradient_scale(const TorchRun& plain, const TorchRun& turned) {
  const std::map<std::string, double> a = norms_of(plain), b = norms_of(turned);
  std::vector<double> scales;
  for (const auto& [name, norm] : a) {
    const auto other = b.find(name);
    if (other == b.end()) continue;
    const double scale = other->second / norm;
    if (std::isfinite(scale) && scale > 0) scales.push_back(scale);
  }
  if (scales.empty()) return 1;
  const auto middle = scales.begin() + std::ptrdiff_t(scales.size() / 2);
  std::nth_element(scales.begin(), middle, scales.end());
  return *middle;
}

std::string scale_text(const TorchRun& plain, const TorchRun& turned) {
  const double scale = gradient_scale(plain, turned);
  if (std::fabs(scale - 1) <= kSameScale) return "";
  const double ranks = double(turned.ranks.size()) / double(plain.ranks.size());
  std::string text = fmt::format("in step 0 the optimizer gets gradients {:.3g} times as large on {} ranks as on {}",
                                 scale, turned.ranks.size(), plain.ranks.size());
  if (std::fabs(scale - ranks) <= kSameScale * ranks)
    text += ": they are added over the ranks, and nothing divides them by their number";
  return text;
}

}  // namespace seeksim::harness::torch
