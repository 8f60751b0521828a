#include "runtime/seams/edges.h"

namespace seeksim::runtime {
namespace {

struct Row {
  std::string_view name, waits;
};
constexpr std::array kRows = {
    Row{"none", "nobody waits"},
#define SEEKSIM_EDGE(name, waits) Row{#name, waits},
#include "runtime/seams/edges.inl"
#undef SEEKSIM_EDGE
};
static_assert(kRows.size() == std::size_t(Edge::count_));

}  // namespace

std::string_view name(Edge edge) { return kRows[std::size_t(edge)].name; }

std::string_view waits(Edge edge) { return kRows[std::size_t(edge)].waits; }

std::optional<Edge> edge_named(std::string_view name) {
  for (std::size_t i = 1; i < kRows.size(); ++i) {
    if (kRows[i].name == name) return Edge(i);
  }
  return std::nullopt;
}

}  // namespace seeksim::runtime
