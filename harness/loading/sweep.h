// "sweep", "mode" and "sweep_skip" of a scenario, read.
#pragma once

#include "harness/input/reader.h"
#include "harness/scenario/sweep.h"

namespace seeksim::harness {

Sweep read_sweep(const Reader& top);

}  // namespace seeksim::harness
