// A sweep as a picture: its red rows first, counts by axis, and a grid of all rows by their settings.
#pragma once

#include <string>

#include "harness/input/json.h"

namespace seeksim::harness::html {

// Why each of the first red rows is red, and the command that runs it alone; empty where none is.
std::string red_rows_part(const Json& report);
std::string axes_part(const Json& report);
// A table for rows that set the same keys. Its columns: the setting with the most values; its rows: the other settings.
std::string grid_part(const Json& report);
std::string all_rows_part(const Json& report);

}  // namespace seeksim::harness::html
