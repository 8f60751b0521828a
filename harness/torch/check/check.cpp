#include "harness/torch/check/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "harness/input/files.h"
#include "harness/input/json_text.h"
#include "harness/input/problem.h"
#include "harness/torch/check/command_words.h"
#include "harness/torch/check/kept_folder.h"
#include "harness/torch/check/warm.h"
#include "harness/torch/habits.h"
#include "harness/torch/job.h"
#include "harness/torch/judges.h"
#include "harness/torch/scenario.h"

namespace seeksim::harness::torch {
namespace {

namespace fs = std::filesystem;
using State = CheckLine::State;

constexpr double kRun_s = 1800;    // of one run
constexpr double kTimeout_s = 30;  // how long a rank waits for another: a rank that left does not come back

class Checking {
 public:
  Checking(const CheckRequest& request, const Print& print);
  Checking(const Checking&) = delete;
  Checking& operator=(const Checking&) = delete;
  Outcome run();

 private:
  TorchRun run_variant(const std::string& name, Variant variant);
  Variant plain() const;
  bool judge_plain();
  void measure();
  CheckLine turn(const Switch& one);
  CheckLine try_switch(const Switch& one);
  std::string does_not_apply(const Switch& one) const;
  bool wanted(const Switch& one) const;
  void tell(CheckLine line);
  void go_through();
  Outcome outcome();

  const CheckRequest& request_;
  const Print& print_;
  TorchScenario scenario_;
  Start start_;
  std::optional<KeptFolder> folder_;  // once all that was asked for makes sense
  bool red_ = false;
  bool stopped_ = false;
  std::string ended_early_;  // why not every switch was turned
  std::optional<WarmStart> warm_;
  TorchRun plain_;
  std::optional<TorchRun> order_;    // with another order of sums
  std::optional<TorchRun> rounded_;  // with weights that move by a unit in their last place
  std::optional<Allowance> allowance_;
  std::vector<CheckLine> lines_;
};

Checking::Checking(const CheckRequest& request, const Print& print) : request_(request), print_(print) {
  refuse_command(request.command, "check");
  if (!is_script(request.command.front()))
    throw BadInput(request.command.front(), "seeksim torch check starts a script (.py) itself, and no launcher",
                   "Put the script behind --, and the number of ranks in --np.");
  const std::vector<std::string> names = switch_names();
  for (const std::string& only : request.only) {
    if (std::find(names.begin(), names.end(), only) == names.end())
      throw BadInput("--only " + only, "there is no such switch", did_you_mean(only, names));
  }
  scenario_ = load_torch_scenario("", {}, request.np);
  scenario_.name = fs::path(request.command.front()).stem().string();
  scenario_.torch.timeout_s = kTimeout_s;
  start_.python = find_python(request.python);
  start_.built = build_backend(start_.python);
  start_.wall_limit_s = kRun_s;
  start_.quiet = true;
  folder_.emplace(request.out, "check");
}

Variant Checking::plain() const {
  Variant variant;
  variant.scenario = scenario_;
  return variant;
}

TorchRun Checking::run_variant(const std::string& name, Variant variant) {
  const std::string folder = folder_->path() + '/' + name;
  fs::remove_all(folder);
  make_folder(folder, "--out");
  make_folder(folder + "/checkpoint", "--out");
  std::vector<std::string> command = request_.command;
  for (std::string& word : command) word = with_folder(word, folder + "/checkpoint");
  command.insert(command.end(), variant.arguments.begin(), variant.arguments.end());
  Start start = start_;
  start.turns = variant.turns;
  if (!variant.cold && warm_) start.ranks_with = warm_->ranks_with();
  TorchRun run = run_in(folder, variant.scenario, command, start);
  if (run.job.stopped == Stopped::interrupted) throw AskedToStop();  // of that run nothing is known
  return run;
}

// The script as it is: a line a judge. False: it does not get to its end, so that there is nothing to compare.
bool Checking::judge_plain() {
  Variant variant = plain();
  variant.turns = {"watch"};
  plain_ = run_variant("plain", variant);
  bool whole = true;
  for (const CheckResult& check : judge(plain_).checks) {
    CheckLine line;
    line.name = check.name;
    line.state = check.ok ? State::good : State::red;
    line.text = check.detail;
    for (const char* end : {"recorded", "collectives_match", "no_hang", "finished"})
      whole &= check.ok || check.name != end;
    tell(std::move(line));
  }
  return whole;
}

// What other orders of sums and other roundings move, for the switches that may move no more than that. A script that
// sums nothing over ranks has the second only.
void Checking::measure() {
  Variant two = plain(), three = plain(), rounded = plain();
  two.scenario.torch.sums = pytorch::SumOrder::two_parts;
  three.scenario.torch.sums = pytorch::SumOrder::three_parts;
  rounded.turns = {"rounding"};
  Allowance allowed;
  const auto measured = [&](const std::string& name, Variant variant) {
    TorchRun run = run_variant(name, std::move(variant));
    const RunComparison found = compare_runs(plain_.ranks, run.ranks, "plain", name);
    if (found.only_in_a + found.only_in_b == 0) allowed.add(found.distances);
    return run;
  };
  order_ = measured("sums", std::move(two));
  measured("sums-three_parts", std::move(three));
  rounded_ = measured("rounding", std::move(rounded));
  const bool moved = has_sight(*rounded_, pytorch::SightKind::turned, "rounding") || !allowed.measured.empty();
  allowed.spread();
  if (moved) allowance_ = std::move(allowed);
}

std::string Checking::does_not_apply(const Switch& one) const {
  if (one.name == "resume" && request_.resume.empty())
    return "say how the script goes on: --resume 'ARGS with {dir}'; where the same command does, seeksim torch "
           "recovers";
  if (one.name == "static_graph" && has_sight(plain_, pytorch::SightKind::uses, "no_sync"))
    return "torch's static_graph does not go with no_sync(), which the script uses";
  if (!one.uses.empty() && !has_sight(plain_, pytorch::SightKind::uses, one.uses)) return std::string(one.lacks);
  return "";
}

// Whether a rank's backward passes sum floating-point numbers over ranks.
static bool sums_in_backward(const TorchRun& run) {
  const auto sums = [](const pytorch::CallEntry& call) {
    return call.phase == pytorch::StepPhase::backward && call.reduce != pytorch::ReduceName::none &&
           call.dtype > pytorch::DType::none && call.dtype <= pytorch::DType::fp8_e5m2;
  };
  return std::any_of(run.ranks.begin(), run.ranks.end(), [&](const RankRun& rank) {
    return rank.record && std::any_of(rank.record->calls.begin(), rank.record->calls.end(), sums);
  });
}

CheckLine Checking::try_switch(const Switch& one) {
  Variant variant = plain();
  one.turn(variant, one.name);
  // A script that sums by hand, or not at all, has none inside its backward pass: there the gradient itself is struck.
  if (one.demand == Demand::finite_red && !sums_in_backward(plain_))
    variant.scenario.faults.front().site = faults::Site::activation_gradient;
  if (one.demand == Demand::resumed) {
    for (const std::string& word : words_of(request_.resume))
      variant.arguments.push_back(with_folder(word, folder_->path() + "/plain/checkpoint"));
  }
  if ((one.demand == Demand::reassociated || one.demand == Demand::steady) && !rounded_) measure();
  if (one.demand == Demand::steady) return judged(one, plain_, one.by_ranks ? *rounded_ : *order_, nullptr);
  const TorchRun run = run_variant(std::string(one.name), std::move(variant));
  return judged(one, plain_, run, allowance_ ? &*allowance_ : nullptr);
}

CheckLine Checking::turn(const Switch& one) {
  CheckLine line;
  line.name = one.name;
  line.demand = name(one.demand);
  line.text = does_not_apply(one);
  line.state = State::not_applicable;
  if (!line.text.empty()) return line;
  try {
    line = try_switch(one);
  } catch (const BadInput& wrong) {
    line.text = wrong.problems().empty() ? wrong.what() : wrong.problems().front().what;
    // A script may be for some numbers of ranks only.
    line.state = one.name == "np" ? State::not_applicable : State::red;
  }
  return line;
}

bool Checking::wanted(const Switch& one) const {
  return request_.only.empty() ||
         std::find(request_.only.begin(), request_.only.end(), one.name) != request_.only.end();
}

void Checking::tell(CheckLine line) {
  red_ |= line.state == State::red;
  if (red_) folder_->keep();
  if (!request_.quiet) print_(line_text(line, request_.style));
  lines_.push_back(std::move(line));
}

Outcome Checking::outcome() {
  Outcome outcome;
  outcome.name = scenario_.name;
  outcome.status = stopped_ ? ExitStatus::no_progress : red_ ? ExitStatus::check_failed : ExitStatus::as_expected;
  outcome.report = check_json(request_, scenario_.torch.ranks, start_.built.torch, lines_);
  std::string sentence = check_sentence(lines_);
  if (!ended_early_.empty()) sentence += "; " + ended_early_;
  outcome.report["exit_code"] = int(outcome.status);
  outcome.report["sentence"] = sentence;
  if (!request_.quiet) {
    print_(last_line(outcome.status, scenario_.name, sentence, request_.style));
    if (folder_->temporary() && red_) print_(fmt::format("  folder    {}\n", folder_->path()));
  }
  write_file(folder_->path() + "/check.json", dump(outcome.report));
  return outcome;
}

Outcome Checking::run() {
  warm_.emplace(start_);
  if (!request_.quiet)
    print_(fmt::format("{}  torch {}, {} ranks{}\n", scenario_.name, start_.built.torch, scenario_.torch.ranks,
                       warm_->why().empty() ? "" : "; each run imports torch: " + warm_->why()));
  try {
    go_through();
  } catch (const AskedToStop& stop) {
    stopped_ = true;
    ended_early_ = stop.what();
  }
  return outcome();
}

void Checking::go_through() {
  if (!judge_plain()) {
    ended_early_ = "no switch was turned, for the script does not get to its end";
    return;
  }
  for (const Switch& one : switches())
    if (wanted(one)) tell(turn(one));
}

}  // namespace

Outcome run_check(const CheckRequest& request, const Print& print) { return Checking(request, print).run(); }

}  // namespace seeksim::harness::torch
