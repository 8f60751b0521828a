// What the command line says about how to run, beyond the scenario.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "harness/input/json.h"
#include "harness/record/golden.h"
#include "harness/report/report.h"
#include "harness/scenario/scenario.h"

#include <nlohmann/json.hpp>

namespace seeksim::harness {

struct SimulationOptions;

// The ranks on which a scenario runs.
struct RanksOptions {
  // Runs on ranks of another kind; empty: simulated ones. row: of a sweep.
  using Launch = std::function<RunRecord(const Scenario&, const SimulationOptions&, bool row)>;
  Launch launch;
  // Why these ranks cannot be judged by a check, which is skipped then; null: they can. Empty: nothing is skipped.
  std::function<const char*(std::string_view check)> why_skipped;
  // Why these ranks cannot run a scenario; empty: they can. Rows of a sweep that they cannot run are left out, and said
  // to be. Null: they can run all.
  std::function<std::string(const Scenario&)> why_not;
  bool launch_again = false;  // they can run a second scenario beside this one
  std::string backend = "sim";
  std::string device = "cpu";
  int max = 0;  // rows of a sweep with more are left out, and said to be; 0: there is no limit
};

// One of `of` parts of scenarios or rows, counted from 0: those whose number leaves `part`, divided by `of`.
struct Shard {
  std::size_t part = 0;
  std::size_t of = 1;
  bool has(std::size_t number) const { return number % of == part; }
};

// Options of scenarios that are many runs: fault plans and sweeps.
struct ManyOptions {
  int processes = 0;      // runs at once; 0: one a core
  int row = -1;           // only this row of a sweep
  bool is_row = false;    // this is a row of a sweep
  Shard shard;            // of the rows of a sweep
  int retries = 0;        // of what came to no end within its wall time
  bool all_rows = false;  // a sweep's table has every row, however many there are
};

// --html: a page about the run.
struct HtmlOptions {
  std::string file;     // empty: none is written
  std::string command;  // that runs it again, without its seed
  bool redact = false;  // without names, paths and hosts
};

// What is written beside the report. Empty: it is not.
struct FileOptions {
  std::string out;              // --out: this scenario's folder
  std::string bundle;           // --bundle: of a run that stopped or is red; empty: below --out, where there is one
  std::string flight_recorder;  // --flight-recorder: a folder for a dump of each rank
  std::string trace;            // --trace: a Chrome trace of the run
  std::string metrics;          // --metrics: a line of JSON for each step
  std::string tensorboard;      // --tensorboard: a folder for event files
  bool monitors = false;        // deepspeed.tensorboard and deepspeed.csv_monitor write their files
  std::string monitors_below;   // in this folder of theirs; empty: in their own
  HtmlOptions html;
  std::string save_initial;                                     // a file; or a folder, as Hugging Face keeps models
  std::string save_final;                                       // likewise
  runtime::ElementType save_dtype = runtime::ElementType::f32;  // of both
  std::uint64_t save_shard_bytes = 5'000'000'000;               // of a folder's files
  std::string save_batches;
  std::string save_logits;
  std::string save_gradients;
  std::int64_t gradients_step = 0;  // counted from 1
  // Whether any of the --save-... options is given.
  bool saves() const {
    return !save_initial.empty() || !save_final.empty() || !save_batches.empty() || !save_logits.empty() ||
           !save_gradients.empty();
  }
};

struct RunOptions {
  RanksOptions ranks;
  ManyOptions many;
  FileOptions files;
  // --explain: a page about what is red; empty: not asked for. A higher room makes it (explain/explain.h).
  struct Page {
    std::string text;
    Json json;
  };
  std::function<Page(const Scenario&, const Json& report)> explain;
  // What went wrong first, in five lines before the story, where a run is red though it should not be and its bits
  // are at stake. A sweep shows it for the first such row. Empty: nobody looks.
  std::function<Page(const Scenario&, const Json& report)> names;
  double wall_limit_s = 0;
  bool verify_determinism = false;
  bool rank_by_rank = false;       // ranks that are alike do not stand for each other
  bool progress = false;           // says on stderr how far it is
  const Golden* golden = nullptr;  // found before; null: it is looked for, or run
  Style style;
};

}  // namespace seeksim::harness
