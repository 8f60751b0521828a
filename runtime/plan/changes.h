// Changes of the configuration in the middle of a training (Definition::changes): what is in force in a step, and which
// change a divergence undoes. Pure functions, so that all members, a redone step and a restarted run decide alike.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "runtime/plan/plan.h"

namespace seeksim::runtime {

struct InForce {
  double lr_scale = 1;
  double gradient_clipping = 0;  // 0: off
};
// For the update of this step. undone: steps of changes that were rolled back.
InForce in_force(const Definition& definition, std::span<const std::int64_t> undone, std::int64_t step);

// Whether the configuration changes in this step.
bool changes_at(const Definition& definition, std::int64_t step);

// The step of the change that is rolled back when the numbers of `step` leave their range: the last one, where it is
// so recent. A change acts on its step's update, so that the next step's numbers are the first to show it.
std::optional<std::int64_t> change_to_undo(const TrainPlan& plan, std::span<const std::int64_t> undone,
                                           std::int64_t step);

// Whether a divergence in `step` or later may yet undo a change in [from, below).
bool may_undo_within(const TrainPlan& plan, std::span<const std::int64_t> undone, std::int64_t step, std::int64_t from,
                     std::int64_t below);

}  // namespace seeksim::runtime
