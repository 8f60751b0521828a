// Fits the constants of the cost model to the measurements that the rule leaves to a fit. Deterministic.
#pragma once

#include <vector>

#include "harness/calibration/memory_measurements.h"

namespace seeksim::harness::calibration::testing {

// What the fit makes small: the sum of |log(predicted / measured)| over fitted rows, large collectives counting more
// and a long series of steps counting less than its rows.
double cost(const std::vector<Measurement>& rows, const Constants& constants);

// From each constant's start: one constant after the other a step up or down, steps growing and shrinking, until none
// is larger than a thousandth. First those that collectives depend on, on collectives alone; then the others.
Constants fit(const std::vector<Measurement>& rows);

// The same of peaks of memory; what ran or did not is in no fit. `others` has the constants of times.
double cost(const std::vector<MemoryMeasurement>& rows, const Constants& constants);
Constants fit(const std::vector<MemoryMeasurement>& rows, const Constants& others);

// constants.inl with the values of `constants`, four digits each.
std::string with_constants(const std::string& inl, const Constants& constants);

}  // namespace seeksim::harness::calibration::testing
