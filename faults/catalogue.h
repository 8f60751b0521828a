// The catalogue of faults, by family: one table from which names, parameters, defaults and validation come, so that
// what `seeksim list faults` prints, what a scenario may say and what the code does cannot drift apart.
#pragma once

#include <vector>

#include "faults/plan.h"

namespace seeksim::faults {

std::vector<FaultInfo> faults_of_ranks();    // processes, machines and devices
std::vector<FaultInfo> faults_of_links();    // links, messages, communicators, the control plane
std::vector<FaultInfo> faults_of_values();   // numbers and data
std::vector<FaultInfo> faults_of_storage();  // memory and files

inline const FaultInfo& info(FaultKind kind) { return catalogue()[std::size_t(kind)]; }

}  // namespace seeksim::faults
