// Planted bugs: mistakes that real frameworks made, switched on by a scenario ("bug": "name"), so that every oracle can
// be seen to fail. A bug is an edit of data (a wait left out, a bound moved, a piece forgotten) at a few named points;
// a run without one tests an integer there and nowhere on a hot path.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace seeksim::runtime {

// Where a queue, or the host, waits for an event: the edges of the happens-before order that are not program order.
// Named, so that each can be left out by "skip_wait:<name>" and a race report can say which one is missing.
enum class Edge : std::uint8_t { none, count_ };

enum class Bug : std::uint8_t {
  none,
  skip_wait,  // one edge is left out, always and on every rank
  count_
};

// Which bug, where. A bug of one rank is planted on `rank`.
struct PlantedBug {
  Bug bug = Bug::none;
  Edge edge = Edge::none;  // of skip_wait
  int rank = 1;

  bool is(Bug which) const { return bug == which; }
  bool is(Bug which, int on) const { return bug == which && rank == on; }
  bool skips(Edge which) const { return bug == Bug::skip_wait && edge == which; }
  friend bool operator==(const PlantedBug&, const PlantedBug&) = default;
};

struct BugInfo {
  Bug bug;
  const char* name;    // as scenarios write it
  const char* does;    // what is wrong while it is on
  const char* caught;  // the check that must turn red
};
// All of them, for `seeksim list bugs`.
std::span<const BugInfo> bug_catalogue();

std::string_view name(Edge edge);
// "name" or "skip_wait:edge"; false where there is no such bug.
bool parse(std::string_view text, PlantedBug& bug);
// The inverse of parse.
std::string_view name(Bug bug);

}  // namespace seeksim::runtime
