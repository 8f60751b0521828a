#include "harness/commands/diff_command.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "harness/archive/kept_runs.h"
#include "harness/commands/runs_command.h"
#include "harness/input/files.h"
#include "harness/input/json_text.h"
#include "harness/input/problem.h"
#include "harness/loading/load.h"
#include "harness/report/terminal.h"

namespace seeksim::harness {
namespace {

Scenario load_side(const std::string& file, const std::vector<std::string>& sets, const std::string& schedule) {
  LoadOptions options;
  options.sets = sets;
  options.schedule = schedule;
  return load_scenario(file, options);
}

}  // namespace

ExitStatus diff_command(const DiffArguments& a, const Style& style) {
  if (!a.report.empty()) probe_writable(a.report, "--report");
  if (is_kept_run(a.a) && !a.b.empty()) return diff_kept_runs(a.a, a.b, a.report, style);
  if (a.b.empty() && (!a.sets_b.empty() || !a.schedule_b.empty()))
    throw BadInput("--set-b, --schedule-b", "there is no second scenario", "Name it: seeksim diff A.json B.json.");
  const Scenario left = load_side(a.a, a.sets, a.schedule_a);
  std::vector<std::string> sets = a.sets;
  sets.insert(sets.end(), a.sets_b.begin(), a.sets_b.end());
  const Scenario right = a.b.empty() ? golden_like(left) : load_side(a.b, sets, a.schedule_b);
  const std::string other = a.b.empty() ? "its golden" : a.b;
  const Difference found = difference_of(left, right, a.wall_limit_s);
  if (!a.report.empty()) {
    Json json = {{"schema", "seeksim-diff-1"},
                 {"a", a.a},
                 {"b", a.b.empty() ? Json(nullptr) : Json(a.b)},
                 {"differ", found.any},
                 {"step", found.step < 0 ? Json(nullptr) : Json(found.step)},
                 {"what", found.what},
                 {"op", found.op ? difference_json(*found.op) : Json(nullptr)},
                 {"chain", found.chain},
                 {"entries", found.compared},
                 {"entries_that_differ", found.differing}};
    write_file(a.report, dump(json));
  }
  if (!found.any) {
    put(fmt::format("{} {} and {}: every step, every gradient and the final state have the same bits\n",
                    style.good("SAME"), a.a, other));
    return ExitStatus::as_expected;
  }
  put(fmt::format("{} {} and {}\n", style.bad("DIFFERENT"), a.a, other));
  put(found.step < 0 ? fmt::format("  step        none; after the last one: {}\n", found.what)
                     : fmt::format("  step        {}: {}\n", found.step, found.what));
  if (found.op)
    put(difference_text(*found.op, "  "));
  else
    put(fmt::format("  operation   none of {} that both have; what differs is held by one of them only\n",
                    found.compared));
  put("  the way there:\n");
  for (const std::string& line : found.chain) put("    " + line + '\n');
  put(style.faint(
      fmt::format("  {} of {} things that operations read and wrote differ\n", found.differing, found.compared)));
  return ExitStatus::check_failed;
}

}  // namespace seeksim::harness
