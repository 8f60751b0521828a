// Progress: where the run is, apart from its tensors: steps and batches, the loss scale, steps that were skipped. The
// same on all members; a checkpoint and a rank that joins get it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/decide/run_state.h"
#include "runtime/plan/plan.h"
#include "runtime/rules/loss_scaler.h"
#include "runtime/samples/sampler.h"

namespace seeksim::runtime {

class Progress {
 public:
  explicit Progress(const TrainPlan& plan);

  std::int64_t step() const { return step_; }  // the next to be committed
  bool finished() const { return step_ >= plan_.definition.steps; }
  // Why the run has to end here though nothing failed: nothing but skipped steps. Empty: it goes on. The same on all.
  std::string stopped() const;

  // The global batch of a step: some are left out for good.
  std::int64_t batch_of(std::int64_t step) const;
  std::int64_t data_position() const;  // samples that are used up
  const LossScaler& scaler() const { return scaler_; }
  const SkipState& skips() const { return skips_; }
  const Fp8Scales& fp8() const { return fp8_; }

  // The step is committed: the next one is under way.
  void advance() { ++step_; }
  // Undoes advance(): the step is under way once more.
  void step_back() { --step_; }
  // What a committed step leaves of itself: whether it was skipped, and how many values were not finite. scales_down:
  // the loss scale takes it for an overflow.
  void account(std::int64_t step, bool skipped, std::int64_t nonfinite, bool scales_down);

  // What an applied step leaves of its magnitudes, of each tensor that is cast to 8 bits; empty: nothing.
  void move_scales(std::span<const float> amaxes) { fp8_.update(amaxes); }

  // Batches to leave out after a restart from a checkpoint: those known bad, and `more` from the first undone step on.
  void leave_out(const std::vector<std::int64_t>& batches, std::int64_t more);
  // The state of a checkpoint is there. What it does not know of yet stays left out all the same.
  void drop_left_out();
  const std::vector<std::int64_t>& dropped_batches() const { return dropped_batches_; }
  const std::vector<std::int64_t>& left_out() const { return left_out_; }
  std::int64_t leaves_out_more() const { return leaves_out_more_; }

  // Changes of the configuration that are not in force any more, by their steps. They stay undone whatever checkpoint
  // the run goes back to.
  void undo_changes(const std::vector<std::int64_t>& steps);
  const std::vector<std::int64_t>& undone_changes() const { return undone_changes_; }

  // The step of the checkpoint that this run began with; 0: with none.
  std::int64_t began_at() const { return began_at_; }
  void begins_here() { began_at_ = step_; }

  RunState state(std::int64_t optimizer_steps, std::uint32_t epoch) const;
  void restore(const RunState& state);

 private:
  const TrainPlan& plan_;
  Sampler sampler_;
  std::int64_t step_ = 0;
  std::int64_t began_at_ = 0;
  LossScaler scaler_;
  SkipState skips_;
  Fp8Scales fp8_;
  std::vector<std::int64_t> dropped_batches_;  // ascending: the definition's, and those found bad on the way
  std::vector<std::int64_t> left_out_;         // batches, whatever the checkpoint says
  std::int64_t leaves_out_more_ = 0;
  std::vector<std::int64_t> undone_changes_;  // ascending
};

}  // namespace seeksim::runtime
