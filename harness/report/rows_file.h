// Runs as rows for other tools: comma-separated values, or one JSON object a line. Made from the JSON reports, so that
// they cannot disagree. A row is one run: of a sweep each of its rows, else the scenario itself.
#pragma once

#include <string>
#include <vector>

#include "harness/input/json.h"

namespace seeksim::harness {

// RFC 4180, with one header line: scenario, row, the axes of all sweeps (their whole paths), verdict, exit_code, every
// figure of verdict/figures.h, params_digest, wall_s, failed (red checks), command. What a run lacks is empty.
std::string rows_as_csv(const std::vector<Json>& reports);
// {"scenario", "row", "settings", "verdict", "exit_code", "figures", "params_digest", "wall_s", "failed", "command"}
std::string rows_as_json_lines(const std::vector<Json>& reports);

}  // namespace seeksim::harness
