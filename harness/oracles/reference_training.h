// A scenario's definition as the reference takes it (reference/training.h).
#pragma once

#include <string>

#include "reference/training.h"
#include "runtime/plan/plan.h"

namespace seeksim::harness {

// Why the reference knows no such training; empty: it does.
std::string not_in_reference(const runtime::Definition& definition);
// Only a training that the reference knows.
reference::Training reference_training(const runtime::Definition& definition);

}  // namespace seeksim::harness
