// A scenario's twin: the same world, layout, faults and recovery around the smallest model of the same structure. What
// ranks say to each other is the same, and a run takes a fraction of the time: exploration looks there first.
#pragma once

#include <optional>
#include <string>

#include "harness/search/explore.h"

namespace seeksim::harness {

// The twin of a scenario that is explored; none: it is nearly as small itself, or has weights or a model of its own.
std::optional<Explored> twin_of(const Explored& explored, const ExploreOptions& options);

// The scenario itself, with the faults and the seed with which its twin failed.
Json as_its_twin_failed(const Explored& explored, const Json& found);

}  // namespace seeksim::harness
