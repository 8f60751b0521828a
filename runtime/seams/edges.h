// Edges: where a queue, or the host, waits for an event. They are what orders accesses to memory beyond the order in
// which each queue runs its launches. Each has a name, so that a planted bug can leave it out ("skip_wait:<name>") and
// the race detector can be seen to notice.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace seeksim::runtime {

enum class Edge : std::uint8_t {
  none,
#define SEEKSIM_EDGE(name, waits) name,
#include "runtime/seams/edges.inl"
#undef SEEKSIM_EDGE
  count_
};

// The edge's name, as scenarios write it.
std::string_view name(Edge edge);
// Which queue waits there, or the host, and for what: "host: the all-reduce, before anybody uses its sum (stage 0)".
std::string_view waits(Edge edge);
// The edge of that name; "none" is the name of no edge.
std::optional<Edge> edge_named(std::string_view name);

}  // namespace seeksim::runtime
