// A scenario read and written. Loaded strictly, so that every problem is reported at once; written back without loss,
// so that shrinking and sweeps edit values and never text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "harness/loading/scenario_json.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

// What a loader takes besides the file.
struct LoadOptions {
  std::vector<std::string> sets;        // --set
  std::string init;                     // --init
  const std::uint64_t* seed = nullptr;  // --seed
  std::string schedule;                 // --schedule: seed and schedule of a run; empty: as the scenario says
  const Settings* row = nullptr;        // one row of the scenario's sweep: its settings, applied last
};

// Throws BadInput with every problem of the scenario.
Scenario load_scenario(const std::string& file, const LoadOptions& options = {});
Scenario load_scenario_text(std::string_view text, const std::string& file, const LoadOptions& options = {});

}  // namespace seeksim::harness
