// The small scenario with a "deepspeed" section of the test's.
#pragma once

#include <string>
#include <vector>

#include "harness/loading/load.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness::testing {

inline std::string with(const std::string& section) { return small_text_with(6, "  \"deepspeed\": " + section + ","); }

inline Scenario loaded(const std::string& section, const std::vector<std::string>& sets = {}) {
  LoadOptions options;
  options.sets = sets;
  return load_scenario_text(with(section), "s.json", options);
}

}  // namespace seeksim::harness::testing
