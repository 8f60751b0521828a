// "fault_plan": faults that are enumerated or drawn instead of written one by one. Enumerated: the undisturbed run is
// watched, then there is one run for each place at which a fault can strike. Drawn: arrivals of a Poisson process,
// kinds by weights, each fault from a stream of its own, within a budget that recovery has to survive. Both end in
// explicit rules, so that a red run is an ordinary scenario.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "faults/plan.h"

namespace seeksim::harness {

struct Scenario;

struct Enumerated {
  std::vector<faults::FaultKind> kinds;  // empty: nothing is enumerated
  std::vector<int> ranks;                // empty: all
  std::vector<std::int64_t> steps;       // empty: all, and what comes before the first
  std::vector<runtime::OpKind> ops;      // empty: all
  std::vector<faults::Mode> modes;       // empty: each kind's first
  std::int64_t every = 1;                // of the places, each n-th
  friend bool operator==(const Enumerated&, const Enumerated&) = default;
};

// How often faults come: `count` in `per`.
enum class RateOf : std::uint8_t { rank_hour, node_day, run };

struct Random {
  std::vector<std::pair<faults::FaultKind, double>> weights;  // empty: nothing is drawn
  bool field = false;                                         // the weights were asked for as "field"
  RateOf rate_of = RateOf::run;
  double rate = 1;
  double acceleration = 1;
  double hours = 0;        // of virtual time in which faults come; 0: as long as the undisturbed run
  int ranks_lost_max = 1;  // the budget: what would cost more ranks is not drawn
  bool swarm = false;      // rate and weights of each run are drawn too, also as nothing
  std::int64_t runs = 1;
  friend bool operator==(const Random&, const Random&) = default;
};

struct PlannedFaults {
  Enumerated enumerated;
  Random random;
  std::vector<std::string> stops;  // words of the reasons for which a run may stop instead of finishing
  bool any() const { return !enumerated.kinds.empty() || !random.weights.empty(); }
  friend bool operator==(const PlannedFaults&, const PlannedFaults&) = default;
};

// Kinds that can be drawn.
const std::vector<std::pair<faults::FaultKind, double>>& drawable();

// Weights of fault kinds that model Llama 3's 419 unexpected interruptions: scenarios/README.md has the
// table.
const std::vector<std::pair<faults::FaultKind, double>>& field_weights();

}  // namespace seeksim::harness
