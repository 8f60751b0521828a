#include "harness/run/planned_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>

#include "harness/input/files.h"
#include "harness/input/json_text.h"
#include "harness/loading/faults.h"
#include "harness/loading/load.h"
#include "harness/record/same_bits.h"
#include "harness/report/progress.h"
#include "harness/run/fault_draws.h"
#include "harness/run/fault_places.h"
#include "harness/run/forked.h"
#include "harness/scenario/variants.h"
#include "harness/simulate/simulate.h"
#include "harness/verdict/checks.h"
#include "harness/verdict/suffice.h"
#include "runtime/seams/bounded.h"

namespace seeksim::harness {
namespace {

using faults::Rule;
using How = PlannedEnd::How;

constexpr std::size_t kRunsAJob = 64;  // so that a fork costs little beside them
constexpr std::size_t kRedTold = 10;
constexpr std::size_t kRedKept = 200;

// What one run has beside the scenario.
struct OneRun {
  std::vector<Rule> rules;
  std::string about;  // where, in words; empty where the rules say it
  std::string group;  // by which runs are counted
};

// The committed steps are the golden's, as far as they go.
bool follows(const RunRecord& run, const Golden& golden) {
  if (run.steps.size() > golden.loss.size()) return false;
  for (std::size_t i = 0; i < run.steps.size(); ++i) {
    if (!same_bits(run.steps[i].loss, golden.loss[i])) return false;
  }
  return true;
}

// Words of the plan that allow the stop; empty: none do. Nothing but what needs an end may be red.
std::string allowed_stop(const Evidence& e, const Judgement& j, bool any) {
  if (j.stopped.empty() || e.run.end != sim::WorldEnd::finished || j.status == ExitStatus::bug) return {};
  for (const CheckResult& check : j.checks) {
    if (!check.ok && check.looked && check.name != "finished") return {};
  }
  for (const RankRecord& rank : e.run.ranks) {
    if (rank.how == RankRecord::How::running) return {};
  }
  if (e.golden != nullptr && !follows(e.run, *e.golden)) return {};
  if (any) return would_have_sufficed(e).empty() ? j.stopped : "";
  for (const std::string& words : e.scenario.planned.stops) {
    if (j.stopped.find(words) != std::string::npos) return words;
  }
  return {};
}

// The checks that had nothing to look at, where no other check failed; empty where one did.
std::vector<std::string> only_unjudged(const Judgement& judgement) {
  std::vector<std::string> names;
  for (const CheckResult& check : judgement.checks) {
    if (check.ok) continue;
    if (check.looked) return {};
    names.push_back(check.name);
  }
  return names;
}

std::string rules_text(const std::vector<Rule>& rules) {
  std::vector<std::string> texts;
  for (const Rule& rule : rules) texts.push_back(faults::text(rule));
  return fmt::format("[{}]", fmt::join(texts, ", "));
}

// ---- what comes out ------------------------------------------------------------------------------------------------

struct RedRun {
  std::size_t number = 0;
  std::string rules;  // as JSON
  std::string about;
  std::string why;
};

struct Tally {
  std::size_t runs = 0, as_expected = 0, red = 0;
  std::map<std::string, std::size_t> stops;                           // by words
  std::map<std::string, std::pair<std::size_t, std::size_t>> groups;  // runs, red
  std::map<std::string, std::size_t> red_checks;                      // runs in which this check is red
  std::size_t red_otherwise = 0;                                      // red though no check is: no progress, a bug
  ExitStatus status = ExitStatus::as_expected;
  std::vector<RedRun> first;

  void add(std::size_t number, const OneRun& one, const PlannedEnd& end) {
    ++runs;
    ++groups[one.group].first;
    if (end.how == How::as_expected) ++as_expected;
    if (end.how == How::stopped) ++stops[end.why];
    if (end.how != How::red) return;
    ++red;
    ++groups[one.group].second;
    for (const std::string& check : end.red) ++red_checks[check];
    red_otherwise += end.red.empty() || end.status != ExitStatus::check_failed;
    status = std::max(status, end.status);
    if (first.size() < kRedKept) first.push_back({number, rules_text(one.rules), one.about, end.why});
  }

  void add(const Json& other) {
    runs += other["runs"].get<std::size_t>();
    as_expected += other["as_expected"].get<std::size_t>();
    red += other["red"].get<std::size_t>();
    red_otherwise += other["red_otherwise"].get<std::size_t>();
    status = std::max(status, ExitStatus(other["status"].get<int>()));
    for (const auto& [words, n] : other["stops"].items()) stops[words] += n.get<std::size_t>();
    for (const auto& [name, n] : other["red_checks"].items()) red_checks[name] += n.get<std::size_t>();
    for (const auto& [name, n] : other["groups"].items()) {
      groups[name].first += n[0].get<std::size_t>();
      groups[name].second += n[1].get<std::size_t>();
    }
    for (const Json& one : other["first"]) {
      if (first.size() < kRedKept) first.push_back({one["run"], one["faults"].dump(), one["about"], one["why"]});
    }
  }

  Json json() const {
    Json told = Json::array();
    for (const RedRun& one : first)
      told.push_back({{"run", one.number}, {"faults", Json::parse(one.rules)}, {"about", one.about}, {"why", one.why}});
    Json by_group = Json::object();
    for (const auto& [name, n] : groups) by_group[name] = {n.first, n.second};
    return {{"runs", runs},   {"as_expected", as_expected}, {"red", red},         {"red_otherwise", red_otherwise},
            {"stops", stops}, {"red_checks", red_checks},   {"groups", by_group}, {"status", code(status)},
            {"first", told}};
  }
};

// ---- the runs ------------------------------------------------------------------------------------------------------

std::vector<OneRun> enumerated(const Scenario& scenario) {
  std::vector<OneRun> runs;
  for (FaultPlace& place : places_of(scenario)) {
    runs.push_back({{std::move(place.rule)}, std::move(place.about), std::move(place.group)});
  }
  return runs;
}

runtime::TimeNs horizon_of(const Scenario& scenario) {
  const double hours = scenario.planned.random.hours;
  if (hours > 0) return runtime::to_time_ns(hours * 3600 * double(runtime::kSecond));
  return Simulation(undisturbed(scenario), {}).run().ended_ns;
}

std::vector<OneRun> drawn(const Scenario& scenario) {
  const runtime::TimeNs horizon = horizon_of(scenario);
  std::vector<OneRun> runs;
  for (std::int64_t number = 0; number < scenario.planned.random.runs; ++number) {
    OneRun one{draw_faults(scenario, number, horizon), "", ""};
    one.group = fmt::format("{} faults", std::min<std::size_t>(one.rules.size(), 9));
    runs.push_back(std::move(one));
  }
  return runs;
}

void refuse_files(const RunOptions& options) {
  const FileOptions& files = options.files;
  const bool of_one_run = !files.trace.empty() || !files.metrics.empty() || !files.tensorboard.empty() || files.saves();
  if (of_one_run || options.verify_determinism) {
    throw BadInput("--trace, --metrics, --tensorboard, --verify-determinism, --save-...", "a fault plan has many runs",
                   "Take one of them: set \"fault_plan\" to {} and \"faults\" to its rules.");
  }
}

// In a child: some of the runs, one after the other.
Outcome run_some(const Scenario& base, const std::vector<OneRun>& runs, std::size_t begin, std::size_t end,
                 const Golden* golden, double wall_limit_s) {
  Scenario scenario = base;
  Tally tally;
  for (std::size_t i = begin; i < end; ++i) {
    tally.add(i, runs[i], run_planned(scenario, base.faults, runs[i].rules, golden, wall_limit_s));
  }
  return {ExitStatus::as_expected, base.name, tally.json(), {}};
}

struct Jobs {
  const Scenario& scenario;
  const std::vector<OneRun>& runs;
  const Golden* golden;
  const RunOptions& options;
};

// A job that crashed is taken apart: each of its runs alone, so that the one which crashes is known.
Tally run_jobs(const Jobs& jobs, const std::vector<std::size_t>& begins, std::size_t a_job, Progress& bar) {
  Tally tally;
  std::vector<std::size_t> crashed;
  Forked work;
  work.count = begins.size();
  work.processes = jobs.options.many.processes;
  const auto end_of = [&](std::size_t job) { return std::min(jobs.runs.size(), begins[job] + a_job); };
  work.name = [&](std::size_t job) { return fmt::format("{} run {}", jobs.scenario.name, begins[job]); };
  work.run = [&](std::size_t job, const Print&) {
    return run_some(jobs.scenario, jobs.runs, begins[job], end_of(job), jobs.golden, jobs.options.wall_limit_s);
  };
  work.done = [&](std::size_t job, const std::string&, const Outcome& outcome) {
    if (outcome.problems.empty())
      tally.add(outcome.report);
    else if (a_job > 1)
      crashed.push_back(job);
    else
      tally.add(begins[job], jobs.runs[begins[job]], {How::red, outcome.problems.front(), {}, {}, ExitStatus::bug});
    bar.update(0, std::int64_t(tally.runs), std::int64_t(tally.red));
  };
  run_forked(work);
  std::vector<std::size_t> alone;
  for (const std::size_t job : crashed) {
    for (std::size_t i = begins[job]; i < end_of(job); ++i) alone.push_back(i);
  }
  if (!alone.empty()) tally.add(run_jobs(jobs, alone, 1, bar).json());
  return tally;
}

Tally run_all_of(const Jobs& jobs) {
  const std::size_t cores = std::max(1u, std::thread::hardware_concurrency());
  const std::size_t a_job = std::clamp<std::size_t>(jobs.runs.size() / (4 * cores), 1, kRunsAJob);
  std::vector<std::size_t> begins;
  for (std::size_t i = 0; i < jobs.runs.size(); i += a_job) begins.push_back(i);
  Progress bar(jobs.options.progress, jobs.scenario.name, std::int64_t(jobs.runs.size()), "run");
  Tally tally = run_jobs(jobs, begins, a_job, bar);
  std::sort(tally.first.begin(), tally.first.end(),
            [](const RedRun& a, const RedRun& b) { return a.number < b.number; });
  return tally;
}

// ---- the verdict ---------------------------------------------------------------------------------------------------

struct Verdict {
  ExitStatus status = ExitStatus::as_expected;
  std::string word = "pass";
  std::string sentence;
};

std::string counts(const Tally& t) {
  std::string text = fmt::format("{} runs: {} as expected", t.runs, t.as_expected);
  for (const auto& [words, n] : t.stops) text += fmt::format(", {} stopped ({})", n, words);
  return text + fmt::format(", {} red", t.red);
}

// Where a check is expected to fail, some runs are red, and by nothing else.
Verdict verdict_of(const Scenario& scenario, const Tally& t) {
  if (t.runs == 0) return {ExitStatus::check_failed, "fail", "the plan has no runs: nothing was checked"};
  if (scenario.expect.what != Expect::What::check_fails) return {t.status, name(t.status), counts(t)};
  const std::vector<std::string> wanted = scenario.expect.names();
  const auto names = [&](const std::string& check) {
    return std::find(wanted.begin(), wanted.end(), check.substr(0, check.find(':'))) != wanted.end();
  };
  std::string holding, unexpected;
  for (const std::string& name : wanted) {
    if (std::none_of(t.red_checks.begin(), t.red_checks.end(),
                     [&](const auto& red) { return red.first.substr(0, red.first.find(':')) == name; }))
      holding += (holding.empty() ? "" : ", ") + name;
  }
  for (const auto& [check, n] : t.red_checks) {
    if (!names(check)) unexpected += (unexpected.empty() ? "" : ", ") + check;
  }
  if (t.red_otherwise > 0) return {t.status, "fail", counts(t)};
  if (!holding.empty())
    return {ExitStatus::check_failed, "fail",
            fmt::format("{} was expected to fail, and holds; {}", holding, counts(t))};
  if (!unexpected.empty())
    return {ExitStatus::check_failed, "fail",
            fmt::format("{} failed as expected, but so did {}; {}", scenario.expect.argument, unexpected, counts(t))};
  return {ExitStatus::as_expected, "pass",
          fmt::format("{} failed in {} runs, as expected; {}", scenario.expect.argument, t.red, counts(t))};
}

// The scenario of one run, without the plan. Its "why" gives the reason.
Scenario alone(const Scenario& scenario, const RedRun& red) {
  Scenario one = scenario;
  one.planned = {};
  one.expect = {};
  one.name = fmt::format("{}_run_{}", scenario.name, red.number);
  one.why = fmt::format("Run {} of the fault plan of {}: {}", red.number, scenario.name, red.why);
  return one;
}

// As `seeksim run` takes it: with the run's rules after the scenario's own.
Json alone_json(const Scenario& scenario, const RedRun& red) {
  Json json = to_json(alone(scenario, red));
  for (const Json& rule : Json::parse(red.rules)) json["faults"].push_back(rule);
  return json;
}

std::string how_to_see(const Scenario& scenario, const RedRun& red) {
  Json rules = Json::array();
  for (const Rule& rule : scenario.faults) rules.push_back(to_json(rule));
  for (const Json& rule : Json::parse(red.rules)) rules.push_back(rule);
  return fmt::format("seeksim run {} --seed {} --set 'fault_plan={{}}' --set 'faults={}'", scenario.file,
                     scenario.world.seed, rules.dump());
}

std::string text_of(const Scenario& scenario, const Tally& t, const Verdict& verdict, double wall_s,
                    const Style& style) {
  std::string out;
  for (std::size_t i = 0; i < std::min(t.first.size(), kRedTold); ++i) {
    const RedRun& red = t.first[i];
    out += fmt::format("  {}  run {:<5} {}\n", style.bad("RED "), red.number, red.why);
    if (!red.about.empty()) out += style.faint(fmt::format("        at    {}\n", red.about));
    out += style.faint(fmt::format("        alone {}\n", how_to_see(scenario, red)));
  }
  if (t.red > kRedTold) out += fmt::format("  ... {} more red runs\n", t.red - kRedTold);
  std::vector<std::string> groups;
  for (const auto& [name, n] : t.groups)
    groups.push_back(n.second > 0 ? fmt::format("{} {} ({} red)", name, n.first, n.second)
                                  : fmt::format("{} {}", name, n.first));
  out += style.faint(fmt::format("  runs      {}\n", fmt::join(groups, ", ")));
  const bool good = verdict.status == ExitStatus::as_expected;
  const std::string word = good ? "PASS" : verdict.status == ExitStatus::bug ? "BUG" : "FAIL";
  return out + fmt::format("\n{} {}: {}  (wall {:.2f} s, {:.0f} runs a second)\n",
                           good ? style.good(word) : style.bad(word), scenario.name, verdict.sentence, wall_s,
                           double(t.runs) / std::max(wall_s, 1e-9));
}

Json report_of(const Scenario& scenario, const Tally& tally, const Verdict& verdict, double wall_s) {
  Json report;
  report["schema"] = kReportSchema;
  report["scenario"] = scenario.name;
  report["seed"] = scenario.world.seed;
  report["training_seed"] = scenario.train.definition.training_seed;
  report["verdict"] = verdict.word;
  report["exit_code"] = code(verdict.status);
  report["wall_s"] = wall_s;
  report["sentence"] = verdict.sentence;
  report["fault_plan"] = tally.json();
  report["checks"] = Json::array();
  report["checks"].push_back(
      {{"name", "fault_plan"}, {"ok", verdict.status == ExitStatus::as_expected}, {"detail", verdict.sentence}});
  return report;
}

// The rules of a plan that draws once, as the scenario's own.
Outcome run_drawn(const Scenario& scenario, const RunOptions& options, const Print& print) {
  Scenario one = scenario;
  one.planned = {};
  const std::vector<Rule> rules = draw_faults(scenario, 0, horizon_of(scenario));
  one.faults.insert(one.faults.end(), rules.begin(), rules.end());
  one.drawn_faults = rules.size();
  return run_one(one, options, print);
}

Outcome run_fault_plan(const Scenario& scenario, const RunOptions& options, const Print& print) {
  const auto start = std::chrono::steady_clock::now();
  const bool enumerates = !scenario.planned.enumerated.kinds.empty();
  if (!enumerates && scenario.planned.random.runs == 1) return run_drawn(scenario, options, print);
  refuse_files(options);
  if (!options.files.out.empty()) make_folder(options.files.out, "--out");
  std::string text;
  const Print tell = [&](std::string_view part) {
    text += part;
    print(part);
  };
  tell(header_text(scenario, options.style));
  std::optional<Golden> golden;
  if (options.golden != nullptr)
    golden = *options.golden;
  else if (needs_golden(scenario))
    golden = find_golden(scenario, options, tell);
  const std::vector<OneRun> runs = enumerates ? enumerated(scenario) : drawn(scenario);
  tell(fmt::format("  plan      {} runs: {}\n", runs.size(),
                   enumerates ? "one for each place of a fault" : "faults drawn by the seed"));
  const Tally tally = run_all_of({scenario, runs, golden ? &*golden : nullptr, options});
  const double wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const Verdict verdict = verdict_of(scenario, tally);
  tell(text_of(scenario, tally, verdict, wall_s, options.style));
  Outcome outcome{verdict.status, scenario.name, report_of(scenario, tally, verdict, wall_s), {}};
  write_folder(options.files.out, to_json(scenario), text, outcome.report);
  write_page(options.files.html, outcome.report);
  if (!options.files.out.empty() && !tally.first.empty())
    write_file(options.files.out + "/red.json", dump(alone_json(scenario, tally.first.front())));
  return outcome;
}

}  // namespace

PlannedEnd run_planned(Scenario& scenario, const std::vector<Rule>& own, const std::vector<Rule>& rules,
                       const Golden* golden, double wall_limit_s) {
  scenario.faults = own;
  scenario.faults.insert(scenario.faults.end(), rules.begin(), rules.end());
  scenario.drawn_faults = scenario.planned.random.weights.empty() ? 0 : rules.size();
  SimulationOptions options;
  options.wall_limit_s = wall_limit_s;
  options.digest_gradients = needs_gradients(scenario);
  const Expect expect = std::exchange(scenario.expect, {});  // of the whole plan, not of its runs
  const RunRecord run = Simulation(scenario, options).run();
  PlannedEnd end = judge_planned(scenario, run, golden, Cases::planned);
  scenario.expect = expect;
  return end;
}

PlannedEnd judge_planned(const Scenario& scenario, const RunRecord& run, const Golden* golden, Cases cases) {
  const Evidence evidence{scenario, run, golden, std::nullopt, {}};
  const Judgement judgement = judge(evidence);
  if (judgement.status == ExitStatus::as_expected) return {How::as_expected, "", {}, {}, judgement.status};
  const bool any_stop = cases == Cases::explored && scenario.planned.stops.empty();
  if (std::string words = allowed_stop(evidence, judgement, any_stop); !words.empty())
    return {How::stopped, std::move(words), {}, {}, ExitStatus::as_expected};
  if (cases == Cases::explored && judgement.status == ExitStatus::check_failed) {
    if (std::vector<std::string> open = only_unjudged(judgement); !open.empty())
      return {How::as_expected, "", {}, std::move(open), ExitStatus::as_expected};
  }
  PlannedEnd end{How::red, judgement.sentence, {}, {}, judgement.status};
  for (const CheckResult& check : judgement.checks) {
    if (check.ok) continue;
    if (end.red.empty()) end.why += ": " + check.detail;
    if (check.looked) end.red.push_back(check.name);
  }
  if (const std::string enough = judgement.stopped.empty() ? "" : would_have_sufficed(evidence); !enough.empty())
    end.why += fmt::format(" (it should have continued: {})", enough);
  return end;
}

Outcome run_scenario(const Scenario& scenario, const RunOptions& options, const Print& print) {
  if (!scenario.planned.any()) return run_one(scenario, options, print);
  if (options.explain)
    throw BadInput("--explain", scenario.file + " is many runs",
                   "Explain one of them: the command that shows a red run alone is printed.");
  return run_fault_plan(scenario, options, print);
}

}  // namespace seeksim::harness
