// How long a collective of NCCL takes: every algorithm and protocol that may carry it, and the fastest of them.
#pragma once

#include <cstdint>
#include <optional>

#include "harness/calibration/platform.h"

namespace seeksim::harness::calibration {

enum class Algorithm { ring, tree, nvls };
enum class Protocol { ll, ll128, simple };

const char* name(Collective what);
const char* name(Algorithm algorithm);
const char* name(Protocol protocol);

// Who takes part.
struct Group {
  int ranks = 1;
  int per_node = 8;     // of them in one NVLink domain, where there are so many
  int process = 1;      // GPUs that one process drives
  double adapters = 1;  // share of a node's adapters that is left to this group
  int nodes() const { return (ranks + per_node - 1) / per_node; }
};

// What NCCL_ALGO and NCCL_PROTO leave to choose from; and mistakes that a test plants to see its oracles fail.
struct Choice {
  std::optional<Algorithm> algorithm;
  std::optional<Protocol> protocol;
  enum class Planted { none, nvls_gathers, hops_are_free, no_edge } planted = Planted::none;
};

struct CollectiveTime {
  double us = 0;
  Algorithm algorithm = Algorithm::ring;
  Protocol protocol = Protocol::ll;
  bool measured = false;  // read from a curve: no algorithm or protocol is known
};

// bytes: as nccl-tests counts them, the whole vector (of all ranks together for a gather and a scatter). A group of one
// takes no time.
CollectiveTime collective_time(Collective what, double bytes, const Group& group, const Platform& platform,
                               const Choice& choice = {});

// nccl-tests' "busbw", in GB/s.
double bus_bandwidth(Collective what, double bytes, int ranks, double us);

}  // namespace seeksim::harness::calibration
