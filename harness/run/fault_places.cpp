#include "harness/run/fault_places.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "faults/trigger.h"
#include "harness/scenario/variants.h"
#include "harness/simulate/simulate.h"

namespace seeksim::harness {
namespace {

using faults::Rule;
using runtime::Op;

template <class T>
bool wanted(const std::vector<T>& list, T value) {
  return list.empty() || std::find(list.begin(), list.end(), value) != list.end();
}

class Places {
 public:
  explicit Places(const Enumerated& plan) : plan_(plan) {}

  // A run: with sums as one event, or message by message, in which only messages are new.
  void begin(bool message_by_message) {
    messages_only_ = message_by_message;
    in_step_.clear();
    in_run_.clear();
  }

  void see(const Op& op, runtime::TimeNs now) {
    if (messages_only_ && wanted(plan_.steps, op.step) && wanted(plan_.ops, op.kind)) times_.emplace(now, describe(op));
    // A rule without a step counts through all steps: so does what happens before the first one.
    const std::uint64_t in_step = ++in_step_[{op.rank, op.step, op.kind, op.phase}];
    const std::uint64_t in_run = ++in_run_[{op.rank, op.kind, op.phase}];
    if (!wanted(plan_.ranks, int(op.rank)) || !wanted(plan_.ops, op.kind)) return;
    if (!plan_.steps.empty() && !wanted(plan_.steps, op.step)) return;
    for (const faults::FaultKind kind : plan_.kinds) {
      if (kind == faults::FaultKind::partition) continue;
      for (const faults::Mode mode : plan_.modes.empty() ? std::vector{faults::Mode::unset} : plan_.modes) {
        Rule rule;
        rule.kind = kind;
        rule.mode = mode;
        rule.when.rank = op.rank;
        rule.when.op = op.kind;
        rule.when.phase = op.phase;
        if (op.step >= 0) rule.when.step = op.step;
        rule.when.call = op.step >= 0 ? in_step : in_run;
        if (!faults::could_match_on_any_rank(rule, op)) continue;
        if (messages_only_ && (faults::is_own_act(op.kind) || known_.contains(text(rule)))) continue;
        if (!messages_only_ && !faults::is_own_act(op.kind)) known_.insert(text(rule));
        if (seen_++ % plan_.every == 0) places.push_back({rule, describe(op), std::string(name(op.kind))});
      }
    }
  }

  // Messages meet a partition one by one: its times are those of the run in which all sums are messages.
  void partitions(const Scenario& scenario) {
    if (!wanted_kind(faults::FaultKind::partition)) return;
    const int ranks = scenario.world.ranks(), cut = scenario.world.nodes / 2 * scenario.world.ranks_per_node;
    std::vector<std::vector<int>> sides(2);
    for (int rank = 0; rank < ranks; ++rank) sides[rank < cut ? 0 : 1].push_back(rank);
    for (auto at = times_.begin(); at != times_.end(); ++at) {
      const auto next = std::next(at);
      std::vector<runtime::TimeNs> moments = {at->first};
      if (next != times_.end() && next->first - at->first > 1)
        moments.push_back(at->first + (next->first - at->first) / 2);
      for (const runtime::TimeNs moment : moments) {
        for (const int side : {0, 1}) {
          Rule rule;
          rule.kind = faults::FaultKind::partition;
          rule.sides = sides;
          rule.store_side = side;
          rule.when.at_ns = moment;
          if (seen_++ % plan_.every == 0) places.push_back({rule, "from " + at->second + " on", "partition"});
        }
      }
    }
  }

  std::vector<FaultPlace> places;

 private:
  bool wanted_kind(faults::FaultKind kind) const {
    return std::find(plan_.kinds.begin(), plan_.kinds.end(), kind) != plan_.kinds.end();
  }

  const Enumerated& plan_;
  std::int64_t seen_ = 0;
  bool messages_only_ = false;
  std::set<std::string> known_;                   // rules about messages
  std::map<runtime::TimeNs, std::string> times_;  // at which an Op begins, and one of those
  std::map<std::tuple<int, std::int64_t, runtime::OpKind, runtime::Phase>, std::uint64_t> in_step_;
  std::map<std::tuple<int, runtime::OpKind, runtime::Phase>, std::uint64_t> in_run_;
};

}  // namespace

std::vector<FaultPlace> places_of(const Scenario& scenario) {
  Scenario calm = undisturbed(scenario);
  Places places(scenario.planned.enumerated);
  SimulationOptions options;
  options.watch = [&](const Op& op, runtime::TimeNs now) { places.see(op, now); };
  // A rule about the second half of a sum makes it go message by message: it has its places only there.
  for (const bool native : {true, false}) {
    calm.world.native_collectives = native;
    places.begin(!native);
    Simulation(calm, options).run();
  }
  places.partitions(calm);
  return std::move(places.places);
}

}  // namespace seeksim::harness
