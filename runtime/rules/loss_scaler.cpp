// The rules are those of DeepSpeed 0.19.6 and of PyTorch's GradScaler (docs/precision.md). What surprises most people:
// a step that hysteresis tolerates is skipped all the same, and in DeepSpeed the first growth comes on the
// (window + 1)-th good step.
#include "runtime/rules/loss_scaler.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "kernels/check.h"
#include "runtime/rules/host_math.h"

namespace seeksim::runtime {
namespace {

bool positive_finite(double x) { return x > 0 && x < std::bit_cast<double>(0x7ff0000000000000ULL); }

void check_dynamic(const LossScalerPlan& plan, std::vector<std::string>& out) {
  if (plan.loss_scale != 0) out.push_back(fmt::format("loss_scale {}: 0 is dynamic", plan.loss_scale));
  if (plan.initial_scale_power < 0 || plan.initial_scale_power > 127)
    out.push_back(fmt::format("initial_scale_power {}: 0 to 127, since the loss is fp32", plan.initial_scale_power));
  if (plan.loss_scale_window < 1) out.push_back(fmt::format("loss_scale_window {}: 1 or more", plan.loss_scale_window));
  if (plan.hysteresis < 1)
    out.push_back(fmt::format("hysteresis {}: 1 or more; 1 halves on the first overflow", plan.hysteresis));
  if (!positive_finite(plan.min_loss_scale))
    out.push_back(fmt::format("min_loss_scale {}: above 0 and finite", plan.min_loss_scale));
}

void check_torch(const LossScalerPlan& plan, std::vector<std::string>& out) {
  if (!(plan.init_scale > 0) || !host_finite(static_cast<float>(plan.init_scale)))
    out.push_back(fmt::format("init_scale {}: above 0 and finite in fp32", plan.init_scale));
  if (!(plan.growth_factor > 1) || !positive_finite(plan.growth_factor))
    out.push_back(fmt::format("growth_factor {}: above 1 and finite", plan.growth_factor));
  if (!(plan.backoff_factor > 0 && plan.backoff_factor < 1))
    out.push_back(fmt::format("backoff_factor {}: between 0 and 1", plan.backoff_factor));
  if (plan.growth_interval < 1) out.push_back(fmt::format("growth_interval {}: 1 or more", plan.growth_interval));
}

LossScalerState next_dynamic(const LossScalerPlan& plan, LossScalerState s, bool overflow) {
  if (overflow) {
    if (plan.hysteresis > 1 && s.hysteresis > 1) {
      --s.hysteresis;
    } else if (s.scale == plan.min_loss_scale && plan.raise_error_at_min_scale) {
      s.stopped = true;
      return s;
    } else {
      s.scale = std::max(s.scale / 2, plan.min_loss_scale);
    }
    s.last_overflow = s.iteration;
  } else {
    if (plan.consecutive_hysteresis) s.hysteresis = plan.hysteresis;
    const std::int64_t good_before = s.iteration - s.last_overflow - 1;
    if (good_before > 0 && good_before % plan.loss_scale_window == 0) {
      s.scale *= 2;
      s.hysteresis = plan.hysteresis;
    }
  }
  ++s.iteration;
  return s;
}

LossScalerState next_torch(const LossScalerPlan& plan, LossScalerState s, bool overflow) {
  if (overflow) {
    s.scale = static_cast<float>(s.scale * plan.backoff_factor);
    s.growth_tracker = 0;
  } else if (++s.growth_tracker == plan.growth_interval) {
    const float grown = static_cast<float>(s.scale * plan.growth_factor);
    if (host_finite(grown)) s.scale = grown;
    s.growth_tracker = 0;
  }
  return s;
}

}  // namespace

std::vector<std::string> problems(const LossScalerPlan& plan) {
  std::vector<std::string> out;
  if (plan.kind == LossScalerKind::static_scale && !positive_finite(plan.loss_scale))
    out.push_back(fmt::format("loss_scale {}: above 0 and finite; 0 is dynamic", plan.loss_scale));
  if (plan.kind == LossScalerKind::dynamic) check_dynamic(plan, out);
  if (plan.kind == LossScalerKind::torch && plan.enabled) check_torch(plan, out);
  return out;
}

LossScalerState initial_state(const LossScalerPlan& plan) {
  LossScalerState state;
  switch (plan.kind) {
    case LossScalerKind::none:
      break;
    case LossScalerKind::static_scale:
      state.scale = plan.loss_scale;
      break;
    case LossScalerKind::dynamic:
      for (int i = 0; i < plan.initial_scale_power; ++i) state.scale *= 2;
      state.hysteresis = plan.hysteresis;
      break;
    case LossScalerKind::torch:
      if (plan.enabled) state.scale = static_cast<float>(plan.init_scale);
      break;
  }
  return state;
}

LossScalerState next(const LossScalerPlan& plan, const LossScalerState& state, bool overflow) {
  if (state.stopped) return state;
  if (plan.kind == LossScalerKind::dynamic) return next_dynamic(plan, state, overflow);
  if (plan.kind == LossScalerKind::torch && plan.enabled) return next_torch(plan, state, overflow);
  return state;
}

std::string stop_text(const LossScalerPlan& plan, const LossScalerState& state) {
  if (!state.stopped) return {};
  return fmt::format(
      "Current loss scale already at minimum - cannot decrease scale anymore. Exiting run. (scale {}, min_loss_scale "
      "{}, "
      "after {} steps.) An overflow at the smallest scale is no matter of scale: look at the first non-finite value, "
      "or "
      "lower min_loss_scale",
      state.scale, plan.min_loss_scale, state.iteration);
}

LossScalerWords to_words(const LossScalerState& s) {
  return {std::bit_cast<std::uint64_t>(s.scale), std::uint64_t(s.iteration),      std::uint64_t(s.last_overflow),
          std::uint64_t(s.hysteresis),           std::uint64_t(s.growth_tracker), std::uint64_t(s.stopped)};
}

LossScalerState from_words(const LossScalerWords& words) {
  LossScalerState s;
  s.scale = std::bit_cast<double>(words[0]);
  s.iteration = std::int64_t(words[1]);
  s.last_overflow = std::int64_t(words[2]);
  s.hysteresis = std::int64_t(words[3]);
  s.growth_tracker = std::int64_t(words[4]);
  s.stopped = words[5] != 0;
  return s;
}

float unscale_factor(double scale) { return static_cast<float>(1.0 / scale); }

LossScaler::LossScaler(const LossScalerPlan& plan) : plan_(plan), state_(initial_state(plan)) {
  const std::vector<std::string> wrong = problems(plan);
  SEEKSIM_CHECK(wrong.empty(), "%s", wrong.front().c_str());
}

// ---- when to stop ------------------------------------------------------------------------------------------------

SkipState next(const SkipState& state, const SkipEvent& event) {
  SkipState s = state;
  ++s.steps;
  if (!event.skipped) {
    s.consecutive = 0;
    return s;
  }
  ++s.skipped;
  if (++s.consecutive == 1) {
    s.first_step = event.step;
    s.first_scale = event.scale;
    s.nonfinite_min = s.nonfinite_max = event.nonfinite;
  }
  s.last_step = event.step;
  s.last_scale = event.scale;
  s.nonfinite_min = std::min(s.nonfinite_min, event.nonfinite);
  s.nonfinite_max = std::max(s.nonfinite_max, event.nonfinite);
  return s;
}

std::string stop_text(const SkipPlan& plan, const SkipState& s) {
  if (plan.stop_after <= 0 || s.consecutive < plan.stop_after) return {};
  const std::string scale = s.first_scale == s.last_scale
                                ? fmt::format("the loss scale was {} all the time", s.last_scale)
                                : fmt::format("the loss scale went from {} to {}", s.first_scale, s.last_scale);
  const std::string values = s.nonfinite_min == s.nonfinite_max
                                 ? fmt::format("{}", s.nonfinite_max)
                                 : fmt::format("{} to {}", s.nonfinite_min, s.nonfinite_max);
  return fmt::format(
      "steps {} to {} were all skipped, {} in a row (the limit is {}), {} of {} steps in all; {}; {} gradient elements "
      "of "
      "a step were not finite. Look at the first non-finite value, or raise the limit",
      s.first_step, s.last_step, s.consecutive, plan.stop_after, s.skipped, s.steps, scale, values);
}

}  // namespace seeksim::runtime
