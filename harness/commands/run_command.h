// seeksim run: the scenarios of the command line, on simulated ranks or, as one of the processes that mpirun started,
// on real ones.
#pragma once

#include <string>
#include <vector>

#include "harness/verdict/exit_status.h"

namespace seeksim::harness {

// How much work a run may be.
struct RunEffort {
  double wall_limit_s = 0;
  int retries = 0;
  bool rank_by_rank = false;
};

// The page about a run.
struct PageArguments {
  std::string html;     // its file; empty: none
  bool redact = false;  // without paths, hosts and names
};

// What is written for boards.
struct MetricsArguments {
  std::string metrics, tensorboard;  // a file, a folder; empty: none
};

// What is written of each run as a row.
struct RowsArguments {
  std::string csv, json_lines;  // files; empty: none
  bool all = false;             // a sweep's table has every row
};

// What a run of processes is allowed.
struct ProcessArguments {
  bool insecure = false;  // they meet without a secret on an open network
  bool no_skip = false;   // a check that they cannot be judged by is refused instead of skipped
};

// Which of the scenarios, or rows of one sweep.
struct ChoiceArguments {
  std::string pattern;      // -k; empty: all
  std::string shard;        // "1/4"; empty: all
  bool check_only = false;  // read them, and run none
  bool watch = false;       // watch.h: this command again and again
  bool list = false;        // only say which
  bool last_failed = false;
};

// What is changed of each.
struct ChangeArguments {
  std::vector<std::string> sets;
  std::vector<std::string> autos;
};

// Weights and samples, for another program.
struct SaveArguments {
  std::string save_initial, save_final, save_batches, save_logits, save_gradients;
  std::string save_dtype = "float32";
  int save_shard_mb = 5000;
};

// The options of `run`, as they stand on the command line.
struct RunArguments : RunEffort,
                      PageArguments,
                      ChoiceArguments,
                      ChangeArguments,
                      RowsArguments,
                      ProcessArguments,
                      MetricsArguments,
                      SaveArguments {
  std::vector<std::string> files;
  std::string backend = "sim", device = "cpu", storage;
  std::string out, report, junit, init;
  std::string trace, bundle, flight_recorder;
  std::string seed, schedule;
  bool verify_determinism = false;
  bool resume = false;
  bool explain = false;
  bool no_names = false;
  int processes = 0;
  int row = -1;
};

ExitStatus run_command(RunArguments a);

}  // namespace seeksim::harness
