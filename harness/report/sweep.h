// What a sweep looks like: a line a red row, a table of the rows, where the red ones cluster; rows[] as JSON.
#pragma once

#include <string>
#include <vector>

#include "harness/report/outcome.h"
#include "harness/report/report.h"
#include "harness/scenario/sweep.h"

namespace seeksim::harness {

// One row of a sweep that was run.
struct RowResult {
  std::size_t number = 0;
  Settings settings;
  std::string command;  // that runs it alone
  Outcome outcome;
};

// Rows of more ranks than there are processes: not run.
struct TooLarge {
  std::size_t rows = 0;
  int processes = 0;     // that there are
  int ranks_wanted = 0;  // of the largest row
};

struct SweepResult {
  const Scenario& base;
  std::size_t combinations = 0;  // rows before anything was drawn
  std::vector<RowResult> rows;
  TooLarge too_large;
  std::vector<Json> goldens;  // {key, stored, origin, rows}
  double wall_s = 0;
};

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
