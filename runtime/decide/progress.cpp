#include "runtime/decide/progress.h"

#include <algorithm>

#include "kernels/digest.h"
#include "runtime/samples/data.h"

namespace seeksim::runtime {

Progress::Progress(const TrainPlan& plan)
    : plan_(plan),
      sampler_(plan.definition),
      scaler_(scaler_plan(plan.definition.quirks, plan.definition.scaler)),
      fp8_(plan.definition.fp8, plan.numerics == Numerics::shapes ? 0 : plan.definition.model.layers),
      dropped_batches_(plan.definition.drop_batches) {}

std::string Progress::stopped() const {
  const std::string scale = scaler_.stop_text();
  return scale.empty() ? stop_text(plan_.recovery.skip, skips_) : scale;
}

std::int64_t Progress::batch_of(std::int64_t step) const { return batch_of_step(dropped_batches_, step); }

std::int64_t Progress::data_position() const {
  return step_ == 0 ? 0 : (batch_of(step_ - 1) + 1) * plan_.definition.global_batch;
}

void Progress::account(std::int64_t step, bool skipped, std::int64_t nonfinite, bool scales_down) {
  skips_ = next(skips_, SkipEvent{step, skipped, scaler_.scale(), nonfinite});
  scaler_.update(scales_down);
}

void Progress::leave_out(const std::vector<std::int64_t>& batches, std::int64_t more) {
  left_out_ = batches;
  leaves_out_more_ = more;
}

void Progress::drop_left_out() {
  for (std::int64_t i = 0; i < leaves_out_more_; ++i) left_out_.push_back(batch_of(step_ + i));
  leaves_out_more_ = 0;
  dropped_batches_.insert(dropped_batches_.end(), left_out_.begin(), left_out_.end());
  std::sort(dropped_batches_.begin(), dropped_batches_.end());
  dropped_batches_.erase(std::unique(dropped_batches_.begin(), dropped_batches_.end()), dropped_batches_.end());
}

void Progress::undo_changes(const std::vector<std::int64_t>& steps) {
  undone_changes_.insert(undone_changes_.end(), steps.begin(), steps.end());
  std::sort(undone_changes_.begin(), undone_changes_.end());
  undone_changes_.erase(std::unique(undone_changes_.begin(), undone_changes_.end()), undone_changes_.end());
}

RunState Progress::state(std::int64_t optimizer_steps, std::uint32_t epoch) const {
  RunState state;
  state.contract_version = kernels::kContractVersion;
  state.definition = definition_digest(plan_.definition, step_);
  state.step = step_;
  state.data_position = data_position();
  if (sampler_.on()) state.sampler = sampler_.at(state.data_position);
  state.training_seed = plan_.definition.training_seed;
  state.optimizer_steps = optimizer_steps;
  state.scaler = scaler_.state();
  state.skips = skips_;
  state.fp8 = fp8_.states();
  state.dropped_batches = dropped_batches_;
  state.undone_changes = undone_changes_;
  state.epoch = epoch;
  return state;
}

void Progress::restore(const RunState& state) {
  step_ = state.step;
  dropped_batches_ = state.dropped_batches;
  undo_changes(state.undone_changes);
  scaler_.restore(state.scaler);
  skips_ = state.skips;
  fp8_.restore(state.fp8);
}

}  // namespace seeksim::runtime
