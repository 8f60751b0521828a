// When a run's numbers leave the range in which it can go on: the loss or the gradient norm of a step beyond a multiple
// of their mean over the last steps. All members see the same numbers, and so come to the same finding.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "runtime/plan/plan.h"

namespace seeksim::runtime {

struct Divergence {
  std::int64_t step = 0;
  const char* what = "";  // "loss" or "gradient norm"
  double value = 0;
  double mean = 0;
};
// "the loss of step 18 is 21.3, more than 5 times the mean of the 20 steps before it (2.4)"
std::string text(const Divergence& found, const DivergencePlan& plan);

class DivergenceMonitor {
 public:
  explicit DivergenceMonitor(const DivergencePlan& plan) : plan_(plan) {}
  // A step that is about to be applied. A step that diverges stays out of the window.
  std::optional<Divergence> look(std::int64_t step, double loss, double grad_norm);

  struct Step {
    double loss = 0, grad_norm = 0;
    friend bool operator==(const Step&, const Step&) = default;
  };
  // The steps that the next one is compared with. A joining rank has to know them.
  const std::deque<Step>& window() const { return window_; }
  void continue_with(std::deque<Step> window) { window_ = std::move(window); }

 private:
  DivergencePlan plan_;
  std::deque<Step> window_;
};

}  // namespace seeksim::runtime
