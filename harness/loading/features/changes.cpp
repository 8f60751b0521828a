#include "harness/loading/features/changes.h"

#include <fmt/format.h>

#include <algorithm>

namespace seeksim::harness {

using namespace shapes;
using runtime::Change;

const Keys<Change>& change_keys() {
  static const Keys<Change> keys = {
      {"step", at(&Change::step), integer(1).required(), kBits,
       "The first step whose update it is in force for. Steps are numbered from 0."},
      {"lr_scale", at(&Change::lr_scale).unless_standard(), number().least(0).unset(), kBits,
       "From there on the learning rate is so many times what the optimizer and its schedule say."},
      {"gradient_clipping", at(&Change::gradient_clipping).unless_standard(), number().least(0).unset(), kBits,
       "From there on gradients are clipped to this norm; 0: they are not clipped."},
  };
  return keys;
}

void read_changes(const Reader& top, Scenario& scenario) {
  const Json* list = top.find("changes");
  if (list == nullptr || !list->is_array()) return;
  std::vector<Change>& changes = scenario.train.definition.changes;
  const std::int64_t steps = scenario.train.definition.steps;
  for (std::size_t i = 0; i < list->size(); ++i) {
    const Reader one((*list)[i], fmt::format("{}/{}", top.at("changes"), i), top.findings());
    Change change;
    change_keys().read(one, change);
    if (!change.lr_scale && !change.gradient_clipping)
      one.problem("", "the change changes nothing", "Give it an lr_scale or a gradient_clipping.");
    if (change.step >= steps)
      one.problem("step", fmt::format("there is no step {}", change.step), fmt::format("Use 1..{}.", steps - 1));
    if (!changes.empty() && change.step <= changes.back().step)
      one.problem("step", "changes have to stand in the order of their steps, and a step has one at most",
                  "Sort them, and put what changes in one step into one change.");
    changes.push_back(change);
  }
}

void check_undone(const Reader& golden, const Scenario& scenario) {
  const std::vector<Change>& changes = scenario.train.definition.changes;
  for (const std::int64_t step : scenario.golden.undo_changes) {
    if (std::any_of(changes.begin(), changes.end(), [&](const Change& change) { return change.step == step; }))
      continue;
    golden.problem("undo_changes", fmt::format("no change begins at step {}", step), "Name the step of a change.");
  }
}

Json changes_json(const Scenario& scenario) {
  Json list = Json::array();
  for (const Change& change : scenario.train.definition.changes) list.push_back(change_keys().written(change));
  return list;
}

}  // namespace seeksim::harness
