// Limits on the numbers of a run that a monitoring board shows. What passes one is an alarm.
#pragma once

#include <cstdint>
#include <optional>

namespace seeksim::harness {

struct Alarms {
  std::optional<double> loss_max, loss_min;   // of a committed step
  std::optional<double> grad_norm_max;        // of a committed step, before clipping
  std::optional<double> loss_scale_min;       // that a step used
  std::optional<double> step_s_max;           // from one commit to the next
  std::optional<double> memory_share_max;     // the peak of the rank that holds most, of the device's memory
  std::optional<std::int64_t> nonfinite_max;  // steps whose loss or gradient norm is not finite
  std::optional<double> expert_share_max;     // of a layer's choices in a step, those of one expert
  std::optional<double> dropped_share_max;    // of a step's choices, those that found no room
  friend bool operator==(const Alarms&, const Alarms&) = default;
  bool any() const { return *this != Alarms{}; }
  bool of_experts() const { return expert_share_max || dropped_share_max; }
};

}  // namespace seeksim::harness
