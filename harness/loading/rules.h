// Words that name a rule: built-in ones, and those that a program of somebody's has added (extensions.h).
#pragma once

#include "harness/input/bindings.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

// "world.schedule", "world.placement", "world.all_gather" and "recovery.policy", read and written.
Binding<Scenario> schedule_word();
Binding<Scenario> placement_word();
Binding<Scenario> gather_word();
Binding<runtime::RecoveryPlan> policy_word();

// What a rule of somebody's cannot be along with. Once all else is read.
void check_rules(const Reader& top, const Scenario& scenario);

}  // namespace seeksim::harness
