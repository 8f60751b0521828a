// One scenario from start to verdict: golden, the run, what the checks need besides, the report and the files.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "harness/loading/load.h"
#include "harness/report/report.h"
#include "harness/scenario/scenario.h"

#include <nlohmann/json.hpp>

namespace seeksim::harness {

struct SimulationOptions;

// What the command line says about how to run, beyond the scenario.
struct RunOptions {
  // Runs on ranks of another kind; empty: simulated ones. row: of a sweep.
  using Launch = std::function<RunRecord(const Scenario&, const SimulationOptions&, bool row)>;
  Launch launch;
  bool launch_again = false;  // they can run a second scenario beside this one
  std::string backend = "sim";
  std::string device = "cpu";
  int ranks_max = 0;    // rows of a sweep with more are left out, and said to be; 0: there is no limit
  bool is_row = false;  // this is a row of a sweep
  double wall_limit_s = 0;
  bool verify_determinism = false;
  bool progress = false;  // a bar on stderr
  Style style;
  int processes = 0;               // rows of a sweep at once; 0: one a core
  int row = -1;                    // only this row of a sweep
  const Golden* golden = nullptr;  // found before; null: it is looked for, or run
  std::string out;                 // --out: this scenario's folder; empty: none
  std::string bundle;              // --bundle: of a run that stopped or is red; empty: below --out, where there is one
  std::string flight_recorder;     // --flight-recorder: a folder for a dump of each rank; empty: none
  bool explain = false;            // --explain: a page about what is red
  std::string trace;               // --trace: a Chrome trace of the run; empty: none
  std::string save_initial;        // files; empty: not saved
  std::string save_final;
  std::string save_batches;
  std::string save_gradients;
  std::int64_t gradients_step = 0;  // counted from 1
};

struct Outcome {
  ExitStatus status = ExitStatus::as_expected;
  std::string name;  // of the scenario, or of its file when it cannot be read
  Json report;
  std::vector<std::string> problems;  // why it could not be run; empty when it was
};

using Print = std::function<void(std::string_view)>;

// Loads and runs, a sweep row by row. Bad input and bugs become outcomes with problems, so that other scenarios go on.
Outcome run_file(const std::string& file, const LoadOptions& load, const RunOptions& options, const Print& print);

// The same of a scenario's text; `file`: where it would stand, and from where the files that it names are found.
Outcome run_text(
    std::string_view text, const std::string& file, const LoadOptions& load = {}, const RunOptions& options = {},
    const Print& print = [](std::string_view) {});

// The scenario once more, with tagged gradients (conservation.h).
Conservation tagged_run(const Scenario& scenario, double wall_limit_s = 0);

// Runs a loaded scenario. Throws BadInput where a file cannot be written.
Outcome run_scenario(const Scenario& scenario, const RunOptions& options, const Print& print);

// Runs what may fail: bad input, bugs and a lack of time or memory become an outcome that tells of it. `again` is the
// command that a person types to see it once more.
Outcome guarded(const std::string& name, const std::string& again, const std::function<Outcome()>& run);

// The stored golden, or the one-rank run, told to `print`.
Golden find_golden(const Scenario& scenario, const RunOptions& options, const Print& print);

// A run that served another did not end in time: exit status 3.
struct OutOfTime : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The one-rank golden, run now. Throws OutOfTime past the limit (0: none), std::runtime_error when it does not finish.
Golden run_golden(const Scenario& scenario, const std::string& key, double wall_limit_s = 0, bool progress = false);

}  // namespace seeksim::harness
