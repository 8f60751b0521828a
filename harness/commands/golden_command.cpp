#include "harness/commands/golden_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "harness/doctor/machine.h"
#include "harness/input/files.h"
#include "harness/input/json_text.h"
#include "harness/input/scenario_files.h"
#include "harness/loading/load.h"
#include "harness/oracles/reference_steps.h"
#include "harness/record/golden.h"
#include "harness/report/report.h"
#include "harness/report/terminal.h"
#include "harness/run/one_run.h"
#include "harness/scenario/variants.h"

namespace seeksim::harness {
namespace {

ExitStatus golden_of_file(const std::string& file, const GoldenArguments& a) {
  LoadOptions load;
  load.sets = a.sets;
  const Scenario scenario = load_scenario(file, load);
  if (is_of_shapes(scenario)) throw BadInput(file, "a shapes-only run has no golden", "Use \"numerics\": \"exact\".");
  const std::string key = golden_key(one_rank(scenario).train.definition);
  if (a.explain) put_data(dump(key_fields(scenario.train.definition)));
  const std::optional<Golden> stored = stored_golden(scenario);
  const std::string folder = top_folder() + "/golden";
  const std::string target = stored ? stored->origin : folder + '/' + golden_file_name(scenario, key);
  if (a.write) probe_writable(target, "--write");
  const Golden fresh = run_golden(scenario, key, 0, ::isatty(STDERR_FILENO) == 1);
  put(fmt::format("{}  key {}  params {}  loss {} -> {}  ({})\n", scenario.name, key, hex(fresh.state.params),
                  fresh.loss.front(), fresh.loss.back(), fresh.origin));
  std::string differs = stored ? difference(*stored, fresh.state) : "";
  for (std::size_t i = 0; stored && differs.empty() && i < fresh.loss.size(); ++i) {
    if (stored->loss.size() != fresh.loss.size() || !(stored->loss[i] == fresh.loss[i]))
      differs = fmt::format("loss of step {}", i);
  }
  if (stored && !differs.empty()) put(fmt::format("  differs from {}: {}\n", stored->origin, differs));
  if (stored && differs.empty()) put(fmt::format("  equal to {}\n", stored->origin));
  if (!stored) put(fmt::format("  no golden is stored under this key\n"));
  const std::string wrong = fresh.judged ? contradiction(*fresh.judged) : "";
  if (!wrong.empty()) {
    put(fmt::format("  the reference has other values: {}\n{}", wrong, a.write ? "  not written\n" : ""));
    if (a.write || a.check) return ExitStatus::check_failed;
  }
  if (a.write) {
    write_file(target, dump(to_json(fresh, scenario)));
    put(fmt::format("  written: {}\n", target));
    return ExitStatus::as_expected;
  }
  return a.check && (!stored || !differs.empty()) ? ExitStatus::check_failed : ExitStatus::as_expected;
}

}  // namespace

ExitStatus golden_command(const GoldenArguments& a) {
  check_machine();
  ExitStatus status = ExitStatus::as_expected;
  for (const std::string& file : with_folders_expanded(a.files)) status = std::max(status, golden_of_file(file, a));
  return status;
}

}  // namespace seeksim::harness
