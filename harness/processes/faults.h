// Faults of real processes: the same rules and decorators as on simulated ranks, one plan a process. What only a
// simulator can make is refused by name (problems_on_mpi). A crash ends the process as its rule says (SIGKILL, SIGSEGV,
// SIGABRT, or an exit status), a pause is SIGSTOP, at the operation that the rule names; how often a rule has fired
// outlives the process in a file beside the run's, so that a job that is started again goes on from there.
#pragma once

#include <string>
#include <vector>

#include "faults/plan.h"
#include "harness/record/run_record.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

// Why processes cannot make this fault; empty: they can.
std::string why_not_on_processes(const faults::Rule& rule);
// Strikes in each process that comes to it: at both ends of a link, in any process that loads the sample.
bool in_any_process(const faults::Rule& rule);
// Ends a process: only a supervisor can go on after it.
bool ends_a_process(const faults::Rule& rule);

class RealFaults {
 public:
  // folder: of the run's files.
  RealFaults(const Scenario& scenario, int rank, const std::string& folder);
  RealFaults(const RealFaults&) = delete;
  RealFaults& operator=(const RealFaults&) = delete;

  runtime::Seams decorate(runtime::Seams inner) { return plan_.decorate(rank_, inner); }
  std::vector<faults::RuleStatus> status() const { return plan_.status(); }
  std::vector<Event> take_events() { return std::move(events_); }

  // Before the processes begin: nothing has fired.
  static void forget(const std::string& folder);

 private:
  void strike(std::size_t rule, TimeNs now, const runtime::Op* op);

  const Scenario& scenario_;
  const int rank_;
  const std::string notes_;
  faults::FaultPlan plan_;
  std::vector<Event> events_;
};

}  // namespace seeksim::harness
