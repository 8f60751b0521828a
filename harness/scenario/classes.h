// Which ranks of a world are alike, so that one of them can be simulated for all: in place (what their node's ranks
// own), in work (their samples and their shard) and in fate (the faults that strike them).
#pragma once

#include <memory>
#include <string>

#include "harness/scenario/scenario.h"
#include "sim/alike.h"

namespace seeksim::harness {

struct AlikeRanks {
  std::shared_ptr<const sim::RankClasses> classes;  // null: each rank has to be simulated
  std::string why_not;                              // ... and why
};

// For a run of shapes in a steady world. Looks at every rank, in time that grows with ranks and parameters.
AlikeRanks alike_ranks(const Scenario& scenario);

// How many ranks are simulated: two of each class at most; all where ranks cannot stand for each other.
double simulated_ranks(const Scenario& scenario);

// Whether a fault leaves collectives whole: it only delays the one rank that it names.
bool only_delays(const faults::Rule& rule);

// Whether no fault of a scenario can touch a single piece of a gather, which then is one event of all members.
bool gathers_whole(const Scenario& scenario);

// Worlds of shapes with more ranks than these are steady unless they say otherwise.
inline constexpr int kSteadyBeyondRanks = 1024;

}  // namespace seeksim::harness
