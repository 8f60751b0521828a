// The rows of a sweep as a table for people: axes, verdict, and the figures that the scenario shows.
#pragma once

#include <string>

#include "harness/report/report.h"
#include "harness/report/sweep_result.h"

namespace seeksim::harness {

// Up to 24 rows, or with `all` every one of them. Of more, the red ones and the first and the last three; a line says
// how many are left out. Figures for which 100 columns have no room are left out from the end, and named below; where
// the axes alone are wider, they share one column.
std::string table_of(const SweepResult& sweep, bool all, const Style& style);

// A figure as people read it: 31.41 of gigabytes, 1.5 GiB of bytes, 4.2 % of a share; "-" where there is none.
std::string figure_text(const std::string& name, const Json& value);

}  // namespace seeksim::harness
