// A scenario file from start to verdict: one run, a fault plan or a sweep. The front door of this room.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "harness/loading/load.h"
#include "harness/run/planned_run.h"

#include <nlohmann/json.hpp>

namespace seeksim::harness {

// Loads and runs, a sweep row by row. Bad input and bugs become outcomes with problems, so that other scenarios go on.
Outcome run_file(const std::string& file, const LoadOptions& load, const RunOptions& options, const Print& print);

// The same of a scenario's text; `file`: where it would stand, and from where the files that it names are found.
Outcome run_text(
    std::string_view text, const std::string& file, const LoadOptions& load = {}, const RunOptions& options = {},
    const Print& print = [](std::string_view) {});

// A file to run, and how.
struct Job {
  std::string file;
  RunOptions options;
};

// Several files, each in a forked process. One outcome a job, same order. processes: at most so many at once; 0: one a
// core.
std::vector<Outcome> run_all(const std::vector<Job>& jobs, const LoadOptions& load, int processes, const Print& print);

}  // namespace seeksim::harness
