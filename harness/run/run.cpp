#include "harness/run/run.h"

#include <fmt/format.h>

#include "harness/input/problem.h"
#include "harness/input/shell.h"
#include "harness/loading/load.h"
#include "harness/report/progress.h"
#include "harness/run/forked.h"
#include "harness/run/sweep_run.h"

namespace seeksim::harness {
namespace {

// The command that runs this file with these options again, but for the seed, which the caller adds.
std::string command_of(const std::string& file, const LoadOptions& load) {
  std::string text = "seeksim run " + for_the_shell(file);
  for (const std::string& one : load.sets) text += " --set " + for_the_shell(one);
  if (!load.init.empty()) text += " --init " + for_the_shell(load.init);
  return text;
}

}  // namespace

Outcome run_text(std::string_view text, const std::string& file, const LoadOptions& load, const RunOptions& options,
                 const Print& print) {
  return guarded(file, "seeksim run " + file, [&] {
    const Scenario scenario = load_scenario_text(text, file, load);
    if (!scenario.sweep.empty()) return run_sweep(scenario, load, options, print);
    return run_scenario(scenario, options, print);
  });
}

Outcome run_file(const std::string& file, const LoadOptions& load, const RunOptions& given, const Print& print) {
  RunOptions options = given;
  options.files.html.command = command_of(file, load);
  const std::string seed = load.seed ? fmt::format(" --seed {}", *load.seed) : "";
  const auto once = [&] {
    const Scenario scenario = load_scenario(file, load);
    if (options.explain && !scenario.sweep.empty() && options.many.row < 0)
      throw BadInput("--explain", file + " is a sweep", "Add --row N.");
    if (!scenario.sweep.empty()) return run_sweep(scenario, load, options, print);
    if (options.many.row >= 0) throw BadInput("--row", file + " has no sweep", "Leave it out.");
    if (options.many.shard.of > 1)
      throw BadInput("--shard", file + " has no sweep, and it is the only scenario", "Leave it out.");
    return run_scenario(scenario, options, print);
  };
  return retried(options.many.retries, print, [&] { return guarded(file, options.files.html.command + seed, once); });
}

std::vector<Outcome> run_all(const std::vector<Job>& jobs, const LoadOptions& load, int processes, const Print& print) {
  Progress bar(true, fmt::format("{} scenarios", jobs.size()), std::int64_t(jobs.size()), "scenario");
  std::int64_t red = 0;
  Forked work;
  work.count = jobs.size();
  work.processes = processes;
  work.run = [&](std::size_t i, const Print& say) { return run_file(jobs[i].file, load, jobs[i].options, say); };
  work.name = [&](std::size_t i) { return jobs[i].file; };
  work.done = [&](std::size_t i, const std::string& text, const Outcome& outcome) {
    bar.finish();
    print((i > 0 ? "\n" : "") + text);
    red += is_red(outcome);
    bar.update(0, std::int64_t(i + 1), red);
  };
  return run_forked(work);
}

}  // namespace seeksim::harness
