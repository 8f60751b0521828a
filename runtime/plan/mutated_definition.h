// Mutants that are an edit of the definition that a run trains by, while the scenario says another one.
#pragma once

#include "runtime/plan/plan.h"
#include "runtime/rules/mutants.h"

namespace seeksim::runtime {

// Whether the mutant is one of those.
bool edits_definition(Mutant mutant);
// Edits it; nothing where it is none of those.
void mutate(Mutant mutant, Definition& definition);

}  // namespace seeksim::runtime
