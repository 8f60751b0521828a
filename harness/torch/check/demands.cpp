// What has to hold of a run with a switch turned.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "harness/input/problem.h"
#include "harness/torch/check/check.h"
#include "harness/torch/check/folder_of_runs.h"
#include "harness/torch/check/gradient_scale.h"
#include "harness/torch/habits.h"
#include "harness/torch/judges.h"

namespace seeksim::harness::torch {
namespace {

using State = CheckLine::State;

// Mean losses that far apart are of other samples, and not of other sums.
constexpr double kOtherSamples = 1e-4;

const CheckResult* find(const Judgement& judgement, const std::string& name) {
  for (const CheckResult& check : judgement.checks)
    if (check.name == name) return &check;
  return nullptr;
}
bool is_red(const Judgement& judgement, const std::string& name) {
  const CheckResult* check = find(judgement, name);
  return check != nullptr && !check->ok;
}

// A judge that holds of the script as it is, and does not with the switch turned.
std::string newly_red(const Judgement& plain, const Judgement& turned) {
  for (const CheckResult& check : turned.checks)
    if (!check.ok && !is_red(plain, check.name)) return fmt::format("{}: {}", check.name, check.detail);
  return "";
}

double farthest(const RunComparison& found) { return std::max(found.weight_distance, found.loss_distance); }

std::string distance_text(const RunComparison& found) {
  if (found.grade == Grade::bits)
    return fmt::format("the same bits: {} weights, {} losses", found.weights, found.losses);
  std::string text = fmt::format("{:.1e} away", farthest(found));
  if (found.of_allowed) text += fmt::format(", {:.2g} of what other sums and roundings allow", *found.of_allowed);
  return text;
}

std::string first_text(const RunComparison& found) {
  std::string text = distance_text(found);
  if (!found.first) return text;
  text += fmt::format("; first at step {}, rank {}: {}", found.first->step, found.first->rank, found.first->what);
  if (!found.first->values.empty()) text += fmt::format(" ({})", found.first->values);
  if (!found.first->origin_text.empty()) text += "; " + found.first->origin_text;
  return text;
}

// The mean over ranks of the first loss of each; NaN where a rank has none.
double first_loss(const TorchRun& run) {
  double sum = 0;
  for (const RankRun& rank : run.ranks) {
    if (!rank.record || rank.record->losses.empty()) return std::nan("");
    sum += value_of(rank.record->losses.front());
  }
  return sum / double(run.ranks.size());
}

// Why two worlds cannot be compared; empty: they can.
std::string other_samples(const TorchRun& plain, const TorchRun& turned) {
  if (plain.ranks.size() == turned.ranks.size()) return "";
  const std::size_t a = samples_together(plain), b = samples_together(turned);
  if (a != b)
    return fmt::format("{} ranks train on {} samples a batch, {} ranks on {}", plain.ranks.size(), a,
                       turned.ranks.size(), b);
  if (a != 0) return "";
  const double one = first_loss(plain), two = first_loss(turned);
  if (std::fabs(one - two) <= kOtherSamples * std::fabs(one)) return "";
  return fmt::format("no DataLoader, and {} ranks do not train on the samples of {}", turned.ranks.size(),
                     plain.ranks.size());
}

// The resumed run with its steps counted as in the run that was not interrupted.
std::vector<RankRun> shifted(const std::vector<RankRun>& ranks, std::int64_t by) {
  std::vector<RankRun> moved = ranks;
  for (RankRun& rank : moved) {
    if (!rank.record) continue;
    for (auto& one : rank.record->tensors) one.step += by;
    for (auto& one : rank.record->losses) one.step += by;
    for (auto& one : rank.record->calls) one.step += by;
    for (auto& one : rank.record->steps) one.step += by;
  }
  return moved;
}

// Where the ranks read each other's samples, each has the other's losses.
std::vector<RankRun> with_losses_reversed(const std::vector<RankRun>& ranks) {
  std::vector<RankRun> changed = ranks;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const RankRun& other = ranks[ranks.size() - 1 - i];
    if (changed[i].record && other.record) changed[i].record->losses = other.record->losses;
  }
  return changed;
}

// Whether ranks seed random numbers of their own: they were given other seeds.
bool seeds_differ(const TorchRun& run) {
  std::set<std::set<std::string>> of_ranks;
  for (const RankRun& rank : run.ranks) {
    if (!rank.record) continue;
    std::set<std::string> seeds;
    for (const pytorch::SightEntry& sight : rank.record->sights) {
      const std::string& name = rank.record->text(sight.name);
      if (sight.kind == pytorch::SightKind::uses && name.starts_with("seed ")) seeds.insert(name);
    }
    of_ranks.insert(std::move(seeds));
  }
  return of_ranks.size() > 1;
}

// Why the script, right as it is, trains otherwise with this turned; empty: there is no such reason.
std::string by_design(const Switch& turned, const TorchRun& plain, const TorchRun& run) {
  const auto uses = [](const TorchRun& of, std::string_view part) {
    return has_sight(of, pytorch::SightKind::uses, part);
  };
  const bool data_drawn = uses(plain, "drawing data") || uses(run, "drawing data");
  if (turned.name == "workers" && data_drawn) return "the data set draws random numbers, and a worker draws others";
  if (turned.name != "np" && turned.name != "ranks") return "";
  if (turned.name == "np" && uses(plain, "batch_norm"))
    return "batch normalisation sees a rank's own samples: other ranks, other means";
  const bool drawn = data_drawn || uses(plain, "drawing");
  if (turned.name == "np" && drawn) return "random numbers are drawn for a rank's samples: other ranks draw others";
  if (drawn && seeds_differ(plain))
    return "each rank draws random numbers from a seed of its own: other samples meet them";
  return "";
}

// No rank has what another one has, so that no judge of one run can see it: the record has to.
void hold_seen(const TorchRun& plain, const TorchRun& run, CheckLine& line) {
  line.found = compare_runs(plain.ranks, run.ranks, "the script", line.name);
  line.state = line.found->grade == Grade::bits ? State::red : State::good;
  line.text = "no weight is on two ranks; " + (line.state == State::red
                                                   ? "no recorded weight or loss changed"
                                                   : "against the script as it is: " + first_text(*line.found));
}

void hold_noticed(const Switch& turned, const Judgement& judgement, CheckLine& line) {
  if (is_red(judgement, "faults_fired")) {
    line.state = State::not_applicable;
    line.text = "no backward pass of step 1 comes to a module or to a sum";
    return;
  }
  const bool replicas = turned.demand == Demand::replicas_red;
  const std::vector<std::string> names =
      replicas ? std::vector<std::string>{"replicas_equal"} : std::vector<std::string>{"finite", "losses_finite"};
  for (const std::string& name : names) {
    const CheckResult* check = find(judgement, name);
    if (check == nullptr || (check->ok && check->detail.find("stayed finite") == std::string::npos)) continue;
    line.text = (check->ok ? "survived: " : "noticed by " + name + ": ") + check->detail;
    return;
  }
  line.state = State::red;
  line.text = replicas ? "no judge saw it: replicas_equal is not red" : "no judge saw it: finite is not red";
}

void hold_distance(const Switch& turned, const TorchRun& plain, const TorchRun& run, const Allowance* allowed,
                   CheckLine& line) {
  std::vector<RankRun> ranks = run.ranks;
  if (turned.demand == Demand::resumed) {
    const std::int64_t before = steps_of(plain) - steps_of(run);
    if (steps_of(run) == 0 || before <= 0) {
      line.state = State::not_applicable;
      line.text = fmt::format("it goes on for {} steps, and the whole run has {}: save in the middle of the run",
                              steps_of(run), steps_of(plain));
      return;
    }
    ranks = shifted(run.ranks, before);
  }
  if (turned.name == "ranks") ranks = with_losses_reversed(run.ranks);
  line.found = compare_runs(plain.ranks, ranks, "the script", line.name,
                            turned.demand == Demand::reassociated ? allowed : nullptr);
  const Grade grade = line.found->grade;
  bool good = false;
  switch (turned.demand) {
    case Demand::other_losses:
      good = line.found->losses_differ > 0;
      line.text = good ? "other losses" : "the same losses: what is random in the script does not follow its seed";
      break;
    case Demand::steady:
      good = grade <= Grade::rounding;
      break;
    case Demand::reassociated:
      good = grade == Grade::bits || (line.found->of_allowed && *line.found->of_allowed <= 1);
      break;
    default:
      good = grade == Grade::bits &&
             (turned.demand == Demand::resumed || line.found->only_in_a + line.found->only_in_b == 0);
      break;
  }
  const std::string scale = turned.name == "np" ? scale_text(plain, run) : "";
  good &= scale.empty();
  line.state = good ? State::good : State::red;
  if (!line.text.empty()) return;
  std::string reason = good ? "" : by_design(turned, plain, run);
  if (!good && reason.empty() && scale.empty() && turned.demand == Demand::reassociated && allowed == nullptr)
    reason = "nothing measures how far is allowed: no sums over ranks, and no weights of 32 bits to round otherwise";
  if (!reason.empty()) {
    line.state = State::not_applicable;
    line.text = distance_text(*line.found) + "; " + reason;
    return;
  }
  if (!scale.empty()) {
    line.text = scale + "; weights are " + distance_text(*line.found);
  } else if (!good && grade == Grade::bits) {
    line.text = fmt::format("{} values are in one run only", line.found->only_in_a + line.found->only_in_b);
  } else {
    line.text = good ? distance_text(*line.found) : first_text(*line.found);
  }
}

}  // namespace

CheckLine judged(const Switch& turned, const TorchRun& plain, const TorchRun& run, const Allowance* allowed) {
  CheckLine line;
  line.name = turned.name;
  line.demand = name(turned.demand);
  const Judgement of_run = judge(run), of_plain = judge(plain);
  if (turned.by_ranks && !has_sight(run, pytorch::SightKind::turned, turned.name)) {
    line.state = State::not_applicable;
    line.text = "the script leaves nothing to turn";
  } else if (turned.demand == Demand::replicas_red && find(of_plain, "replicas_equal") == nullptr) {
    hold_seen(plain, run, line);
  } else if (turned.demand == Demand::replicas_red || turned.demand == Demand::finite_red) {
    hold_noticed(turned, of_run, line);
  } else if (is_red(of_run, "faults_fired")) {
    line.state = State::not_applicable;
    line.text = "the script has no collective";
  } else if (const std::string samples = other_samples(plain, run); !samples.empty()) {
    line.state = State::not_applicable;
    line.text = samples;
  } else if (const std::string red = newly_red(of_plain, of_run); !red.empty()) {
    // A script may be for some numbers of ranks only, and let the others stand by.
    line.state = turned.name == "np" && is_red(of_run, "recorded") ? State::not_applicable : State::red;
    line.text = red;
  } else {
    hold_distance(turned, plain, run, allowed, line);
  }
  return line;
}

}  // namespace seeksim::harness::torch
