#include "harness/torch/hunt/hunt.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <sstream>

#include <nlohmann/json.hpp>

#include "harness/input/files.h"
#include "harness/input/json_text.h"
#include "harness/input/problem.h"
#include "harness/search/exploration.h"
#include "harness/torch/check/check.h"
#include "harness/torch/check/kept_folder.h"
#include "harness/torch/hunt/known.h"
#include "harness/torch/hunt/shrink.h"
#include "harness/torch/program/script.h"

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

// What trains on top of torch.
const std::vector<std::string> kFrameworks = {"deepspeed", "accelerate", "lightning", "transformers"};

// Which of them this Python has, with their versions.
Versions versions_in(const std::string& python) {
  constexpr const char* kAsk =
      "import importlib.metadata as m, sys\n"
      "for name in sys.argv[1:]:\n"
      "    try: print(name, m.version(name))\n"
      "    except m.PackageNotFoundError: pass\n";
  std::vector<std::string> command = {python, "-c", kAsk};
  command.insert(command.end(), kFrameworks.begin(), kFrameworks.end());
  Versions versions;
  std::istringstream lines(capture(command, {}, kLook_s).out);
  for (std::string name, version; lines >> name >> version;) versions[name] = version;
  return versions;
}

// What is not there is not drawn.
std::vector<std::string> with_what_is_there(std::vector<std::string> only, const Versions& versions) {
  const auto says = [&](const std::string& feature) {
    return std::any_of(only.begin(), only.end(), [&](const auto& one) { return one.starts_with(feature + '='); });
  };
  std::string loops = "loop=own";
  if (versions.contains("accelerate")) loops += ",accelerate";
  if (versions.contains("lightning")) loops += ",fabric,lightning";
  if (versions.contains("accelerate") && versions.contains("transformers")) loops += ",trainer";
  const bool all = versions.size() == kFrameworks.size();
  if (!all && !says("loop")) only.push_back(loops);
  if (!versions.contains("deepspeed") && !says("wrapper")) only.emplace_back("wrapper=ddp,fsdp1,fsdp2,hsdp");
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
  bool told_before(const Case& drawn);
  bool found_before(const Case& drawn, const TrialVerdict& verdict);
  bool take_red(const Case& drawn, const TrialVerdict& verdict);
  bool take_finding(const Case& drawn, const TrialVerdict& verdict);
  void keep(HuntFinding& found);
  TrialVerdict tried(const Case& drawn);
  bool over() const;
  void save();
  void tell(const std::string& text) const;
  Outcome outcome();

  const HuntRequest& request_;
  const Print& print_;
  double budget_s_;
  Versions versions_;
  Trials trials_;
  HuntState state_;
  Coverage coverage_;
  std::vector<KnownFinding> known_;
  std::optional<KeptFolder> folder_;  // once all that was asked for makes sense
  std::optional<FolderLock> lock_;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  double earlier_s_ = 0, earlier_processor_s_ = 0, told_s_ = 0;
  int earlier_runs_ = 0, cases_ = 0;  // of this command
  bool interrupted_ = false;
};

// What is imported once for all runs.
std::vector<std::string> modules_of(const HuntRequest& request, const Versions& versions) {
  std::vector<std::string> modules = {"torch.distributed.fsdp", "torch.distributed.checkpoint.state_dict",
                                      "torch.distributed.tensor"};
  // DeepSpeed asks for a compiler while it starts, which imports these: five seconds of each run.
  if (versions.contains("deepspeed"))
    modules.insert(modules.end(), {"deepspeed", "torch._inductor.compile_fx", "torch._inductor.select_algorithm"});
  if (versions.contains("accelerate")) modules.emplace_back("accelerate");
  if (versions.contains("lightning")) modules.emplace_back("lightning.pytorch");
  if (versions.contains("transformers")) modules.emplace_back("transformers.trainer");
  modules.insert(modules.end(), request.imports.begin(), request.imports.end());
  return modules;
}

Hunting::Hunting(const HuntRequest& request, const Print& print)
    : request_(request),
      print_(print),
      budget_s_(budget_s(request.budget)),
      versions_(versions_in(find_python(request.python))),
      trials_(request.python, modules_of(request, versions_)),
      coverage_(with_what_is_there(request.only, versions_)) {
  state_.of = {trials_.torch(), versions_, request.seed, with_what_is_there(request.only, versions_), request.imports};
  if (!request.again) {
    known_ = known_findings();
    for (const Refusal& one : known_refusals()) coverage_.refuse(one.part);
  }
  for (const std::string& one : request.known) known_.push_back(known_by(one));
  folder_.emplace(request.out, "hunt");
  lock_.emplace(folder_->path(), "--out");
  const std::string file = folder_->path() + "/hunt.json";
  if (fs::exists(file)) load_state(file, state_, coverage_);
  earlier_s_ = state_.wall_s;
  earlier_processor_s_ = state_.processor_s;
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
  const Case part = needed(shrunk(drawn, kRefusalTries, still, took, true));
  if (interrupted_) return;
  state_.refusals.push_back({part, verdict.text, 1});
  coverage_.refuse(part);
  tell(request_.style.faint(fmt::format("  refused   {}: {}\n", case_text(normal(part)), verdict.text)));
}

// Whether a finding explains this case that somebody has told already; it is counted.
bool Hunting::told_before(const Case& drawn) {
  const auto red = [&](const Case& other) { return tried(other).end == TrialEnd::red; };
  for (const KnownFinding& one : known_) {
    if (!explains(one, drawn, red)) continue;
    if (!interrupted_) ++state_.known[one.name];
    return true;
  }
  return false;
}

// The same for the findings of this hunt.
bool Hunting::found_before(const Case& drawn, const TrialVerdict& verdict) {
  const auto red = [&](const Case& other) { return tried(other).end == TrialEnd::red; };
  for (HuntFinding& found : state_.found) {
    if (found.check != verdict.check || !explains(known_by(found.drawn), drawn, red)) continue;
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

// Makes it plain and tells it. True where what is left was told before this hunt.
bool Hunting::take_finding(const Case& drawn, const TrialVerdict& verdict) {
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
  if (interrupted_ || found_before(found.drawn, verdict)) return false;
  if (told_before(found.drawn)) return true;
  trials_.forget();
  TrialVerdict last = tried(found.drawn);
  if (interrupted_) return false;
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
    return false;
  }
  keep(found);
  Json record = last.found ? comparison_json(*last.found, last.expected.grade, "plain", found.drawn.at("wrapper"))
                           : Json::object();
  record["case"] = case_text(found.drawn);
  record["torch"] = state_.of.torch;
  record["frameworks"] = state_.of.frameworks;
  record["text"] = found.text;
  write_file(found.script.substr(0, found.script.size() - 3) + ".json", dump(record));
  tell(finding_text(found, request_.style));
  state_.found.push_back(std::move(found));
  return false;
}

// Whether it was told before this hunt.
bool Hunting::take_red(const Case& drawn, const TrialVerdict& verdict) {
  if (told_before(drawn)) return true;
  return !found_before(drawn, verdict) && take_finding(drawn, verdict);
}

void Hunting::take(const Case& drawn) {
  const TrialVerdict verdict = tried(drawn);
  if (interrupted_) return;
  std::string end(name(verdict.end));
  if (verdict.end == TrialEnd::refused) {
    learn_refusal(drawn, verdict);
  } else {
    coverage_.add(drawn);
    if (verdict.end == TrialEnd::near && !verdict.text.empty())
      tell(request_.style.faint(fmt::format("  rounding  {}: {}\n", case_text(drawn), verdict.text)));
    if (verdict.end == TrialEnd::red && take_red(drawn, verdict)) end = "known";
  }
  if (interrupted_) return;
  ++state_.ends[end];
  ++state_.number;
  ++cases_;
}

bool Hunting::over() const {
  return interrupted_ || seconds_since(began_) >= budget_s_ || (request_.cases > 0 && cases_ >= request_.cases) ||
         (request_.findings > 0 && int(state_.found.size()) >= request_.findings);
}

void Hunting::save() {
  state_.wall_s = earlier_s_ + seconds_since(began_);
  state_.processor_s = earlier_processor_s_ + processor_s() + trials_.processor_s();
  state_.runs = earlier_runs_ + trials_.runs();
  write_file(folder_->path() + "/hunt.json", dump(to_json(state_, coverage_)));
}

Outcome Hunting::outcome() {
  trials_.end();
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
  if (verdict.end != TrialEnd::red) return outcome;
  folder_->keep();
  for (const KnownFinding& one : known_) {
    if (!covers(one, drawn)) continue;
    outcome.report["known"] = one.name;
    tell(request_.style.faint(fmt::format("        It has what {} needs.\n", one.name)));
    break;
  }
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
  tell(head_text(state_.of));
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
