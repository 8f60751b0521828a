// The catalogue of planted bugs and the names of edges.
#include "runtime/bug.h"

#include <array>

namespace seeksim::runtime {
namespace {

constexpr std::array<std::string_view, std::size_t(Edge::count_)> kEdges = {
    "none",           "backward_done",  "gradients_reduced", "shard_reduced",        "norms_measured",
    "norms_gathered", "step_measured",  "update_applied",    "parameters_published", "persistent_published",
    "bucket_filled",  "bucket_reduced", "bucket_free",       "parameters_gathered",  "parameters_gathered_at_once",
    "space_free",     "shards_drawn",   "shards_moved",      "shard_handed_out",     "step_abandoned",
};

constexpr std::array<BugInfo, 3> kBugs = {{
    {Bug::skip_wait, "skip_wait", "one wait for an event is left out: skip_wait:<edge>", "no_races"},
    {Bug::early_release, "early_release", "rank 1 gives a gathered module's memory back while it is in use (stage 3)",
     "no_races"},
    {Bug::unwritten_memory, "unwritten_memory",
     "rank 1 never writes its own part of the parameters that it gathers (stage 3)", "no_poison"},
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

std::string text(const PlantedBug& bug) {
  if (bug.is(Bug::none)) return {};
  const std::string edge = bug.is(Bug::skip_wait) ? ":" + std::string(name(bug.edge)) : "";
  return std::string(name(bug.bug)) + edge;
}

std::vector<std::string> bug_names() {
  std::vector<std::string> names;
  for (const BugInfo& info : kBugs) {
    if (info.bug != Bug::skip_wait) names.emplace_back(info.name);
  }
  for (std::size_t i = 1; i < kEdges.size(); ++i) names.push_back(text({Bug::skip_wait, Edge(i)}));
  return names;
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
