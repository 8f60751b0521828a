// What a sweep came to: its rows, and what was left out.
#pragma once

#include <string>
#include <vector>

#include "harness/report/outcome.h"
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

// Rows that the GPUs or processes of this run cannot do: not run.
struct UnsupportedRows {
  std::size_t rows = 0;
  std::string why;  // of the first
};

struct SweepResult {
  const Scenario& base;
  std::size_t combinations = 0;  // rows before anything was drawn
  std::vector<RowResult> rows;
  TooLarge too_large;
  std::vector<Json> goldens;  // {key, stored, origin, rows}
  double wall_s = 0;
  UnsupportedRows unsupported = {};
};

}  // namespace seeksim::harness
