// Exploration without chance, for worlds of two or three ranks: every order of the steps of an untimed world that makes
// a difference (sim/order_search.h), for the scenario's own faults or for each fault of its plan in turn. It ends by
// itself, and says so; where the time is over before, it says what is left.
#pragma once

#include <cstdint>
#include <functional>
#include <set>

#include "harness/search/explore_worker.h"
#include "sim/order_search.h"

namespace seeksim::harness {

inline constexpr int kExhaustiveRanksMax = 3;

struct ExhaustiveOptions {
  double budget_s = 60;
  std::uint64_t runs_max = 0;    // of each fault plan; 0: no limit
  std::size_t findings_max = 0;  // end after so many different ones; 0: go on
  double wall_limit_s = 10;      // of one run
  sim::OrderSearch::Options orders;
  std::function<void(const ExploreResult::Found&)> tell;  // of each new finding, at once
};

// What was gone through.
struct Exhausted {
  sim::OrderSearch::Counts orders;   // over all fault plans
  std::uint64_t plans = 0;           // of faults: those of the scenario, or one of each place
  std::uint64_t plans_through = 0;   // all orders of it were seen
  std::uint64_t left = 0;            // ways that are known and were not gone
  std::set<std::uint64_t> outcomes;  // by outcome_of
  bool complete() const { return plans_through == plans; }
};

// Throws BadInput where the scenario is none for this.
ExploreResult explore_exhaustively(const Explored& explored, const Golden* golden, const ExhaustiveOptions& options,
                                   Exhausted& gone_through);

// What an order led to, without times: what ranks heard and did at the control plane, what they committed in which
// epoch, how they ended.
std::uint64_t outcome_of(std::uint64_t heard, const RunRecord& run);

// "complete  every order ..." or what is left.
std::string exhausted_text(const Exhausted& gone_through);
Json exhausted_json(const Exhausted& gone_through);

}  // namespace seeksim::harness
