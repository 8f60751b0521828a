#include "harness/torch/explore/explore.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <map>

#include <nlohmann/json.hpp>

#include "harness/input/files.h"
#include "harness/input/json_text.h"
#include "harness/input/problem.h"
#include "harness/input/shell.h"
#include "harness/search/exploration.h"
#include "harness/torch/check/check.h"
#include "harness/torch/check/folder_of_runs.h"
#include "harness/torch/check/recovers.h"
#include "harness/torch/explore/case_verdict.h"
#include "harness/torch/explore/places.h"
#include "harness/torch/explore/simpler.h"
#include "harness/torch/faults.h"
#include "harness/torch/judges.h"
#include "harness/torch/scenario.h"

namespace seeksim::harness::torch {
namespace {

using Rules = std::vector<faults::Rule>;
using State = CheckLine::State;

constexpr double kTimeout_s = 20;      // how long a rank waits for another, where nobody says it
constexpr std::uint32_t kTwoIn = 4;    // one case in so many has two faults
constexpr std::uint32_t kAgainIn = 4;  // one in so many breaks the script again as it goes on
constexpr int kSimplerTries = 8;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct Found {
  Rules rules;
  CaseVerdict verdict;
  int times = 0;
  double after_s = 0;
  bool shown = false;  // it failed alike when it ran again
  std::string file;
};

class Exploring {
 public:
  Exploring(const ExploreScript& request, const Print& print);
  Exploring(const Exploring&) = delete;
  Exploring& operator=(const Exploring&) = delete;
  Outcome run();

 private:
  bool undisturbed();
  Rules draw();
  CaseVerdict play(const Rules& rules, const std::string& folder);
  void take(const Rules& rules, const CaseVerdict& verdict);
  void show_again(Found& found);
  std::string command_that_shows(const std::string& file) const;
  void tell(const std::string& name, State state, const std::string& text);
  bool over() const;
  bool has_red_line() const;
  std::string sentence() const;
  Json report(ExitStatus status) const;
  void tell_end(ExitStatus status) const;
  Outcome outcome() const;

  const ExploreScript& request_;
  const Print& print_;
  double budget_s_;
  TorchScenario scenario_;
  std::optional<FolderOfRuns> runs_;  // once all that was asked for makes sense
  bool goes_on_;                      // it has checkpoints
  sim::Random random_;
  std::chrono::steady_clock::time_point began_;
  TorchRun whole_;
  std::optional<Places> places_;
  bool interrupted_ = false;
  int cases_ = 0;
  std::map<std::string, int> ends_, struck_;  // by word, by kind of fault
  std::map<std::string, Found> found_;        // by key
  std::vector<CheckLine> lines_;
};

Exploring::Exploring(const ExploreScript& request, const Print& print)
    : request_(request),
      print_(print),
      budget_s_(budget_s(request.budget)),
      goes_on_(names_a_folder(request.command)),
      random_(request.seed, sim::Stream::partial) {
  refuse_command(request.command, "explore");
  if (!goes_on_ && !request.resume.empty())
    throw BadInput("--resume " + request.resume, "nothing says where the script saves its checkpoints",
                   "Put {dir} in its arguments, as in -- train.py --save {dir}.");
  scenario_ = scenario_for(request.command, request.scenario, request.sets, request.np, kTimeout_s);
  runs_.emplace(request.command, request.python, request.out, "explore");
}

// Twice: where it does not repeat its own bits, no fault can be judged by them. False: nothing can be explored.
bool Exploring::undisturbed() {
  TorchScenario scenario = scenario_;
  scenario.faults.clear();
  whole_ = runs_->run("undisturbed", scenario, runs_->empty_folder("checkpoints"));
  interrupted_ = whole_.job.stopped == Stopped::interrupted;
  if (interrupted_) return false;
  for (const CheckResult& check : judge(whole_).checks) {
    if (check.ok) continue;
    tell("undisturbed", State::red, check.name + ": " + check.detail);
    return false;
  }
  places_.emplace(whole_, goes_on_ && first_saved(whole_).has_value());
  if (steps_of(whole_) == 0 || places_->rows().empty()) {
    tell("undisturbed", State::red, "it makes no step, so that no fault finds a place");
    return false;
  }
  tell("undisturbed", State::good,
       fmt::format("{} steps; {} faults find a place", steps_of(whole_), places_->rows().size()));
  const TorchRun again = runs_->run("repeated", scenario, runs_->empty_folder("checkpoints"));
  interrupted_ = again.job.stopped == Stopped::interrupted;
  if (interrupted_) return false;
  const Resumption held = hold_resumed(whole_.ranks, again.ranks);
  const bool same = held.same && held.first == 0;
  tell("repeats", same ? State::good : State::red, held.text);
  return same;
}

Rules Exploring::draw() {
  Rules rules;
  const std::size_t wanted = random_.below(kTwoIn) == 0 ? 2 : 1;
  for (int tries = 0; tries < 20 && rules.size() < wanted; ++tries) {
    const auto& rows = places_->rows();
    for (faults::Rule& rule : places_->draw(*rows[random_.below(std::uint32_t(rows.size()))], random_))
      rules.push_back(std::move(rule));
  }
  if (goes_on_ && promise_of(rules) == Promise::ends && random_.below(kAgainIn) == 0) {
    for (faults::Rule& rule : places_->draw_again(random_)) rules.push_back(std::move(rule));
  }
  return rules;
}

CaseVerdict Exploring::play(const Rules& rules, const std::string& folder) {
  TorchScenario scenario = scenario_;
  scenario.faults.clear();
  for (const faults::Rule& rule : rules) scenario.faults.push_back(faults::with_defaults(as_in_torch(rule)));
  const Promise promise = promise_of(rules);
  const std::string checkpoints = runs_->empty_folder(folder + "-checkpoints");
  const TorchRun disturbed = runs_->run(folder, of_attempt(scenario, request_.command, 0), checkpoints);
  interrupted_ |= disturbed.job.stopped == Stopped::interrupted;
  CaseVerdict verdict = verdict_of(whole_, disturbed, promise);
  if (verdict.end != CaseEnd::ended || !goes_on_ || interrupted_) return verdict;
  // Without a checkpoint there is nothing to name: it begins again.
  const std::string more = has_saved(whole_, disturbed) ? request_.resume : "";
  std::optional<TorchRun> resumed;
  std::string failed;
  for (int attempt = 1;; ++attempt) {
    const TorchScenario one = of_attempt(scenario, request_.command, attempt);
    try {
      resumed = runs_->run(folder + "-resumed", one, checkpoints, more, attempt);
      interrupted_ |= resumed->job.stopped == Stopped::interrupted;
      failed = failure(*resumed);
    } catch (const BadInput& bad) {
      failed = bad.problems().empty() ? bad.what() : bad.problems().front().what;
      break;
    }
    if (one.faults.empty() || failed.empty() || interrupted_) break;
    if (std::optional<CaseVerdict> red = verdict_of_broken_again(*resumed)) return *red;
  }
  return verdict_of_resumed(whole_, disturbed, failed.empty() ? &*resumed : nullptr, failed, promise);
}

// A finding is told once it has failed alike again, with as few faults, in as plain words, as do it.
void Exploring::show_again(Found& found) {
  const std::string folder = fmt::format("found-{}", found_.size());
  const auto fails_alike = [&](const Rules& rules) {
    return play(rules, folder).check == found.verdict.check && !interrupted_;
  };
  found.shown = fails_alike(found.rules);
  if (found.shown) {
    const auto in_time = [&](const Rules& rules) { return seconds_since(began_) < budget_s_ && fails_alike(rules); };
    int took = 0;
    found.rules = simpler(found.rules, kSimplerTries, in_time, took);
    if (took > 0) found.shown = fails_alike(found.rules);  // its folder shows what is told
  }
  TorchScenario scenario = scenario_;
  scenario.why = "Found by seeksim torch explore: " + found.verdict.why;
  scenario.faults = found.rules;
  found.file = fmt::format("{}/{}.json", runs_->path(), folder);
  write_file(found.file, dump(to_json(scenario)));
  runs_->keep();
}

void Exploring::take(const Rules& rules, const CaseVerdict& verdict) {
  if (interrupted_) return;
  ++cases_;
  ++ends_[std::string(name(verdict.end))];
  if (verdict.end != CaseEnd::not_struck) {
    for (const faults::Rule& rule : rules) ++struck_[std::string(faults::name(rule.kind))];
  }
  if (verdict.end != CaseEnd::red) return;
  const std::string key = finding_key(verdict.check, verdict.why);
  const auto [at, is_new] = found_.try_emplace(key);
  ++at->second.times;
  if (!is_new) return;
  Found& found = at->second;
  found.rules = rules;
  found.verdict = verdict;
  found.after_s = seconds_since(began_);
  show_again(found);
  if (request_.quiet) return;
  print_(fmt::format("  {}  after {:.1f} s: {}: {}\n", request_.style.bad("RED "), found.after_s, verdict.check,
                     verdict.why));
  for (const faults::Rule& rule : found.rules) print_(fmt::format("        {}\n", faults::text(rule)));
  if (!found.shown) print_("        it did not fail alike when it ran again\n");
  print_(request_.style.faint(fmt::format("        {}\n", command_that_shows(found.file))));
}

std::string Exploring::command_that_shows(const std::string& file) const {
  std::vector<std::string> words = {"seeksim", "torch", "explore", file, "--cases", "1"};
  if (!request_.resume.empty()) words.insert(words.end(), {"--resume", request_.resume});
  if (!request_.python.empty()) words.insert(words.end(), {"--python", request_.python});
  words.emplace_back("--");
  words.insert(words.end(), request_.command.begin(), request_.command.end());
  return command_line(words);
}

void Exploring::tell(const std::string& name, State state, const std::string& text) {
  CheckLine line;
  line.name = name;
  line.state = state;
  line.text = text;
  if (!request_.quiet) print_(line_text(line, request_.style));
  lines_.push_back(std::move(line));
}

bool Exploring::over() const {
  return interrupted_ || seconds_since(began_) >= budget_s_ || (request_.cases > 0 && cases_ >= request_.cases) ||
         (request_.findings > 0 && int(found_.size()) >= request_.findings);
}

std::string Exploring::sentence() const {
  if (has_red_line()) return check_sentence(lines_);
  const int red = ends_.contains("red") ? ends_.at("red") : 0;
  if (interrupted_) return fmt::format("interrupted after {} cases, {} red", cases_, red);
  return fmt::format("{} of {} cases {} red, {} finding{}", red, cases_, red == 1 ? "is" : "are", found_.size(),
                     found_.size() == 1 ? "" : "s");
}

bool Exploring::has_red_line() const {
  return std::any_of(lines_.begin(), lines_.end(), [](const CheckLine& line) { return line.state == State::red; });
}

Json Exploring::report(ExitStatus status) const {
  Json lines = Json::array(), found = Json::array();
  for (const CheckLine& line : lines_)
    lines.push_back({{"name", line.name}, {"ok", line.state == State::good}, {"text", line.text}});
  for (const auto& [key, one] : found_) {
    Json rules = Json::array();
    for (const faults::Rule& rule : one.rules) rules.push_back(Json::parse(faults::text(rule)));
    found.push_back({{"check", one.verdict.check},
                     {"why", one.verdict.why},
                     {"times", one.times},
                     {"after_s", one.after_s},
                     {"shown", one.shown},
                     {"faults", rules},
                     {"file", one.file}});
  }
  return {{"schema", kExploreSchema},
          {"command", request_.command},
          {"np", scenario_.torch.ranks},
          {"torch", runs_->torch()},
          {"seed", request_.seed},
          {"cases", cases_},
          {"wall_s", seconds_since(began_)},
          {"ends", ends_},
          {"struck", struck_},
          {"found", found},
          {"lines", lines},
          {"exit_code", int(status)},
          {"sentence", sentence()}};
}

void Exploring::tell_end(ExitStatus status) const {
  const auto counts = [](const std::map<std::string, int>& of) {
    std::vector<std::string> parts;
    for (const auto& [what, n] : of) parts.push_back(fmt::format("{} {}", what, n));
    return fmt::format("{}", fmt::join(parts, ", "));
  };
  if (cases_ > 0)
    print_(request_.style.faint(fmt::format("  cases     {} in {:.1f} s: {}\n  struck    {}\n", cases_,
                                            seconds_since(began_), counts(ends_), counts(struck_))));
  print_(last_line(status, scenario_.name, sentence(), request_.style));
  if (runs_->temporary() && !found_.empty()) print_(fmt::format("  folder    {}\n", runs_->path()));
}

Outcome Exploring::outcome() const {
  Outcome outcome;
  outcome.name = scenario_.name;
  if (interrupted_)
    outcome.status = ExitStatus::no_progress;
  else if (has_red_line() || !found_.empty())
    outcome.status = ExitStatus::check_failed;
  outcome.report = report(outcome.status);
  write_file(runs_->path() + "/explore.json", dump(outcome.report));
  if (!request_.quiet) tell_end(outcome.status);
  return outcome;
}

Outcome Exploring::run() {
  if (!request_.quiet)
    print_(fmt::format("{}  torch {}, {} ranks\n", scenario_.name, runs_->torch(), scenario_.torch.ranks));
  runs_->warm_up();
  began_ = std::chrono::steady_clock::now();
  if (!undisturbed()) return outcome();
  if (!request_.quiet)
    print_(request_.style.faint(fmt::format("  explore   for {}, seed {}{}\n", request_.budget, request_.seed,
                                            goes_on_ ? "" : "; it has no {dir}, so that nothing is resumed")));
  began_ = std::chrono::steady_clock::now();
  if (!scenario_.faults.empty()) take(scenario_.faults, play(scenario_.faults, "case"));
  while (!over()) {
    const Rules rules = draw();
    if (rules.empty()) break;
    take(rules, play(rules, "case"));
  }
  if (cases_ == 0 && !interrupted_)
    throw BadInput(request_.command.front(), "no case was run", "Give it more time: --budget.");
  return outcome();
}

}  // namespace

Outcome explore_script(const ExploreScript& request, const Print& print) { return Exploring(request, print).run(); }

}  // namespace seeksim::harness::torch
