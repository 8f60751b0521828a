#include "harness/torch/check/recovers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "harness/input/files.h"
#include "harness/input/json_text.h"
#include "harness/input/problem.h"
#include "harness/torch/check/folder_of_runs.h"
#include "harness/torch/judges.h"
#include "harness/torch/scenario.h"
#include "pytorch/core/rules.h"

namespace seeksim::harness::torch {
namespace {

using State = CheckLine::State;
using faults::FaultKind;

constexpr double kPatience_s = 30;  // how long a rank waits for another, where no scenario says it

// In the first start of the job.
bool ends_a_rank(const faults::Rule& rule) {
  if (rule.when.attempt.value_or(0) != 0) return false;
  return rule.kind == FaultKind::rank_crash || rule.kind == FaultKind::collective_timeout;
}

class Recovering {
 public:
  Recovering(const RecoversRequest& request, const Print& print);
  Recovering(const Recovering&) = delete;
  Recovering& operator=(const Recovering&) = delete;
  Outcome run();

 private:
  TorchRun run_of(const std::string& name, const TorchScenario& scenario, const std::string& checkpoints,
                  const std::string& more = "", int attempt = 0) const;
  bool undisturbed();
  TorchScenario disturbed_scenario();
  std::optional<TorchRun> disturbed();
  std::optional<TorchRun> resumed();
  void hold(const TorchRun& run);
  void go_through();
  void tell(const std::string& name, State state, const std::string& text);
  Outcome outcome();

  const RecoversRequest& request_;
  const Print& print_;
  TorchScenario scenario_;
  std::optional<FolderOfRuns> runs_;  // once all that was asked for makes sense
  bool red_ = false;
  std::string stopped_;  // by whom, before all was known
  TorchRun whole_;
  TorchScenario broken_;    // with the faults of every start
  std::int64_t step_ = -1;  // in which a rank is killed or hangs; -1: the scenario says what breaks
  std::optional<Resumption> found_;
  std::vector<CheckLine> lines_;
};

Recovering::Recovering(const RecoversRequest& request, const Print& print) : request_(request), print_(print) {
  refuse_command(request.command, "recovers");
  if (!names_a_folder(request.command))
    throw BadInput(request.command.front(), "nothing says where it saves its checkpoints",
                   "Put {dir} in its arguments, as in -- train.py --save {dir}.");
  scenario_ = scenario_for(request.command, request.scenario, request.sets, request.np, kPatience_s);
  runs_.emplace(request.command, request.python, request.out, "recovers");
}

TorchRun Recovering::run_of(const std::string& name, const TorchScenario& scenario, const std::string& checkpoints,
                            const std::string& more, int attempt) const {
  TorchRun run = runs_->run(name, scenario, checkpoints, more, attempt);
  if (run.job.stopped == Stopped::interrupted) throw AskedToStop();  // of that run nothing is known
  return run;
}

// False: it does not get to its end by itself, or saves nothing to go on from.
bool Recovering::undisturbed() {
  TorchScenario scenario = scenario_;
  scenario.faults.clear();
  whole_ = run_of("undisturbed", scenario, runs_->empty_folder("undisturbed-checkpoints"));
  std::vector<std::string> red;
  for (const CheckResult& check : judge(whole_).checks)
    if (!check.ok) red.push_back(check.name + ": " + check.detail);
  if (!red.empty()) {
    tell("undisturbed", State::red, red.front());
    return false;
  }
  const std::optional<std::int64_t> saved = first_saved(whole_);
  const std::int64_t steps = steps_of(whole_);
  if (!saved || *saved >= steps) {
    tell("undisturbed", State::red,
         saved ? fmt::format("it saves first after its last step, {}: nothing is left to resume", *saved - 1)
               : "it saved nothing with torch.save, torch.distributed.checkpoint or safetensors");
    return false;
  }
  tell("undisturbed", State::good,
       fmt::format("{} steps; the first checkpoint is there before step {}", steps, *saved));
  const bool own = std::any_of(scenario_.faults.begin(), scenario_.faults.end(), ends_a_rank);
  // One step later all ranks have written their part of the checkpoint: they had to meet in the step between.
  const std::int64_t earliest = std::min(*saved + 1, steps - 1);
  if (!own) step_ = request_.step.value_or(drawn_step(earliest, steps, request_.seed));
  if (step_ >= steps)
    throw BadInput("--step", fmt::format("the script makes {} steps", steps),
                   fmt::format("Give one from {} to {}.", *saved, steps - 1));
  return true;
}

// The phase in which the last rank comes to its first collective of a step.
std::optional<runtime::Phase> phase_of_step(const TorchRun& run, std::int64_t step) {
  const RankRun& last = run.ranks.back();
  if (!last.record) return std::nullopt;
  for (const pytorch::CallEntry& call : last.record->calls)
    if (call.step == step) return pytorch::catalogue_phase(call.phase);
  return std::nullopt;
}

// The scenario's faults, and a rank that is killed or hangs where none of them ends one.
TorchScenario Recovering::disturbed_scenario() {
  TorchScenario scenario = scenario_;
  if (step_ < 0) return scenario;
  faults::Rule rule;
  rule.kind = request_.how == "hang" ? FaultKind::collective_timeout : FaultKind::rank_crash;
  rule.when.rank = scenario.torch.ranks - 1;
  rule.when.step = step_;
  rule.when.attempt = 0;
  scenario.faults.push_back(faults::with_defaults(rule));
  if (request_.again) {
    rule.when.step = 0;  // the first that it makes then; not before, while it still loads
    rule.when.phase = phase_of_step(whole_, step_);
    rule.when.attempt = 1;
    scenario.faults.push_back(faults::with_defaults(rule));
  }
  return scenario;
}

// Empty: what had to break did not.
std::optional<TorchRun> Recovering::disturbed() {
  broken_ = disturbed_scenario();
  const TorchScenario scenario = of_attempt(broken_, request_.command, 0);
  TorchRun run = run_of("disturbed", scenario, runs_->empty_folder("checkpoints"));
  for (const CheckResult& check : judge(run).checks) {
    // Where a launcher has restarted the ranks, the attempt that was disturbed is not the last one.
    if (check.name != "faults_fired" || check.ok || was_restarted(run)) continue;
    tell("disturbed", State::red, check.detail);
    return std::nullopt;
  }
  std::string text = step_ < 0 ? "the scenario's faults"
                               : fmt::format("rank {} {} in step {}", scenario.torch.ranks - 1,
                                             request_.how == "hang" ? "hangs" : "is killed", step_);
  if (was_restarted(run)) text += "; the launcher starts the ranks again";
  tell("disturbed", State::good, text);
  return run;
}

// Whether each rule of its scenario fired.
bool struck_by_all(const TorchRun& run) {
  const Judgement judged = judge(run);
  return std::none_of(judged.checks.begin(), judged.checks.end(),
                      [](const CheckResult& check) { return check.name == "faults_fired" && !check.ok; });
}

// Resumes it, and once more for each start that the scenario breaks. Empty: it could not go on.
std::optional<TorchRun> Recovering::resumed() {
  std::string wrong;
  for (int attempt = 1; wrong.empty(); ++attempt) {
    const TorchScenario scenario = of_attempt(broken_, request_.command, attempt);
    const std::string name = attempt == 1 ? "resumed" : fmt::format("resumed-{}", attempt);
    try {
      TorchRun run = run_of(name, scenario, runs_->path() + "/checkpoints", request_.resume, attempt);
      const std::string failed = failure(run);
      if (!struck_by_all(run))
        wrong = fmt::format("what had to break start {} of the script did not", attempt + 1);
      else if (failed.empty())
        return run;
      else if (scenario.faults.empty())
        wrong = failed;
      else
        tell("broken again", State::good, fmt::format("after {} more steps", steps_of(run)));
    } catch (const BadInput& bad) {
      wrong = bad.problems().empty() ? bad.what() : bad.problems().front().what;
    }
  }
  tell("resumed", State::red, wrong);
  return std::nullopt;
}

void Recovering::hold(const TorchRun& run) {
  found_ = hold_resumed(whole_.ranks, run.ranks);
  const Resumption& found = *found_;
  const bool from_scratch = found.first == 0 && found.own_steps == found.whole_steps && step_ > 0;
  tell("resumed", from_scratch ? State::red : State::good,
       from_scratch
           ? "it begins again with step 0: nothing was resumed"
           : fmt::format("at step {}: {} step{} more", found.first, found.own_steps, found.own_steps == 1 ? "" : "s"));
  tell("recovers", found.same ? State::good : State::red, found.text);
}

void Recovering::tell(const std::string& name, State state, const std::string& text) {
  CheckLine line;
  line.name = name;
  line.state = state;
  line.text = text;
  red_ |= state == State::red;
  if (red_) runs_->keep();
  if (!request_.quiet) print_(line_text(line, request_.style));
  lines_.push_back(std::move(line));
}

Outcome Recovering::outcome() {
  Outcome outcome;
  outcome.name = scenario_.name;
  const bool stopped = !stopped_.empty();
  outcome.status = stopped ? ExitStatus::no_progress : red_ ? ExitStatus::check_failed : ExitStatus::as_expected;
  Json lines = Json::array(), differ = Json::array();
  for (const CheckLine& line : lines_)
    lines.push_back({{"name", line.name}, {"ok", line.state == State::good}, {"text", line.text}});
  if (found_)
    for (const Part part : found_->differ) differ.push_back(std::string(name(part)));
  const std::string sentence = check_sentence(lines_) + (stopped ? "; " + stopped_ : "");
  outcome.report = {{"schema", kRecoversSchema},
                    {"command", request_.command},
                    {"np", scenario_.torch.ranks},
                    {"torch", runs_->torch()},
                    {"how", step_ < 0 ? "scenario" : request_.how},
                    {"step", step_ < 0 ? Json(nullptr) : Json(step_)},
                    {"resumed_at", found_ ? Json(found_->first) : Json(nullptr)},
                    {"lines", lines},
                    {"differ", differ},
                    {"exit_code", int(outcome.status)},
                    {"sentence", sentence}};
  if (!request_.quiet) {
    print_(last_line(outcome.status, scenario_.name, sentence, request_.style));
    if (runs_->temporary() && red_) print_(fmt::format("  folder    {}\n", runs_->path()));
  }
  write_file(runs_->path() + "/recovers.json", dump(outcome.report));
  return outcome;
}

Outcome Recovering::run() {
  runs_->warm_up();
  if (!request_.quiet)
    print_(fmt::format("{}  torch {}, {} ranks\n", scenario_.name, runs_->torch(), scenario_.torch.ranks));
  try {
    go_through();
  } catch (const AskedToStop& stop) {
    stopped_ = stop.what();
  }
  return outcome();
}

void Recovering::go_through() {
  if (!undisturbed()) return;
  std::optional<TorchRun> run = disturbed();
  if (run && was_restarted(*run)) {
    if (const std::string wrong = failure(*run); !wrong.empty()) {
      tell("resumed", State::red, wrong);
      run.reset();
    }
  } else if (run && !ended_well(*run)) {
    run = resumed();
  }
  if (run) hold(*run);
}

}  // namespace

std::int64_t drawn_step(std::int64_t first_saved, std::int64_t steps, std::uint64_t seed) {
  std::uint64_t x = seed + 0x9e3779b97f4a7c15U;  // splitmix64
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  x ^= x >> 31;
  const std::int64_t choices = std::max<std::int64_t>(steps - first_saved, 1);
  return first_saved + std::int64_t(x % std::uint64_t(choices));
}

std::optional<std::int64_t> first_saved(const TorchRun& run) {
  std::optional<std::int64_t> first;
  for (const RankRun& rank : run.ranks) {
    if (!rank.record) continue;
    for (const pytorch::SightEntry& sight : rank.record->sights)
      if (sight.kind == pytorch::SightKind::saved) first = std::min(first.value_or(sight.step), sight.step);
  }
  return first;
}

Outcome run_recovers(const RecoversRequest& request, const Print& print) { return Recovering(request, print).run(); }

}  // namespace seeksim::harness::torch
