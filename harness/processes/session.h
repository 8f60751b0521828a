// MpiSession: this process among those that mpirun started, or whatever sets torchrun's variables. Rank 0 leads: it
// reads the scenario, asks all for a run, gathers what they saw and judges. The others serve: they train when they are
// asked to, and say nothing.
#pragma once

#include <memory>
#include <string>

#include "harness/record/run_record.h"
#include "harness/scenario/scenario.h"
#include "harness/simulate/simulate.h"
#include "harness/verdict/exit_status.h"

namespace seeksim::harness {

class MpiSession {
 public:
  // Joins the others, as --backend says: mpi; nccl, where each process trains on a GPU of its own, and NCCL carries
  // what ranks send each other while they do; or a transport of the program's own (transports.h). Throws BadInput where
  // they do not meet. insecure: processes meet over TCP without a secret, too.
  explicit MpiSession(const std::string& backend = "mpi", bool insecure = false);
  ~MpiSession();  // leader: sends the others the end of the session
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  bool leads() const;
  int processes() const;
  // By seeksim launch, which watches over one run.
  bool supervised() const;
  const char* backend() const;  // "mpi"; "tcp" where they were started in torchrun's way; "nccl"; its own name
  // Does what the leader asks for, until it is over. Where it cannot (a file that is missing on this host, say), it
  // says why and ends all processes.
  void serve();
  // Why these processes cannot run a scenario, whatever it is judged by; empty: they can.
  std::string why_not(const Scenario& scenario) const;
  // The leader's: a run by the first processes, as many as the scenario's world has ranks. smaller: there may be more
  // of them than that (rows of a sweep). Throws BadInput where they do not fit.
  RunRecord run(const Scenario& scenario, const SimulationOptions& options, bool smaller);
  // The leader's last words. Where a process did not answer any more, all are ended at once with this status.
  void end(ExitStatus status);

 private:
  void serve_until_over();
  std::vector<Problem> problems_of(const Scenario& scenario) const;

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace seeksim::harness
