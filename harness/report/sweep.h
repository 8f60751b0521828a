// What a sweep looks like: a line a red row, a table of the rows, where the red ones cluster; rows[] as JSON.
#pragma once

#include <string>
#include <vector>

#include "harness/report/report.h"
#include "harness/report/sweep_result.h"

namespace seeksim::harness {

std::string sweep_header_text(const Scenario& base, const std::vector<Settings>& rows, std::size_t combinations,
                              const Style& style);
// One row, while the others still run; empty when it is as expected.
std::string red_row_text(const SweepResult& sweep, const RowResult& row, const Style& style);
// The table of rows (with `all` the whole of it), counts by axis where it does not show every row, the first red rows
// with all they need, the verdict.
std::string sweep_text(const SweepResult& sweep, bool all, const Style& style);
Json sweep_json(const SweepResult& sweep);

ExitStatus status_of(const SweepResult& sweep);

}  // namespace seeksim::harness
