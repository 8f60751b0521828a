// How far the model is from what was published, as Markdown.
#pragma once

#include <string>
#include <vector>

#include "harness/calibration/memory_measurements.h"

namespace seeksim::harness::calibration {

// A row a class of measurements, for rows and series that the fit has not seen and for those that it has.
std::string error_table(const std::vector<Measurement>& rows);
// A row a series: its rows, its errors, and for steps Kendall's tau of their order.
std::string series_table(const std::vector<Measurement>& rows);
// The same of peaks of memory; below it, how often layouts ran that were said to fit.
std::string memory_table(const std::vector<MemoryMeasurement>& rows);
std::string memory_series_table(const std::vector<MemoryMeasurement>& rows);
// A row a constant.
std::string constant_table();
// A row a source.
std::string source_table(const std::vector<Source>& sources);

}  // namespace seeksim::harness::calibration
