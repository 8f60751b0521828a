// How one call to seeksim ended: its exit status, its report, and what kept it from running.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/verdict/exit_status.h"

#include <nlohmann/json.hpp>

#include "harness/input/json.h"

namespace seeksim::harness {

struct Outcome {
  ExitStatus status = ExitStatus::as_expected;
  std::string name;  // of the scenario, or of its file when it cannot be read
  Json report;
  std::vector<std::string> problems;  // why it could not be run; empty when it was
  bool undone = false;                // a signal came before its end, or before it began
};
inline bool is_red(const Outcome& outcome) { return outcome.status != ExitStatus::as_expected && !outcome.undone; }

// Takes text as it comes: to a terminal, to a file, or to nowhere.
using Print = std::function<void(std::string_view)>;

}  // namespace seeksim::harness
