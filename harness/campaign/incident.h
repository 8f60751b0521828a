// A failure at a time: of a user's log, or drawn.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/seams/time.h"

namespace seeksim::harness::campaign {

using runtime::TimeNs;

// One line of an incident log.
struct Incident {
  TimeNs at_ns = 0;  // from the begin of the campaign
  std::int64_t node = 0;
  std::string cause;
  TimeNs repair_ns = 0;  // 0: the node is fine, and goes on after a restart
  friend bool operator==(const Incident&, const Incident&) = default;
};

}  // namespace seeksim::harness::campaign
