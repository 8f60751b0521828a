// What provenance looks for, as plain values: runtime/launch/provenance.h does it.
#pragma once

#include <cstdint>

namespace seeksim::runtime {

struct ProvenancePlan {
  bool on = false;             // look for values that are not finite
  std::int64_t log_step = -1;  // the step whose ranges are logged; -1: none
  friend bool operator==(const ProvenancePlan&, const ProvenancePlan&) = default;
};

}  // namespace seeksim::runtime
