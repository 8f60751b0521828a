// The mean is summed anew in each step, oldest first, so that it does not depend on what has left the window.
#include "runtime/detect/divergence.h"

#include <cstdio>

namespace seeksim::runtime {

std::string text(const Divergence& found, const DivergencePlan& plan) {
  char numbers[200];
  std::snprintf(numbers, sizeof numbers,
                "the %s of step %lld is %.6g, more than %.4g times the mean of the %lld steps before it (%.6g)",
                found.what, static_cast<long long>(found.step), found.value, plan.factor,
                static_cast<long long>(plan.window_steps), found.mean);
  return numbers;
}

std::optional<Divergence> DivergenceMonitor::look(std::int64_t step, double loss, double grad_norm) {
  if (std::int64_t(window_.size()) >= plan_.window_steps) {
    Step sum{0, 0};
    for (const Step& s : window_) sum.loss += s.loss, sum.grad_norm += s.grad_norm;
    const double n = double(window_.size());
    // Written so that what is no number is found too.
    if (!(loss <= plan_.factor * (sum.loss / n))) return Divergence{step, "loss", loss, sum.loss / n};
    if (!(grad_norm <= plan_.factor * (sum.grad_norm / n)))
      return Divergence{step, "gradient norm", grad_norm, sum.grad_norm / n};
    window_.pop_front();
  }
  window_.push_back({loss, grad_norm});
  return std::nullopt;
}

}  // namespace seeksim::runtime
