// Planted bugs: mistakes that real frameworks made, switched on by a scenario ("bug": "name"), so that every oracle can
// be seen to fail. A bug is an edit of data (a wait left out, a bound moved, a piece forgotten) at a few named points;
// a run without one tests an integer there and nowhere on a hot path.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace seeksim::runtime {

// Opaque here, so that a new row of one of these compiles those files again that name rows.
enum class Bug : std::uint8_t;     // bugs.h
enum class Edge : std::uint8_t;    // runtime/seams/edges.h
enum class Quirk : std::uint8_t;   // quirks.h
enum class Mutant : std::uint8_t;  // mutants.h

// Which bug, where. A bug of one rank is planted on `rank`.
struct PlantedBug {
  Bug bug{};    // none
  Edge edge{};  // of skip_wait; none with any other bug
  int rank = 1;
  std::int64_t step = 1;  // those of the replicas begin here
  Quirk quirk{};          // of quirk
  Mutant mutant{};        // of definition

  bool is(Bug which) const { return bug == which; }
  bool is(Bug which, int on) const { return bug == which && rank == on; }
  bool skips(Edge which) const { return edge == which; }
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

// "name", "skip_wait:edge", "quirk:name" or "definition:name"; false where there is no such bug.
bool parse(std::string_view text, PlantedBug& bug);
// The inverse of parse; "" for none.
std::string text(const PlantedBug& bug);
// All that parse() takes.
std::vector<std::string> bug_names();
std::string_view name(Bug bug);

}  // namespace seeksim::runtime
