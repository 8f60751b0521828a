// Predicted against published, as plain SVG: a point a measurement, on logarithmic axes, with the band of 10 %.
#pragma once

#include <string>
#include <vector>

#include "harness/calibration/memory_measurements.h"

namespace seeksim::harness::calibration {

// Seconds of steps.
std::string steps_picture(const std::vector<Measurement>& rows);
// GB of a GPU's peak, of rows that are no fits.
std::string memory_picture(const std::vector<MemoryMeasurement>& rows);

}  // namespace seeksim::harness::calibration
