#include "harness/oracles/quirk_difference.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "harness/record/same_bits.h"
#include "runtime/rules/quirks.h"

namespace seeksim::harness {
namespace {

using runtime::quirk_names;
using runtime::Quirks;

// |a - b| / |b|, in words: a number that is not finite has no distance from another.
class Distance {
 public:
  void add(float a, float b, std::int64_t at) {
    if (same_bits(a, b)) return;
    ++differing_;
    if (!std::isfinite(a) || !std::isfinite(b)) {
      if (odd_.empty()) odd_ = fmt::format("{} instead of {} in step {}", a, b, at);
      return;
    }
    largest_ = std::max(largest_, std::fabs(double(a) - double(b)) / std::max(1e-30, std::fabs(double(b))));
  }
  std::string text(const char* what) const {
    if (differing_ == 0) return fmt::format("{} as without", what);
    std::string text = fmt::format("{} in {} step{}", what, differing_, differing_ == 1 ? "" : "s");
    if (largest_ > 0) text += fmt::format(", by {:.3g} at most", largest_);
    return odd_.empty() ? text : text + ", " + odd_;
  }

 private:
  std::int64_t differing_ = 0;
  double largest_ = 0;
  std::string odd_;
};

// What of a step is another; empty: nothing.
std::string of_step(const runtime::StepRecord& a, const runtime::StepRecord& b) {
  if (a.skipped != b.skipped) return a.skipped ? "it is skipped" : "it is applied";
  if (a.loss_scale != b.loss_scale) return fmt::format("loss scale {} instead of {}", a.loss_scale, b.loss_scale);
  if (!same_bits(a.loss, b.loss)) return fmt::format("loss {} instead of {}", a.loss, b.loss);
  if (!same_bits(a.grad_norm, b.grad_norm)) return fmt::format("norm {} instead of {}", a.grad_norm, b.grad_norm);
  if (a.lr != b.lr) return fmt::format("learning rate {} instead of {}", a.lr, b.lr);
  return "";
}

// Elements and tensors that differ, and the largest difference as a share of the tensor's largest value.
std::string of_weights(const std::vector<runtime::NamedTensor>& have, const std::vector<runtime::NamedTensor>& want) {
  if (have.empty() || have.size() != want.size()) return "";
  std::size_t elements = 0, all = 0, tensors = 0, odd = 0;
  double largest = 0;
  for (std::size_t t = 0; t < have.size(); ++t) {
    const std::vector<float>&a = have[t].values, &b = want[t].values;
    std::size_t differing = 0;
    double range = 0, distance = 0;
    for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
      if (std::isfinite(b[i])) range = std::max(range, std::fabs(double(b[i])));
      if (same_bits(a[i], b[i])) continue;
      ++differing;
      if (std::isfinite(a[i]) && std::isfinite(b[i]))
        distance = std::max(distance, std::fabs(double(a[i]) - double(b[i])));
      else
        ++odd;
    }
    all += a.size();
    elements += differing;
    tensors += differing > 0;
    if (range > 0) largest = std::max(largest, distance / range);
  }
  if (elements == 0) return "";
  return fmt::format("{} of {} weights in {} of {} tensors{}{}", elements, all, tensors, have.size(),
                     largest > 0 ? fmt::format(", by {:.3g} of the tensor's largest at most", largest) : "",
                     odd > 0 ? fmt::format(", {} of them not finite", odd) : "");
}

}  // namespace

Finding quirk_differs(const Evidence& e, const std::string& step) {
  const Quirks& quirks = e.scenario.train.definition.quirks;
  if (!quirks.any()) return blind("the scenario has no quirks");
  if (e.without_quirks == nullptr) return blind("there is no run without them to compare with");
  const std::vector<runtime::StepRecord>&have = e.run.steps, &want = e.without_quirks->steps;
  if (have.empty() || want.empty()) return blind("no step was committed");
  Distance loss, norm;
  std::string first;
  std::int64_t first_step = -1;
  for (std::size_t i = 0; i < std::min(have.size(), want.size()); ++i) {
    loss.add(have[i].loss, want[i].loss, have[i].step);
    norm.add(have[i].grad_norm, want[i].grad_norm, have[i].step);
    if (first_step >= 0) continue;
    first = of_step(have[i], want[i]);
    if (!first.empty()) first_step = have[i].step;
  }
  const std::string weights = of_weights(e.run.training.final_weights, e.without_quirks->training.final_weights);
  const std::string names = fmt::format("{}", fmt::join(quirk_names(quirks), ", "));
  if (first_step < 0 && weights.empty() && have.size() == want.size())
    return bad(
        fmt::format("{} had no effect: {} losses, norms and rates, and all weights, are those of the run without",
                    names, have.size()));
  const std::string detail =
      fmt::format("{}; {}; {}; {}",
                  first_step < 0 ? "no step's numbers differ" : fmt::format("first in step {}: {}", first_step, first),
                  loss.text("loss"), norm.text("norm"), weights.empty() ? "weights as without" : weights);
  if (!step.empty() && step != std::to_string(first_step))
    return bad(fmt::format("it was to differ in step {} first: {}", step, detail));
  return good(detail);
}

}  // namespace seeksim::harness
