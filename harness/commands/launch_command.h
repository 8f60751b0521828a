// seeksim launch: the supervisor of a job of processes. It holds the control plane's store, starts mpirun, or the
// processes of one host itself, watches who dies and who falls silent, and after a death ends the job in order and
// starts the next one from the newest valid checkpoint: Open MPI without ULFM cannot go on without a process.
#pragma once

#include <string>
#include <vector>

#include "harness/report/report.h"
#include "harness/verdict/exit_status.h"

namespace seeksim::harness {

inline constexpr const char* kThisHost = "127.0.0.1";

struct LaunchArguments {
  std::string file;
  std::vector<std::string> sets;
  std::string seed;
  int processes = 0;     // 0: as many as the scenario's world has ranks
  int restarts_max = 3;  // of the job
  std::string out, report;
  std::string html;                 // a page about the job; empty: none
  bool redact = false;              // it is without names, paths and hosts
  std::string openmetrics;          // a file that says once a second how the job is; empty: none
  std::string backend = "mpi";      // or "nccl"
  std::string mpirun = "mpirun";    // may hold arguments of it
  bool no_skip = false;             // as for run
  bool no_mpi = false;              // the supervisor starts the processes, on this host; they meet over TCP
  std::string address = kThisHost;  // of this host, for the ranks
  double start_limit_s = 60;        // until all processes have met; a job whose start hangs is ended and started again
  double heartbeat_s = 0.5, silent_s = 5;  // where the scenario says nothing of them
};

ExitStatus launch_command(const LaunchArguments& arguments, const std::string& program, const Style& style);

}  // namespace seeksim::harness
