// The catalogue of planted bugs, and their names.
#include "runtime/rules/bugs.h"

#include <array>
#include <optional>

#include "runtime/rules/mutants.h"
#include "runtime/rules/quirks.h"
#include "runtime/seams/edges.h"

namespace seeksim::runtime {
namespace {

constexpr std::array kBugs = {
#define SEEKSIM_BUG(name, does, caught) BugInfo{Bug::name, #name, does, caught},
#include "runtime/rules/bugs.inl"
#undef SEEKSIM_BUG
};
static_assert(kBugs.size() + 1 == std::size_t(Bug::count_));

// A name alone does not say which.
bool needs_more(Bug bug) { return bug == Bug::skip_wait || bug == Bug::quirk || bug == Bug::definition; }

}  // namespace

std::span<const BugInfo> bug_catalogue() { return kBugs; }

std::string_view name(Bug bug) { return bug == Bug::none ? "none" : kBugs[std::size_t(bug) - 1].name; }

std::string text(const PlantedBug& bug) {
  if (bug.is(Bug::none)) return {};
  std::string which;
  if (bug.is(Bug::skip_wait)) which = ":" + std::string(name(bug.edge));
  if (bug.is(Bug::quirk)) which = ":" + std::string(info(bug.quirk).name);
  if (bug.is(Bug::definition)) which = ":" + std::string(info(bug.mutant).name);
  return std::string(name(bug.bug)) + which;
}

std::vector<std::string> bug_names() {
  std::vector<std::string> names;
  for (const BugInfo& row : kBugs) {
    if (!needs_more(row.bug)) names.emplace_back(row.name);
  }
  for (std::size_t i = 1; i < std::size_t(Edge::count_); ++i) names.push_back(text({Bug::skip_wait, Edge(i)}));
  for (const QuirkInfo& row : quirk_catalogue()) {
    if (row.point != QuirkPoint::plan) names.push_back("quirk:" + std::string(row.name));
  }
  for (const MutantInfo& row : mutant_catalogue()) names.push_back("definition:" + std::string(row.name));
  return names;
}

bool parse(std::string_view text, PlantedBug& bug) {
  const std::size_t colon = text.find(':');
  PlantedBug parsed;
  for (const BugInfo& row : kBugs) {
    if (text.substr(0, colon) == row.name) parsed.bug = row.bug;
  }
  if (parsed.bug == Bug::none || needs_more(parsed.bug) != (colon != std::string_view::npos)) return false;
  if (parsed.bug == Bug::skip_wait) {
    const std::optional<Edge> edge = edge_named(text.substr(colon + 1));
    if (!edge) return false;
    parsed.edge = *edge;
  }
  if (parsed.bug == Bug::quirk) {
    const std::optional<Quirk> quirk = quirk_named(text.substr(colon + 1));
    if (!quirk || info(*quirk).point == QuirkPoint::plan) return false;  // the plan is made before a bug is planted
    parsed.quirk = *quirk;
  }
  if (parsed.bug == Bug::definition) {
    const std::optional<Mutant> mutant = mutant_named(text.substr(colon + 1));
    if (!mutant) return false;
    parsed.mutant = *mutant;
  }
  bug = parsed;
  return true;
}

}  // namespace seeksim::runtime
