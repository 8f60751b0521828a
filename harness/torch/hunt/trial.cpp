#include "harness/torch/hunt/trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "harness/input/files.h"
#include "harness/input/problem.h"
#include "harness/torch/check/folder_of_runs.h"
#include "harness/torch/judges.h"
#include "harness/torch/program/script.h"
#include "runtime/seams/enum_names.h"

namespace seeksim::harness::torch {
namespace {

namespace fs = std::filesystem;

constexpr double kTimeout_s = 20;            // how long a rank waits for another
constexpr double kRun_s = 300;               // of one run
constexpr double kHalfUnit = 0x1p-9;         // half a unit in the last place of bf16
constexpr double kHalfUnitOfLoss = 0x1p-24;  // of fp32
constexpr double kShrinks = 0x1p-20;         // rounding, from fp32 to float64: 2^-29, and luck
constexpr double kInFloat64 = 0x1p-33;       // and no farther: DeepSpeed keeps fp32 in places, and goes other ways
constexpr std::size_t kKnown = 6;            // trainings by hand that are kept

constexpr runtime::EnumNames<TrialEnd> kEnds({{TrialEnd::same, "same"},
                                              {TrialEnd::near, "near"},
                                              {TrialEnd::refused, "refused"},
                                              {TrialEnd::red, "red"},
                                              {TrialEnd::stopped, "stopped"}});

// "RuntimeError: ..." of "rank 1 ended with status 1 before the first step: [rank1]: RuntimeError: ...".
std::string own_words(const std::string& text) {
  const std::size_t rank = text.rfind("]: ");
  if (rank != std::string::npos && text.rfind("[rank", rank) != std::string::npos) return text.substr(rank + 3);
  const std::size_t colon = text.find(": ");
  return colon == std::string::npos ? text : text.substr(colon + 2);
}

// "weight head.weight" of "weight head.weight [11,8] (Linear)"; of a difference in a collective, its operation too.
std::string place_of(const FirstDifference& first) {
  std::string text = first.what.substr(0, first.what.find(" ["));
  const std::size_t to = first.origin_text.find(first.origin == Origin::in_collective ? " from " : " to ");
  if (first.origin == Origin::before_collective || first.origin == Origin::in_collective) {
    const std::size_t begin = first.origin_text.find(' ', to + 1) + 1;
    text += ", " + first.origin_text.substr(begin, first.origin_text.find(' ', begin) - begin);
  }
  return fmt::format("{}, {}", text, name(first.origin));
}

TrialVerdict red(std::string check, std::string text, std::string where) {
  TrialVerdict verdict;
  verdict.check = std::move(check);
  verdict.text = std::move(text);
  verdict.where = std::move(where);
  return verdict;
}

bool killed(const TorchRun& run) {
  return std::any_of(run.job.processes.begin(), run.job.processes.end(),
                     [](const ProcessRun& one) { return !one.ended_by_us && one.ending.signal != 0; });
}

// The training by hand against the run in a wrapper.
RunComparison compared(const Case& drawn, const TorchRun& plain, const TorchRun& run, const Allowance* allowed) {
  RunComparison found = compare_runs(plain.ranks, run.ranks, "plain", drawn.at("wrapper"), allowed);
  leave_out_what_other_ranks_have(drawn, found);
  return found;
}

}  // namespace

std::string_view name(TrialEnd end) { return kEnds.of(end); }

void leave_out_what_other_ranks_have(const Case& drawn, RunComparison& found) {
  if (is_moe(drawn)) {
    for (const auto& [name, count] : found.names_only_in_a)
      if (name.find(".elsewhere") != std::string::npos) found.only_in_a -= count;
  }
  if (is_pipe(drawn) || is_stages(drawn)) {
    found.only_in_a = found.on_no_rank_of_b;
    found.only_in_b = 0;
  }
}

std::optional<TrialVerdict> verdict_of_run(const TorchRun& plain, const TorchRun& run) {
  TrialVerdict verdict;
  if (run.job.stopped == Stopped::interrupted) {
    verdict.end = TrialEnd::stopped;
    return verdict;
  }
  const Judgement of_run = judge(run), of_plain = judge(plain);
  const auto is_red = [](const Judgement& of, const std::string& name) {
    return std::any_of(of.checks.begin(), of.checks.end(),
                       [&](const CheckResult& check) { return check.name == name && !check.ok; });
  };
  const bool waits = is_red(of_run, "no_hang") || is_red(of_run, "collectives_match");
  if (!ended_well(run) && !waits && !killed(run)) {
    verdict.end = TrialEnd::refused;
    verdict.text = own_words(failure(run));
    return verdict;
  }
  for (const CheckResult& check : of_run.checks) {
    if (!check.ok && !is_red(of_plain, check.name)) return red(check.name, check.detail, "");
  }
  return std::nullopt;
}

void judge_distance(TrialVerdict& verdict) {
  const RunComparison& found = *verdict.found;
  if (found.only_in_a + found.only_in_b > 0 || found.weights == 0) {
    verdict.check = "compare";
    verdict.text = fmt::format("{} values are in one run only, and {} weights in both",
                               found.only_in_a + found.only_in_b, found.weights);
    verdict.end = TrialEnd::red;
    return;
  }
  verdict.end = found.grade == Grade::bits              ? TrialEnd::same
                : found.grade <= verdict.expected.grade ? TrialEnd::near
                                                        : TrialEnd::red;
  if (verdict.end != TrialEnd::red) return;
  verdict.check = "compare";
  const FirstDifference& first = *found.first;
  verdict.text = fmt::format(
      "step {}, micro-batch {}, rank {}: {}; {} of {} weights differ, at most {:.2g} away{}; expected {}; {}",
      first.step, first.micro_batch, first.rank, first.what, found.weights_differ, found.weights, found.weight_distance,
      found.of_allowed ? fmt::format(", {:.2g} of what is allowed", *found.of_allowed) : "",
      torch::name(verdict.expected.grade), first.origin_text);
  verdict.where = place_of(first);
}

bool shrinks_as_rounding(const RunComparison& in_fp32, const RunComparison& in_float64) {
  if (in_float64.only_in_a + in_float64.only_in_b > in_fp32.only_in_a + in_fp32.only_in_b) return false;
  if (std::max(in_float64.weight_distance, in_float64.loss_distance) > kInFloat64) return false;
  return in_float64.weight_distance <= in_fp32.weight_distance * kShrinks &&
         in_float64.loss_distance <= std::max(in_fp32.loss_distance, in_fp32.weight_distance) * kShrinks;
}

Trials::Trials(const std::string& python, std::vector<std::string> imports) : imports_(std::move(imports)) {
  start_.python = find_python(python);
  start_.built = build_backend(start_.python);
  start_.wall_limit_s = kRun_s;
  start_.quiet = true;
  start_.ends_at_once = true;
}

void Trials::warm_up() {
  warm_.emplace(start_, imports_);
  if (!warm_->why().empty())
    throw BadInput(start_.python, warm_->why(), "Can it import torch, and what --import names?");
  start_.ranks_with = warm_->ranks_with();
}

Trials::Ran Trials::start(const Case& drawn, const std::string& folder, const std::string& name, bool plain,
                          const Way& given) {
  Way way = given;
  way.whole = is_tensors(drawn);
  const std::string script = folder + "/case.py";
  write_file(script, script_of(drawn, "case.py", "Drawn by seeksim torch hunt."));
  std::error_code ignored;
  fs::remove_all(folder + "/case.saved", ignored);
  std::vector<std::string> command = {script};
  if (plain) command.emplace_back("--plain");
  if (moves(drawn)) {
    std::vector<std::string> first = command;
    first.emplace_back("--first");
    Ran ran = start_one(ranks_before(drawn), first, folder + '/' + name + "-first", way);
    if (!ran.run || !ended_well(*ran.run)) return ran;
  }
  return start_one(std::stoi(drawn.at("np")), command, folder + '/' + name, way);
}

Trials::Ran Trials::start_one(int ranks, const std::vector<std::string>& command, const std::string& out,
                              const Way& way) {
  TorchScenario scenario;
  scenario.torch.ranks = ranks;
  scenario.torch.timeout_s = kTimeout_s;
  scenario.torch.sums = way.sums;
  scenario.torch.record.whole = way.whole;
  std::error_code ignored;
  fs::remove_all(out, ignored);
  make_folder(out, "--out");
  Start with = start_;
  with.turns = way.turns;
  ++runs_;
  Ran ran;
  try {
    ran.run = run_in(out, scenario, command, with);
  } catch (const BadInput& bad) {
    ran.failed = bad.problems().empty() ? bad.what() : bad.problems().front().what;
  }
  return ran;
}

Trials::ByHand& Trials::by_hand(const Case& drawn, const std::string& folder) {
  const std::string key = plain_key(drawn);
  const auto found = std::find_if(known_.begin(), known_.end(), [&](const ByHand& one) { return one.key == key; });
  if (found != known_.end()) return *found;
  known_.push_front({key, start(drawn, folder, "plain", true, {}), std::nullopt, std::nullopt});
  if (known_.size() > kKnown) known_.pop_back();
  return known_.front();
}

// What other orders of sums and other roundings move in the training by hand.
const Allowance* Trials::allowance(const Case& drawn, const std::string& folder, ByHand& plain) {
  if (plain.reassociated) return &*plain.reassociated;
  Allowance allowed;
  const auto measure = [&](const char* name, const Way& way) {
    const Ran other = start(drawn, folder, name, true, way);
    if (!other.run || !ended_well(*other.run)) return;
    const RunComparison found = compare_runs(plain.ran.run->ranks, other.run->ranks, "plain", name);
    if (found.only_in_a + found.only_in_b == 0) allowed.add(found.distances);
  };
  measure("plain-two_parts", {.sums = pytorch::SumOrder::two_parts, .turns = {}});
  measure("plain-three_parts", {.sums = pytorch::SumOrder::three_parts, .turns = {}});
  measure("plain-rounding", {.turns = {"rounding"}});
  allowed.spread();
  // Experts multiply the tokens of several ranks at once: the first loss already may be rounded otherwise.
  if (is_moe(drawn)) allowed.least_of_losses = std::max(allowed.least_of_losses, kHalfUnitOfLoss);
  // DeepSpeed's kernel rounds each update in its own way. It keeps fp32, so that float64 does not show that.
  if (drawn.at("optimizer") == "cpu_adam") allowed.least *= 2;
  return &plain.reassociated.emplace(std::move(allowed));
}

// What rounding to bf16 moves: how far the training by hand is from the same one in fp32.
const Allowance* Trials::rounding(const Case& drawn, const std::string& folder, ByHand& plain) {
  if (plain.rounding) return &*plain.rounding;
  Case exact = drawn;
  exact["precision"] = "fp32";
  const Ran other = start(exact, folder, "plain-fp32", true, {});
  if (!other.run || !ended_well(*other.run)) return nullptr;
  Allowance allowed;
  allowed.least = allowed.least_of_losses = kHalfUnit;
  allowed.add(compare_runs(plain.ran.run->ranks, other.run->ranks, "plain", "plain-fp32").distances);
  allowed.spread();
  return &plain.rounding.emplace(std::move(allowed));
}

void Trials::hold(const Case& drawn, const std::string& folder, ByHand& plain, const TorchRun& run,
                  TrialVerdict& verdict) {
  const auto compare = [&](const Allowance* allowed) { return compared(drawn, *plain.ran.run, run, allowed); };
  verdict.found = compare(nullptr);
  const Grade wanted = verdict.expected.grade;
  if (verdict.found->grade == Grade::bits) return judge_distance(verdict);
  const Allowance* const allowed = wanted == Grade::bits       ? nullptr
                                   : wanted == Grade::rounding ? rounding(drawn, folder, plain)
                                                               : allowance(drawn, folder, plain);
  if (allowed != nullptr) verdict.found = compare(allowed);
  if (allowed != nullptr && wanted == Grade::rounding)
    verdict.found->grade = *verdict.found->of_allowed <= 1 ? Grade::rounding : Grade::different;
  judge_distance(verdict);
  // A bound that was measured by a few orders may be passed by chance, and not each order of sums has its rule.
  if (verdict.end == TrialEnd::red && verdict.found->first && drawn.at("precision") == "fp32")
    look_in_float64(drawn, folder, verdict);
}

void Trials::look_in_float64(const Case& drawn, const std::string& folder, TrialVerdict& verdict) {
  const Way wide = {.turns = {"float64"}};
  const Ran plain = start(drawn, folder, "plain-float64", true, wide);
  const Ran other = start(drawn, folder, drawn.at("wrapper") + "-float64", false, wide);
  if (!plain.run || !other.run) return;
  if (plain.run->job.stopped == Stopped::interrupted || other.run->job.stopped == Stopped::interrupted) {
    verdict.end = TrialEnd::stopped;
    return;
  }
  if (!ended_well(*plain.run) || !ended_well(*other.run)) return;
  const RunComparison found = compared(drawn, *plain.run, *other.run, nullptr);
  if (!shrinks_as_rounding(*verdict.found, found)) return;
  verdict.end = TrialEnd::near;
  verdict.text = fmt::format("in float64 at most {:.2g} away, so that it is rounding", found.weight_distance);
}

TrialVerdict Trials::run(const Case& drawn, const std::string& folder) {
  ByHand& plain = by_hand(drawn, folder);
  const bool whole = plain.ran.run && ended_well(*plain.ran.run);
  TrialVerdict verdict;
  if (plain.ran.run && plain.ran.run->job.stopped == Stopped::interrupted) {
    verdict.end = TrialEnd::stopped;
    return verdict;
  }
  if (!whole) return red("by_hand", plain.ran.run ? failure(*plain.ran.run) : plain.ran.failed, "");
  const Ran other = start(drawn, folder, drawn.at("wrapper"), false, {});
  if (!other.run) {
    verdict.end = TrialEnd::refused;
    verdict.text = own_words(other.failed);
  } else if (std::optional<TrialVerdict> known = verdict_of_run(*plain.ran.run, *other.run)) {
    verdict = std::move(*known);
  } else {
    verdict.expected = expected_of(drawn);
    try {
      hold(drawn, folder, plain, *other.run, verdict);
    } catch (const BadInput& bad) {
      verdict = red("recorded", bad.problems().empty() ? bad.what() : bad.problems().front().what, "");
    }
  }
  verdict.expected = expected_of(drawn);
  return verdict;
}

}  // namespace seeksim::harness::torch
