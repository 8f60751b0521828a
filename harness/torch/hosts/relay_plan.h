// What a relay is told when it starts, and what another host has given at the end.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/backend/wire/sockets.h"

namespace seeksim::harness::torch {

struct RelayPlan {
  int host = 0;                                             // this one
  std::vector<std::string> names;                           // of all hosts
  double unreachable_s = runtime::kUnreachable_s;           // a host from which nothing comes for so long is given up
  std::uint64_t files_bytes_max = std::uint64_t(64) << 30;  // that a host may send at the end
  std::string folder;                                       // where files of other hosts go; on the first host
};

// What has come from another host at the end.
struct HostGave {
  std::optional<std::string> summary;  // what its command says of its job; none: it has not come, and will not
  std::string problem;                 // why something is missing; empty: nothing is
  std::vector<std::string> files;      // names of those that are here now, whole or not
  std::int64_t clock_ns = 0;           // how much more its monotonic clock shows than this host's
};

}  // namespace seeksim::harness::torch
