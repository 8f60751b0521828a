// The catalogue of planted bugs and the names of edges.
#include "runtime/bug.h"

#include <array>

namespace seeksim::runtime {
namespace {

constexpr std::array<std::string_view, std::size_t(Edge::count_)> kEdges = {"none"};

constexpr std::array<BugInfo, 1> kBugs = {{
    {Bug::skip_wait, "skip_wait", "one wait for an event is left out: skip_wait:<edge>", "no_races"},
}};

}  // namespace

std::span<const BugInfo> bug_catalogue() { return kBugs; }

std::string_view name(Edge edge) { return kEdges[std::size_t(edge)]; }

std::string_view name(Bug bug) {
  for (const BugInfo& info : kBugs) {
    if (info.bug == bug) return info.name;
  }
  return "none";
}

bool parse(std::string_view text, PlantedBug& bug) {
  const std::size_t colon = text.find(':');
  PlantedBug parsed;
  for (const BugInfo& info : kBugs) {
    if (text.substr(0, colon) == info.name) parsed.bug = info.bug;
  }
  if (parsed.bug == Bug::none || (parsed.bug == Bug::skip_wait) != (colon != std::string_view::npos)) return false;
  if (parsed.bug == Bug::skip_wait) {
    for (std::size_t i = 1; i < kEdges.size(); ++i) {
      if (text.substr(colon + 1) == kEdges[i]) parsed.edge = Edge(i);
    }
    if (parsed.edge == Edge::none) return false;
  }
  bug = parsed;
  return true;
}

}  // namespace seeksim::runtime
