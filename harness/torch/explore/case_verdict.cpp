#include "harness/torch/explore/case_verdict.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/torch/check/folder_of_runs.h"
#include "harness/torch/check/recovers.h"
#include "harness/torch/check/resumed.h"
#include "harness/torch/faults.h"
#include "harness/torch/judges.h"
#include "runtime/seams/enum_names.h"

namespace seeksim::harness::torch {
namespace {

constexpr runtime::EnumNames<CaseEnd> kEnds({{CaseEnd::not_struck, "not_struck"},
                                             {CaseEnd::unnoticed, "unnoticed"},
                                             {CaseEnd::ended, "ended"},
                                             {CaseEnd::went_on, "went_on"},
                                             {CaseEnd::gave_up, "gave_up"},
                                             {CaseEnd::red, "red"}});

CaseVerdict red(std::string check, std::string why) { return {CaseEnd::red, std::move(check), std::move(why)}; }

bool any_fired(const TorchRun& run) {
  return std::any_of(run.ranks.begin(), run.ranks.end(),
                     [](const RankRun& rank) { return rank.record && !rank.record->faults.empty(); });
}

// Whether all that had to be ended are ranks that a fault lets hang. Nobody but a launcher can end those, where no
// other rank waits for them any more.
bool only_hung_ranks_stayed(const TorchRun& run) {
  return std::all_of(run.job.processes.begin(), run.job.processes.end(), [&](const ProcessRun& process) {
    const auto lets_hang = [&](const faults::Rule& rule) { return keeps_out(rule) && rule.when.rank == process.rank; };
    return !process.ended_by_us || std::any_of(run.scenario.faults.begin(), run.scenario.faults.end(), lets_hang);
  });
}

// A rank never ended, though no fault held it.
std::optional<CaseVerdict> stuck(const TorchRun& run) {
  const bool stopped = run.job.stopped == Stopped::no_progress || run.job.stopped == Stopped::out_of_time;
  if (stopped && !only_hung_ranks_stayed(run)) return red("ends", run.job.why);
  return std::nullopt;
}

// Judges that say of a run that was broken off only that it was.
bool says_that_it_ended(const std::string& judge) {
  static const char* const kNames[] = {"recorded", "no_hang", "finished", "collectives_match"};
  return std::find(std::begin(kNames), std::end(kNames), judge) != std::end(kNames);
}

std::optional<CaseVerdict> red_judge(const TorchRun& run, bool ended) {
  for (const CheckResult& check : judge(run).checks) {
    if (check.ok || check.name == "faults_fired" || (ended && says_that_it_ended(check.name))) continue;
    return red(check.name, check.detail);
  }
  return std::nullopt;
}

CaseVerdict same_bits(const TorchRun& undisturbed, const TorchRun& run) {
  const Resumption held = hold_resumed(undisturbed.ranks, run.ranks);
  const bool whole = held.first == 0 || was_restarted(run);
  if (!held.same || !whole) return red("same_bits", held.text);
  return {CaseEnd::unnoticed, "", ""};
}

// A rank that ends with status 0 before the last step tells its launcher that all is well.
std::string ends_as_if_well(const TorchRun& undisturbed, const TorchRun& run) {
  for (const ProcessRun& process : run.job.processes) {
    if (process.rank < 0 || !process.ending.good() || std::size_t(process.rank) >= run.ranks.size()) continue;
    const auto& record = run.ranks[std::size_t(process.rank)].record;
    const std::int64_t steps = record ? std::int64_t(record->steps.size()) : 0;
    if (steps < steps_of(undisturbed))
      return fmt::format("rank {} ended with status 0 after {} of {} steps", process.rank, steps,
                         steps_of(undisturbed));
  }
  return "";
}

}  // namespace

std::string_view name(CaseEnd end) { return kEnds.of(end); }

CaseVerdict verdict_of(const TorchRun& undisturbed, const TorchRun& disturbed, Promise promise) {
  if (!any_fired(disturbed)) return {CaseEnd::not_struck, "", ""};
  if (std::optional<CaseVerdict> found = stuck(disturbed)) return *found;
  const bool well = ended_well(disturbed), must = promise == Promise::same_bits;
  if (std::optional<CaseVerdict> found = red_judge(disturbed, !well && !must)) return *found;
  if (well) return same_bits(undisturbed, disturbed);
  if (must) return red("ends", failure(disturbed));
  if (std::string why = ends_as_if_well(undisturbed, disturbed); !why.empty()) return red("ends", std::move(why));
  return {CaseEnd::ended, "", ""};
}

std::optional<CaseVerdict> verdict_of_broken_again(const TorchRun& run) {
  if (std::optional<CaseVerdict> found = stuck(run)) return found;
  return red_judge(run, true);
}

bool has_saved(const TorchRun& undisturbed, const TorchRun& disturbed) {
  const std::optional<std::int64_t> saved = first_saved(undisturbed);
  return saved && steps_of(disturbed) > *saved + 1;
}

CaseVerdict verdict_of_resumed(const TorchRun& undisturbed, const TorchRun& disturbed, const TorchRun* resumed,
                               const std::string& failed, Promise promise) {
  if (resumed == nullptr) {
    if (promise == Promise::goes_on) return {CaseEnd::gave_up, "", ""};
    return red("resumed", failed);
  }
  const Resumption held = hold_resumed(undisturbed.ranks, resumed->ranks);
  if (held.first == 0 && has_saved(undisturbed, disturbed) && promise != Promise::goes_on)
    return red("resumed", fmt::format("it begins again with step 0, though it saved in step {}",
                                      first_saved(undisturbed).value_or(0)));
  if (!held.same) return red("recovers", held.text);
  return {CaseEnd::went_on, "", ""};
}

}  // namespace seeksim::harness::torch
