#include "harness/campaign/ledger.h"

#include <fmt/format.h>

namespace seeksim::harness::campaign {
namespace {

struct Row {
  const char* name;
  const char* text;
};
constexpr Row kRows[] = {
    {"useful", "steps that last"},
    {"redone", "steps that a failure undid"},
    {"cut_short", "parts of steps that a failure or the end broke off"},
    {"checkpoints", "training waits for a checkpoint"},
    {"detection", "from a failure to its notice"},
    {"agreement", "from the notice until the job has stopped"},
    {"waiting", "no node is there to replace a lost one"},
    {"swapping", "a spare is put in place"},
    {"restarting", "new processes are started"},
    {"reading", "the checkpoint is read"},
    {"starting", "from there to the first step"},
    {"rebuilding", "the survivors make a new group"},
    {"straggling", "steps take longer beside a slow node"},
    {"shrunk", "steps take longer on fewer nodes"},
};
static_assert(std::size(kRows) == kSpent);

}  // namespace

const char* name(Spent spent) { return kRows[std::size_t(spent)].name; }
const char* text(Spent spent) { return kRows[std::size_t(spent)].text; }

std::string what_is_wrong(const SpentTime& spent, TimeNs whole, std::int64_t steps, TimeNs step_ns) {
  for (std::size_t i = 0; i < kSpent; ++i) {
    if (spent.of(Spent(i)) < 0) return fmt::format("{} ns are negative: {}", name(Spent(i)), spent.of(Spent(i)));
  }
  if (spent.sum() != whole)
    return fmt::format("the causes add up to {} ns, and the campaign took {} ns", spent.sum(), whole);
  if (spent.of(Spent::useful) != steps * step_ns)
    return fmt::format("{} steps of {} ns last, and {} ns are useful", steps, step_ns, spent.of(Spent::useful));
  return "";
}

}  // namespace seeksim::harness::campaign
