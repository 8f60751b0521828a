// EvaluationPlan: when the loss of held-out samples is computed, and of how many. It decides no bit of the weights.
#pragma once

#include <cstdint>

namespace seeksim::runtime {

struct EvaluationPlan {
  std::int64_t every_steps = 0;  // after so many committed steps each time; 0: after the last step only
  int samples = 0;               // held-out samples of one evaluation; 0: there is none
  bool on() const { return samples > 0; }
  // Before the step that follows `steps` committed ones. The evaluation after the last step is one more.
  bool is_due(std::int64_t steps) const { return on() && every_steps > 0 && steps > 0 && steps % every_steps == 0; }
  // Of a training of so many steps.
  std::int64_t count(std::int64_t steps) const {
    return !on() ? 0 : 1 + (every_steps > 0 && steps > 0 ? (steps - 1) / every_steps : 0);
  }
  friend bool operator==(const EvaluationPlan&, const EvaluationPlan&) = default;
};

}  // namespace seeksim::runtime
