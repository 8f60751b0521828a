// LossScaler: the scale by which the loss is multiplied so that 16-bit gradients do not vanish, and SkipPolicy: when to
// stop a run that only skips. Both are pure functions of the steps' overflow flags, which the vote makes equal on all
// ranks: no rank can come to another scale, and a step that is redone before its commit point advances nothing.
//
// Two machines, each with its framework's keys, defaults and arithmetic:
//   dynamic  DeepSpeed 0.19.6, ZeRO 1 to 3 (DynamicLossScaler). A Python float: held and computed as double.
//   torch    GradScaler. An fp32 tensor: factors are doubles, the product is made in double and rounded to fp32.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace seeksim::runtime {

enum class LossScalerKind : std::uint8_t {
  none,          // the scale is 1: fp32 and bf16
  static_scale,  // loss_scale, for ever
  dynamic,       // DeepSpeed's
  torch          // torch's GradScaler
};

struct LossScalerPlan {
  LossScalerKind kind = LossScalerKind::none;
  // DeepSpeed's section "fp16".
  double loss_scale = 0;  // 0: dynamic
  int initial_scale_power = 16;
  std::int64_t loss_scale_window = 1000;
  std::int64_t hysteresis = 2;
  bool consecutive_hysteresis = false;
  double min_loss_scale = 1;
  bool raise_error_at_min_scale = true;  // no key in DeepSpeed's configuration: an argument of its scaler
  // GradScaler's arguments.
  double init_scale = 65536;
  double growth_factor = 2;
  double backoff_factor = 0.5;
  std::int64_t growth_interval = 2000;
  bool enabled = true;  // false: the scale is 1. A non-finite gradient is skipped all the same
  friend bool operator==(const LossScalerPlan&, const LossScalerPlan&) = default;
};

// What is wrong with the plan, a sentence each that begins with the key; empty: nothing.
std::vector<std::string> problems(const LossScalerPlan& plan);

// All that a checkpoint must hold and all that ranks must agree on.
struct LossScalerState {
  double scale = 1;                 // of the next step's loss
  std::int64_t iteration = 0;       // dynamic: updates so far
  std::int64_t last_overflow = -1;  // dynamic: the iteration of the last overflow
  std::int64_t hysteresis = 1;      // dynamic: at 1, an overflow halves; above, it is tolerated and counts down
  std::int64_t growth_tracker = 0;  // torch: good steps since the scale last moved
  bool stopped = false;             // dynamic: an overflow came at the minimum. The run ends here
  friend bool operator==(const LossScalerState&, const LossScalerState&) = default;
};

LossScalerState initial_state(const LossScalerPlan& plan);
// The state after a step that did or did not overflow; every overflow is a skipped step, tolerated or not. An overflow
// at the minimum changes nothing but `stopped`, and from there on nothing moves.
LossScalerState next(const LossScalerPlan& plan, const LossScalerState& state, bool overflow);
// DeepSpeed's own words, and what to do; empty: the run goes on.
std::string stop_text(const LossScalerPlan& plan, const LossScalerState& state);

// For a checkpoint, a digest or a ballot: equal words if and only if equal states (scales are never NaN or -0).
using LossScalerWords = std::array<std::uint64_t, 6>;
LossScalerWords to_words(const LossScalerState& state);
LossScalerState from_words(const LossScalerWords& words);

// 1/scale as both frameworks compute it: in double, rounded to fp32. Exact where the scale is a power of two.
float unscale_factor(double scale);

class LossScaler {
 public:
  explicit LossScaler(const LossScalerPlan& plan);

  double scale() const { return state_.scale; }
  const LossScalerState& state() const { return state_; }
  // What scale() will be after a step that did or did not overflow.
  double scale_after(bool overflow) const { return next(plan_, state_, overflow).scale; }
  // At the commit point, with the vote's answer, once a step.
  void update(bool overflow) { state_ = next(plan_, state_, overflow); }
  void restore(const LossScalerState& state) { state_ = state; }
  std::string stop_text() const { return runtime::stop_text(plan_, state_); }

 private:
  LossScalerPlan plan_;
  LossScalerState state_;
};

// ---- when to stop ------------------------------------------------------------------------------------------------

struct SkipPlan {
  std::int64_t stop_after = 0;  // skipped steps in a row; 0: skip for ever
  friend bool operator==(const SkipPlan&, const SkipPlan&) = default;
};

// What a committed step looked like.
struct SkipEvent {
  std::int64_t step = 0;
  bool skipped = false;
  double scale = 1;            // of this step's loss
  std::int64_t nonfinite = 0;  // elements of the gradient, over all ranks
};

struct SkipState {
  std::int64_t steps = 0;        // seen
  std::int64_t skipped = 0;      // of those
  std::int64_t consecutive = 0;  // the run of skipped steps that is under way
  // The first and last step, and the scales, of that run of skipped steps.
  std::int64_t first_step = -1;
  std::int64_t last_step = -1;
  double first_scale = 1;
  double last_scale = 1;
  std::int64_t nonfinite_min = 0;  // of a step
  std::int64_t nonfinite_max = 0;
  friend bool operator==(const SkipState&, const SkipState&) = default;
};

SkipState next(const SkipState& state, const SkipEvent& event);
// What was seen and what to do; empty: go on.
std::string stop_text(const SkipPlan& plan, const SkipState& state);

}  // namespace seeksim::runtime
