// One scenario from start to verdict: golden, the run, what the checks need besides, the report and the files.
#pragma once

#include <functional>
#include <string>

#include "harness/report/outcome.h"
#include "harness/run/options.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

// One run of a loaded scenario, which has no fault plan and no sweep (or is a row of it). Throws BadInput where a file
// cannot be written.
Outcome run_one(const Scenario& scenario, const RunOptions& options, const Print& print);

// Writes scenario, story and report, the latter also for CI, into the folder of --out; empty: writes nothing.
void write_folder(const std::string& folder, const Json& scenario, const std::string& story, const Json& report);

// --html of what has a report and no record: sweeps, fault plans, what could not be run. Throws BadInput.
void write_page(const HtmlOptions& html, const Json& report);

// Runs what may fail: bad input, bugs and a lack of time or memory become an outcome that reports it. `again` is the
// command that shows it once more.
Outcome guarded(const std::string& name, const std::string& again, const std::function<Outcome()>& run);

// Runs again what came to no end, at most so many times: only the machine's speed decides that on simulated ranks, and
// a failed check fails again. Where there was a second time, the report has "retries".
Outcome retried(int retries, const Print& print, const std::function<Outcome()>& run);

// A check of bits is red though it should not be: which operation went wrong first is worth a second run.
bool wants_names(const Outcome& outcome);

// The stored golden, or the one-rank run; says to `print` which.
Golden find_golden(const Scenario& scenario, const RunOptions& options, const Print& print);

// The one-rank golden, run now. Throws OutOfTime past the limit (0: none), std::runtime_error when it does not finish.
Golden run_golden(const Scenario& scenario, const std::string& key, double wall_limit_s = 0, bool progress = false);

}  // namespace seeksim::harness
