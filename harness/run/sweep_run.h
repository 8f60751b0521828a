// A sweep from start to verdict: all rows are loaded first, goldens that several share are run once, then each row runs
// in a process of its own, and all must be as expected.
#pragma once

#include "harness/loading/load.h"
#include "harness/run/one_run.h"

namespace seeksim::harness {

// `base`: the scenario with its sweep, as `load` gives it. With options.row only that one. Throws BadInput where a row
// cannot be loaded, naming it.
Outcome run_sweep(const Scenario& base, const LoadOptions& load, const RunOptions& options, const Print& print);

}  // namespace seeksim::harness
