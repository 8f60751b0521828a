// Sends and receives that wait for their partner.
#pragma once

#include <string>
#include <vector>

#include "harness/analyse/groups.h"

namespace seeksim::harness {

struct LonePart {
  int rank = 0, partner = 0;  // of the job
  std::string text;           // "rank 1 waits in recv from rank 0 (group ...)"
  bool partner_came = false;  // it has begun the other half: then nobody is missing
  bool known = true;          // false: no dump of the partner, or its ring has lost what would tell
};

// One part for each rank that waits in a send or a receive.
std::vector<LonePart> lone_parts(const JobView& job);

}  // namespace seeksim::harness
