#include "runtime/plan/changes.h"

#include <algorithm>

namespace seeksim::runtime {
namespace {

bool is_undone(std::span<const std::int64_t> undone, const Change& change) {
  return std::find(undone.begin(), undone.end(), change.step) != undone.end();
}

}  // namespace

InForce in_force(const Definition& definition, std::span<const std::int64_t> undone, std::int64_t step) {
  InForce now{1, definition.gradient_clipping};
  for (const Change& change : definition.changes) {
    if (change.step > step || is_undone(undone, change)) continue;
    now.lr_scale = change.lr_scale.value_or(now.lr_scale);
    now.gradient_clipping = change.gradient_clipping.value_or(now.gradient_clipping);
  }
  return now;
}

bool changes_at(const Definition& definition, std::int64_t step) {
  return std::any_of(definition.changes.begin(), definition.changes.end(),
                     [&](const Change& change) { return change.step == step; });
}

std::optional<std::int64_t> change_to_undo(const TrainPlan& plan, std::span<const std::int64_t> undone,
                                           std::int64_t step) {
  if (!plan.recovery.rollback.on) return std::nullopt;
  std::optional<std::int64_t> last;
  for (const Change& change : plan.definition.changes) {
    if (change.step < step && !is_undone(undone, change)) last = change.step;
  }
  return last && step - *last <= plan.recovery.rollback.steps ? last : std::nullopt;
}

bool may_undo_within(const TrainPlan& plan, std::span<const std::int64_t> undone, std::int64_t step, std::int64_t from,
                     std::int64_t below) {
  if (!plan.recovery.rollback.on) return false;
  const std::vector<Change>& changes = plan.definition.changes;
  return std::any_of(changes.begin(), changes.end(), [&](const Change& change) {
    return change.step >= from && change.step < below && step - change.step <= plan.recovery.rollback.steps &&
           !is_undone(undone, change);
  });
}

}  // namespace seeksim::runtime
