// The judges of the checks that look at what a run as a whole came to: final state, faults, recoveries, times, layout.
// Rows of check_table.cpp; those of one subject are beside it (inside_a_step.h, numbers.h, ...).
#pragma once

#include <string>

#include "harness/oracles/evidence.h"

namespace seeksim::harness {

Finding golden(const Evidence& e, const std::string& argument);
Finding ranks_agree(const Evidence& e, const std::string& argument);
Finding faults_fired(const Evidence& e, const std::string& argument);
Finding culprit(const Evidence& e, const std::string& argument);
Finding finishes_within(const Evidence& e, const std::string& argument);
Finding no_recovery(const Evidence& e, const std::string& argument);
Finding recoveries(const Evidence& e, const std::string& argument);
Finding evicted(const Evidence& e, const std::string& argument);
Finding joined(const Evidence& e, const std::string& argument);
Finding loss_falls(const Evidence& e, const std::string& argument);
Finding slowdown(const Evidence& e, const std::string& argument);
Finding overlap(const Evidence& e, const std::string& argument);
Finding goodput(const Evidence& e, const std::string& argument);
Finding young_daly(const Evidence& e, const std::string& argument);
Finding straggler(const Evidence& e, const std::string& argument);
Finding diverged(const Evidence& e, const std::string& argument);
Finding layout(const Evidence& e, const std::string& argument);
Finding no_races(const Evidence& e, const std::string& argument);
Finding no_poison(const Evidence& e, const std::string& argument);
// Whether it looked at values, or found something in what operations declare to read.
bool has_poison_to_judge(const Evidence& e);

}  // namespace seeksim::harness
