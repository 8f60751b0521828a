// Exploration: schedules and faults are drawn at random, run and judged one after the other in one process.
// Each case is plain values and ends as an ordinary scenario. What cases reach is counted (coverage.h): a case that
// reached something new is varied further, and faults are drawn to where few have struck.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "harness/record/golden.h"
#include "harness/run/planned_run.h"
#include "harness/scenario/scenario.h"
#include "harness/search/coverage.h"

namespace seeksim::harness {

enum class ExploreStrategy : std::uint8_t {
  mix,        // random, pct and swarm in turns
  random,     // any order; up to two faults
  pct,        // orders by priorities; up to two faults
  swarm,      // some of all is slow or seldom runs; up to four faults, of some of the kinds
  enumerate,  // each fault at each place of the undisturbed run, once
  exhaustive  // each outcome of each decision about commit, abort and retry (exhaustive.h)
};
// Throws BadInput naming those that there are.
ExploreStrategy explore_strategy(const std::string& name);

struct ExploreOptions {
  ExploreStrategy strategy = ExploreStrategy::mix;
  std::uint64_t seed = 1;
  bool faults = true;        // false: schedules only
  double wall_limit_s = 10;  // of one case
  int workers = 1;           // processes over all machines, which share the cases
};

struct ExploreCase {
  std::string from;  // how it came about
  std::uint64_t seed = 1;
  sim::Schedule schedule;
  double noise = 0;
  std::vector<faults::Rule> rules;  // beside the scenario's own
};

// A scenario to explore: what it is judged by holds whatever the faults are. Throws BadInput where it is none.
struct Explored {
  Scenario scenario;
  Json document;                   // as it was written
  std::vector<std::string> notes;  // checks that were left out
};
Explored load_explored(const std::string& file, const std::vector<std::string>& sets, const ExploreOptions& options);
// The same of a document, as if it had stood in `file`.
Explored load_explored(const Json& document, const std::string& file, const ExploreOptions& options);

// A scenario that shows the case when it is run. fired: only rules that came to fire.
Json case_document(const Explored& explored, const ExploreCase& one, const RunRecord* fired);

// Where faults can strike: operations as ranks come to them, by kind and phase.
class Places {
 public:
  struct Place {
    int rank = 0;
    std::int64_t step = -1;
    std::uint64_t calls = 0;  // of that kind and phase
  };
  using Group = std::pair<runtime::OpKind, runtime::Phase>;
  void begin_run() { seen_.clear(); }
  void see(const runtime::Op& op);
  const std::map<Group, std::vector<Place>>& groups() const { return groups_; }

 private:
  using Key = std::tuple<runtime::OpKind, runtime::Phase, int, std::int64_t>;
  std::map<Key, std::uint64_t> seen_;  // in this run
  std::map<Key, std::size_t> index_;   // into its group
  std::map<Group, std::vector<Place>> groups_;
};

class Explorer {
 public:
  // worker: whose share of the cases this process takes.
  Explorer(const Explored& explored, const Golden* golden, const ExploreOptions& options, int worker);

  struct Ran {
    ExploreCase one;
    PlannedEnd end;
    std::size_t added = 0;  // features of coverage
  };
  // Draws the next case; none is left where all were enumerated. The first worker begins with the scenario as written.
  std::optional<ExploreCase> draw();
  // Runs and judges it. The record is that of the last case.
  Ran run(ExploreCase one);

  const RunRecord& record() const { return record_; }
  const Coverage& coverage() const { return coverage_; }

 private:
  ExploreCase fresh(ExploreStrategy strategy);
  ExploreCase varied();
  std::optional<ExploreCase> enumerated();
  ExploreCase as_written() const;
  bool is_as_written(const ExploreCase& one) const;
  sim::Schedule schedule(ExploreStrategy strategy);
  void add_faults(ExploreCase& one, int n, const std::vector<faults::FaultKind>& kinds);
  std::optional<faults::Rule> fault(faults::FaultKind kind);
  bool to_a_place(faults::Rule& rule);
  int lost(const std::vector<faults::Rule>& rules) const;
  std::uint32_t below(std::size_t n) { return random_.below(std::uint32_t(n)); }

  const Explored& explored_;
  Scenario scenario_;  // the one that is run, changed from case to case
  const Golden* golden_;
  ExploreOptions options_;
  int worker_;
  sim::Random random_;
  std::vector<faults::FaultKind> kinds_;
  std::vector<int> node_of_;
  Places places_;
  Coverage coverage_;
  RunRecord record_;
  std::vector<ExploreCase> corpus_;
  std::uint64_t drawn_ = 0;
  std::uint64_t decisions_ = 2000;         // of a run, so far the most
  runtime::TimeNs horizon_ = 0;            // how long the undisturbed run is
  std::vector<faults::Rule> places_left_;  // enumerate: last first
  bool enumerated_ = false;
};

}  // namespace seeksim::harness
