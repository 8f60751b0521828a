#include "harness/torch/hunt/hunt.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>

#include <nlohmann/json.hpp>

#include "harness/input/files.h"
#include "harness/input/json_text.h"
#include "harness/input/problem.h"
#include "harness/search/exploration.h"
#include "harness/torch/check/check.h"
#include "harness/torch/check/kept_folder.h"
#include "harness/torch/hunt/script.h"
#include "harness/torch/hunt/shrink.h"

namespace seeksim::harness::torch {
namespace {

namespace fs = std::filesystem;

constexpr int kShrinkTries = 40;
constexpr int kRefusalTries = 25;
constexpr double kTells_s = 60;  // how often counts are told
constexpr double kLook_s = 60;   // for a look at the Python's packages

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Processor time of all processes that were started and have ended.
double processor_s() {
  rusage used{};
  ::getrusage(RUSAGE_CHILDREN, &used);
  const auto seconds = [](const timeval& time) { return double(time.tv_sec) + double(time.tv_usec) / 1e6; };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

// The version of DeepSpeed that this Python has; empty: none.
std::string deepspeed_version(const std::string& python) {
  const Captured said =
      capture({python, "-c", "import importlib.metadata as m; print(m.version('deepspeed'))"}, {}, kLook_s);
  if (!said.ending.good()) return "";
  return said.out.substr(0, said.out.find('\n'));
}

// Without DeepSpeed its wrappers are not drawn.
std::vector<std::string> with_what_is_there(std::vector<std::string> only, bool deepspeed) {
  const bool says =
      std::any_of(only.begin(), only.end(), [](const std::string& one) { return one.starts_with("wrapper="); });
  if (!deepspeed && !says) only.emplace_back("wrapper=ddp,fsdp1,fsdp2,hsdp");
  return only;
}

class Hunting {
 public:
  Hunting(const HuntRequest& request, const Print& print);
  Hunting(const Hunting&) = delete;
  Hunting& operator=(const Hunting&) = delete;
  Outcome run();

 private:
  void go();
  Outcome one_case();
  void take(const Case& drawn);
  void learn_refusal(const Case& drawn, const TrialVerdict& verdict);
  bool explains(const Case& part, const Case& drawn);
  bool is_known(const Case& drawn, const TrialVerdict& verdict);
  void take_finding(const Case& drawn, const TrialVerdict& verdict);
  void keep(HuntFinding& found);
  TrialVerdict tried(const Case& drawn);
  bool over() const;
  void save();
  void tell(const std::string& text) const;
  Outcome outcome();

  const HuntRequest& request_;
  const Print& print_;
  double budget_s_;
  Trials trials_;
  HuntState state_;
  Coverage coverage_;
  std::vector<Case> told_before_;     // what known findings need
  std::optional<KeptFolder> folder_;  // once all that was asked for makes sense
  std::optional<FolderLock> lock_;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  double earlier_s_ = 0, told_s_ = 0;
  int earlier_runs_ = 0, cases_ = 0;  // of this command
  bool interrupted_ = false;
};

// What is imported once for all runs.
std::vector<std::string> modules_of(const HuntRequest& request, const std::string& deepspeed) {
  std::vector<std::string> modules = {"torch.distributed.fsdp", "torch.distributed.checkpoint.state_dict",
                                      "torch.distributed.tensor"};
  // DeepSpeed asks for a compiler while it starts, which imports these: five seconds of each run.
  if (!deepspeed.empty())
    modules.insert(modules.end(), {"deepspeed", "torch._inductor.compile_fx", "torch._inductor.select_algorithm"});
  modules.insert(modules.end(), request.imports.begin(), request.imports.end());
  return modules;
}

Hunting::Hunting(const HuntRequest& request, const Print& print)
    : request_(request),
      print_(print),
      budget_s_(budget_s(request.budget)),
      trials_(request.python, modules_of(request, deepspeed_version(find_python(request.python)))),
      state_{{trials_.torch(), deepspeed_version(find_python(request.python)), request.seed, {}, request.imports},
             0,
             0,
             0,
             0,
             {},
             {},
             {}},
      coverage_(with_what_is_there(request.only, !state_.of.deepspeed.empty())) {
  for (const std::string& one : request.known) told_before_.push_back(needed(case_of(one)));
  state_.of.only = with_what_is_there(request.only, !state_.of.deepspeed.empty());
  folder_.emplace(request.out, "hunt");
  lock_.emplace(folder_->path(), "--out");
  const std::string file = folder_->path() + "/hunt.json";
  if (fs::exists(file)) load_state(file, state_, coverage_);
  earlier_s_ = state_.wall_s;
  earlier_runs_ = state_.runs;
}

void Hunting::tell(const std::string& text) const {
  if (!request_.quiet) print_(text);
}

TrialVerdict Hunting::tried(const Case& drawn) {
  const std::string folder = folder_->path() + "/case";
  make_folder(folder, "--out");
  TrialVerdict verdict = trials_.run(drawn, folder);
  interrupted_ |= verdict.end == TrialEnd::stopped;
  return verdict;
}

// Which features the framework refuses together: these are not drawn any more.
void Hunting::learn_refusal(const Case& drawn, const TrialVerdict& verdict) {
  const std::string words = finding_key("", verdict.text);
  const auto still = [&](const Case& other) {
    if (interrupted_) return false;
    const TrialVerdict again = tried(other);
    return again.end == TrialEnd::refused && finding_key("", again.text) == words;
  };
  int took = 0;
  const Case part = needed(shrunk(drawn, kRefusalTries, still, took));
  if (interrupted_) return;
  state_.refusals.push_back({part, verdict.text, 1});
  coverage_.refuse(part);
  tell(request_.style.faint(fmt::format("  refused   {}: {}\n", case_text(normal(part)), verdict.text)));
}

// Whether a finding that needs `part` explains this case, which is red: without what it needs the case is not.
bool Hunting::explains(const Case& part, const Case& drawn) {
  if (!holds(drawn, part)) return false;
  Case without = drawn;
  for (const auto& [name, value] : part) {
    if (name != "wrapper") without[name] = feature(name).values.front();
  }
  without = normal(without);
  return without == drawn || !cannot_be(without).empty() || tried(without).end != TrialEnd::red;
}

bool Hunting::is_known(const Case& drawn, const TrialVerdict& verdict) {
  const auto explains_it = [&](const Case& part) { return explains(part, drawn); };
  if (std::any_of(told_before_.begin(), told_before_.end(), explains_it)) return true;
  for (HuntFinding& found : state_.found) {
    if (found.check != verdict.check || !explains(needed(found.drawn), drawn)) continue;
    ++found.times;
    return true;
  }
  return false;
}

// The script, the record and the runs that show a finding.
void Hunting::keep(HuntFinding& found) {
  const std::string name = fmt::format("found-{}", state_.found.size() + 1);
  const std::string base = folder_->path() + '/' + name;
  found.script = base + ".py";
  write_file(found.script, script_of(found.drawn, name + ".py", "Found by seeksim torch hunt."));
  std::error_code ignored;
  fs::remove_all(base, ignored);
  fs::rename(folder_->path() + "/case", base, ignored);
  folder_->keep();
}

void Hunting::take_finding(const Case& drawn, const TrialVerdict& verdict) {
  const auto still = [&](const Case& other) {
    if (interrupted_) return false;
    const TrialVerdict again = tried(other);
    return again.end == TrialEnd::red && again.check == verdict.check;
  };
  int took = 0;
  HuntFinding found;
  found.first = drawn;
  found.number = state_.number;
  found.drawn = shrunk(drawn, kShrinkTries, still, took);
  if (interrupted_ || is_known(found.drawn, verdict)) return;  // what is left may be what a known one needs
  trials_.forget();
  TrialVerdict last = tried(found.drawn);
  if (interrupted_) return;
  found.shown = last.end == TrialEnd::red && last.check == verdict.check;
  if (!found.shown) last = verdict;
  found.check = last.check;
  found.text = last.text;
  found.where = last.where;
  found.expected = torch::name(last.expected.grade);
  found.why = last.expected.why;
  found.key = signature(found.drawn, found.check, found.where);
  for (HuntFinding& known : state_.found) {
    if (known.key != found.key) continue;
    ++known.times;
    return;
  }
  keep(found);
  Json record = last.found ? comparison_json(*last.found, last.expected.grade, "plain", found.drawn.at("wrapper"))
                           : Json::object();
  record["case"] = case_text(found.drawn);
  record["torch"] = state_.of.torch;
  record["deepspeed_version"] = state_.of.deepspeed;
  record["text"] = found.text;
  write_file(found.script.substr(0, found.script.size() - 3) + ".json", dump(record));
  tell(finding_text(found, request_.style));
  state_.found.push_back(std::move(found));
}

void Hunting::take(const Case& drawn) {
  const TrialVerdict verdict = tried(drawn);
  if (interrupted_) return;
  if (verdict.end == TrialEnd::refused) {
    learn_refusal(drawn, verdict);
  } else {
    coverage_.add(drawn);
    if (verdict.end == TrialEnd::red && !is_known(drawn, verdict)) take_finding(drawn, verdict);
  }
  if (interrupted_) return;
  ++state_.ends[std::string(name(verdict.end))];
  ++state_.number;
  ++cases_;
}

bool Hunting::over() const {
  return interrupted_ || seconds_since(began_) >= budget_s_ || (request_.cases > 0 && cases_ >= request_.cases) ||
         (request_.findings > 0 && int(state_.found.size()) >= request_.findings);
}

void Hunting::save() {
  state_.wall_s = earlier_s_ + seconds_since(began_);
  state_.runs = earlier_runs_ + trials_.runs();
  write_file(folder_->path() + "/hunt.json", dump(to_json(state_, coverage_)));
}

Outcome Hunting::outcome() {
  trials_.end();
  state_.processor_s += processor_s();
  save();
  Outcome outcome;
  outcome.name = "hunt";
  outcome.status = interrupted_           ? ExitStatus::no_progress
                   : state_.found.empty() ? ExitStatus::as_expected
                                          : ExitStatus::check_failed;
  outcome.report = to_json(state_, coverage_);
  outcome.report["exit_code"] = int(outcome.status);
  outcome.report["sentence"] = hunt_sentence(state_, interrupted_);
  tell(request_.style.faint(counts_text(state_, coverage_)));
  tell(last_line(outcome.status, outcome.name, hunt_sentence(state_, interrupted_), request_.style));
  if (folder_->temporary() && !state_.found.empty()) tell(fmt::format("  folder    {}\n", folder_->path()));
  return outcome;
}

Outcome Hunting::one_case() {
  const Case drawn = case_of(request_.one);
  if (const std::string why = cannot_be(drawn); !why.empty()) throw BadInput("--case " + request_.one, why, "");
  const TrialVerdict verdict = tried(drawn);
  trials_.end();
  Outcome outcome;
  outcome.name = "hunt";
  outcome.status = interrupted_                   ? ExitStatus::no_progress
                   : verdict.end == TrialEnd::red ? ExitStatus::check_failed
                                                  : ExitStatus::as_expected;
  outcome.report = {{"schema", kHuntSchema},  {"case", case_text(drawn)}, {"end", std::string(name(verdict.end))},
                    {"check", verdict.check}, {"text", verdict.text},     {"exit_code", int(outcome.status)}};
  if (verdict.found)
    outcome.report["comparison"] =
        comparison_json(*verdict.found, verdict.expected.grade, "plain", drawn.at("wrapper"));
  tell(verdict_text(drawn, verdict, request_.style));
  if (verdict.end == TrialEnd::red) folder_->keep();
  return outcome;
}

void Hunting::go() {
  while (!over()) {
    const Case drawn = coverage_.draw(request_.seed, state_.number);
    if (drawn.empty()) break;
    take(drawn);
    save();
    if (const double now = seconds_since(began_); now - told_s_ > kTells_s) {
      told_s_ = now;
      tell(request_.style.faint(counts_text(state_, coverage_)));
    }
  }
}

Outcome Hunting::run() {
  tell(fmt::format("hunt  torch {}, {}, seed {}\n", state_.of.torch,
                   state_.of.deepspeed.empty() ? "no DeepSpeed" : "DeepSpeed " + state_.of.deepspeed, request_.seed));
  trials_.warm_up();
  began_ = std::chrono::steady_clock::now();
  if (!request_.one.empty()) return one_case();
  if (state_.number > 0)
    tell(request_.style.faint(
        fmt::format("  goes on   after {} cases and {} findings\n", state_.number, state_.found.size())));
  go();
  return outcome();
}

}  // namespace

Outcome hunt(const HuntRequest& request, const Print& print) { return Hunting(request, print).run(); }

}  // namespace seeksim::harness::torch
