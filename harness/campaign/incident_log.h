// A log of incidents as a CSV file, from whoever kept it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "harness/campaign/incident.h"
#include "harness/input/problem.h"

namespace seeksim::harness::campaign {

struct IncidentLog {
  std::vector<Incident> incidents;  // in the order of time
  std::vector<Problem> problems;    // of bad lines, each named; the first few of many
};

inline constexpr std::size_t kIncidentBytesMax = 64 << 20;

// Columns by the names of the first line: hours (from the begin), node, cause, repair_hours; in any order, further ones
// are not read. cause and repair_hours may be missing or empty. nodes: how many there are. Never throws.
IncidentLog read_incidents(std::string_view text, const std::string& file, std::int64_t nodes);

}  // namespace seeksim::harness::campaign
