// A launched job as OpenMetrics text: what Prometheus, or a node exporter's folder of text files, reads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "harness/input/json.h"

#include <nlohmann/json.hpp>

namespace seeksim::harness {

// What the supervisor knows of a job.
struct JobState {
  std::string scenario;
  int ranks = 0, ready = 0, gone = 0, silent = 0;  // of the present attempt
  int attempt = 0;                                 // counted from 0
  std::uint64_t refused = 0;                       // strangers, and what they sent, over all attempts
  double running_s = 0;                            // since the first start
  std::optional<int> exit_status;                  // of the whole job, once it has ended
  Json report;                                     // of the job that ended; null before
};

// Ends with "# EOF". What is not known is left out. Label values are escaped.
std::string openmetrics_text(const JobState& state);

}  // namespace seeksim::harness
