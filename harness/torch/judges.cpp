#include "harness/torch/judges.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "harness/input/problem.h"
#include "harness/oracles/arguments.h"
#include "harness/torch/blame.h"
#include "harness/torch/collectives.h"
#include "harness/torch/habits.h"
#include "harness/torch/values.h"
#include "runtime/seams/rank_names.h"

namespace seeksim::harness::torch {
namespace {

std::string ended_text(const ProcessRun& process, const TorchRun& run) {
  const std::string where = host_name(run, process.host);
  std::string text = fmt::format("{}{} ended {} after {:.1f} s",
                                 process.rank < 0 ? "the launcher" : fmt::format("rank {}", process.rank),
                                 where.empty() ? "" : " on " + where, how(process.ending), process.after_s);
  if (!process.last_words.empty()) text += ": " + process.last_words;
  return text;
}

std::int64_t steps_of(const TorchRun& run) {
  std::int64_t steps = 0;
  for (const RankRun& rank : run.ranks)
    if (rank.record) steps = std::max(steps, std::int64_t(rank.record->steps.size()));
  return steps;
}

Finding finished(const TorchRun& run, const std::string&) {
  const ProcessRun* first = nullptr;  // the one that failed before the others
  for (const ProcessRun& process : run.job.processes) {
    if (process.ending.good() || process.ended_by_us) continue;
    if (first == nullptr || process.after_s < first->after_s) first = &process;
  }
  if (first != nullptr) {
    const std::optional<Culprits> culprits = culprits_of(run);
    return bad(ended_text(*first, run) + (culprits ? "; " + sentence(*culprits, run) : ""));
  }
  if (run.job.stopped != Stopped::no) return bad(run.job.why);
  return good(
      fmt::format("{} step{}; every process ended with status 0", steps_of(run), steps_of(run) == 1 ? "" : "s"));
}

std::ptrdiff_t hosts_seen(const TorchRun& run) {
  return std::count_if(run.hosts.begin(), run.hosts.end(), [](const HostRun& host) { return host.problem.empty(); });
}

// A run that recorded nothing proves nothing.
Finding recorded(const TorchRun& run, const std::string&) {
  std::size_t entries = 0;
  for (std::size_t host = 0; host < run.hosts.size(); ++host) {
    if (run.hosts[host].problem.empty()) continue;
    const auto seen =
        std::count_if(run.ranks.begin(), run.ranks.end(), [](const RankRun& r) { return r.record.has_value(); });
    return bad(fmt::format("{} of {} ranks on {} of {} hosts were seen; {}: {}", seen, run.ranks.size(),
                           hosts_seen(run), run.hosts.size(), host_name(run, int(host)), run.hosts[host].problem));
  }
  for (const RankRun& rank : run.ranks) {
    if (!rank.problem.empty()) return bad(rank.problem);
    if (!rank.refused.empty()) return bad(fmt::format("rank {}: {}", rank.rank, rank.refused));
    if (!rank.record) return blind(fmt::format("rank {} left no record: did it import torch?", rank.rank));
    if (rank.record->now.left_out > 0)
      return bad(fmt::format("rank {}: {} entries no longer fitted; raise torch.record.max_mib", rank.rank,
                             rank.record->now.left_out));
    const std::size_t own = rank.record->calls.size() + rank.record->steps.size() + rank.record->losses.size();
    if (own == 0) return blind(fmt::format("rank {} recorded no collective, no step and no loss", rank.rank));
    entries += rank.record->order.size();
  }
  const std::string hosts = run.hosts.empty() ? "" : fmt::format(" on {} hosts", run.hosts.size());
  return good(fmt::format("{} entries of {} ranks{}", entries, run.ranks.size(), hosts));
}

Finding no_hang(const TorchRun& run, const std::string&) {
  const std::optional<Culprits> culprits = culprits_of(run);
  if (culprits && is_hang(culprits->blame)) return bad(sentence(*culprits, run));
  if (run.job.stopped == Stopped::no_progress || run.job.stopped == Stopped::out_of_time) {
    std::string text = run.job.why;
    for (const RankRun& rank : run.ranks) {
      if (const std::string frame = own_frame(rank.stack); !frame.empty())
        text += fmt::format("; rank {} stands at {}", rank.rank, frame);
    }
    return bad(text);
  }
  return good("no rank waited for another in vain");
}

// What a rule names and no rank has a weight of; empty: nothing to say.
std::string unknown_name(const TorchRun& run, const faults::Rule& rule) {
  if (rule.when.tensor.empty() || rule.site == faults::Site::optimizer_state) return "";
  const bool of_module = rule.site == faults::Site::activation || rule.site == faults::Site::activation_gradient ||
                         rule.kind == faults::FaultKind::oom;
  std::set<std::string> names;
  for (const RankRun& rank : run.ranks) {
    if (!rank.record) continue;
    for (const pytorch::TensorEntry& tensor : rank.record->tensors) {
      const std::string& name = rank.record->text(tensor.name);
      names.insert(of_module ? name.substr(0, name.rfind('.')) : name);
    }
  }
  const std::string& given = rule.when.tensor;
  if (names.empty() || names.contains(given)) return "";
  std::string near = closest(given, {names.begin(), names.end()});
  if (of_module && names.contains(given.substr(0, given.rfind('.')))) near = given.substr(0, given.rfind('.'));
  const auto inside = names.lower_bound(given + '.');
  if (!of_module && inside != names.end() && inside->starts_with(given + '.')) near = *inside;
  return fmt::format("; no rank has a {} {}{}", of_module ? "module with weights that is called" : "parameter",
                     in_quotes(given), near.empty() ? "" : fmt::format(". Did you mean {}?", in_quotes(near)));
}

// Where a rule names a step that its ranks never came to; empty: they came to it.
std::string unknown_step(const TorchRun& run, const faults::Rule& rule) {
  if (!rule.when.step) return "";
  std::int64_t made = 0;
  for (const RankRun& rank : run.ranks) {
    if (!rank.record || rank.record->steps.empty() || rule.when.rank.value_or(rank.rank) != rank.rank) continue;
    made = std::max(made, rank.record->steps.back().step + 1);
  }
  if (*rule.when.step < made) return "";
  const std::string who = rule.when.rank ? fmt::format("rank {}", *rule.when.rank) : "the run";
  return fmt::format("; {} ended before step {}: it made {} step{}, counted from 0", who, *rule.when.step, made,
                     made == 1 ? "" : "s");
}

Finding faults_fired(const TorchRun& run, const std::string&) {
  std::vector<std::uint64_t> fired(run.scenario.faults.size());
  for (const RankRun& rank : run.ranks) {
    if (!rank.record) continue;
    for (const pytorch::FaultEntry& fault : rank.record->faults) {
      if (fault.rule >= 0 && std::size_t(fault.rule) < fired.size()) ++fired[std::size_t(fault.rule)];
    }
  }
  std::uint64_t all = 0;
  for (std::size_t i = 0; i < fired.size(); ++i) {
    all += fired[i];
    if (fired[i] == 0)
      return bad(fmt::format("faults.{} never fired: {}{}{}", i, faults::text(run.scenario.faults[i]),
                             unknown_step(run, run.scenario.faults[i]), unknown_name(run, run.scenario.faults[i])));
  }
  if (fired.empty()) return blind("there are no faults");
  return good(fmt::format("fired {} time{}", all, all == 1 ? "" : "s"));
}

Finding culprit(const TorchRun& run, const std::string& argument) {
  const std::optional<Culprits> culprits = culprits_of(run);
  if (!culprits) return bad("nobody was blamed for a collective");
  std::vector<int> wanted;
  for (const std::string& one : split(argument)) wanted.push_back(std::stoi(one));
  std::sort(wanted.begin(), wanted.end());
  const std::string text = sentence(*culprits, run);
  return wanted == culprits->ranks ? good(text) : bad(text);
}

template <Finding (*judge)(const TorchRun&)>
Finding plainly(const TorchRun& run, const std::string&) {
  return judge(run);
}

CheckResult result_of(const CheckSpec& check, const Finding& finding) {
  return {check.text(), finding.ok, finding.detail, finding.looked};
}

// Whether an unasked judge has something to look at. That a hung or divided job did not finish is no second finding.
bool applies(const Judge& judge, const TorchRun& run, const std::vector<CheckResult>& so_far) {
  const std::string name = judge.name;
  const auto red = [&](const char* other) {
    return std::any_of(so_far.begin(), so_far.end(),
                       [&](const CheckResult& check) { return check.name == other && !check.ok; });
  };
  if (name == "finished") return !red("no_hang") && !red("collectives_match");
  if (name == "faults_fired") return !run.scenario.faults.empty();
  if (name == "recorded" || name == "no_hang") return true;
  return judge.judge(run, "").looked;
}

std::vector<CheckResult> all_checks(const TorchRun& run) {
  std::vector<CheckResult> results;
  for (const Judge& judge : judges()) {
    if (judge.unasked && applies(judge, run, results))
      results.push_back(result_of({judge.name, ""}, judge.judge(run, "")));
  }
  for (const CheckSpec& check : run.scenario.checks) {
    const auto twice = [&](const CheckResult& one) { return one.name == check.text(); };
    if (std::any_of(results.begin(), results.end(), twice)) continue;
    for (const Judge& judge : judges())
      if (judge.name == check.name) results.push_back(result_of(check, judge.judge(run, check.argument)));
  }
  return results;
}

bool is_named(const CheckResult& check, const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return check.name == name || check.name.substr(0, check.name.find(':')) == name;
  });
}

void conclude(Judgement& j, ExitStatus status, std::string sentence) {
  j.status = status;
  j.verdict = name(status);
  j.sentence = std::move(sentence);
}

}  // namespace

const std::vector<Judge>& judges() {
  // no_hang and collectives_match before finished: they say why it did not.
  static const std::vector<Judge> all = {
      {"recorded", "", true, recorded, "every rank recorded something, and all of it fitted"},
      {"collectives_match", "", true, plainly<collectives_match>,
       "all members of a group meant the same collectives; names the odd one out, and where both sides stood"},
      {"no_hang", "", true, no_hang, "no rank waited for another in vain; names who did not come"},
      {"finished", "", true, finished, "every process ended with status 0"},
      {"replicas_equal", "", true, plainly<replicas_equal>,
       "the weights that forward passes used are the same bits on all ranks of a replica group, at every step"},
      {"losses_finite", "", true, plainly<losses_finite>, "every loss on which backward() was called is finite"},
      {"finite", "", true, plainly<finite>,
       "no value that is not finite came into weights or losses; names rank, step and place of the first one"},
      {"samples", "", true, plainly<samples>,
       "no sample comes twice in an epoch, and no two shuffled epochs have the same order; loaders that are trained "
       "on"},
      {"weights_move", "", true, plainly<weights_move>, "every weight that requires a gradient changed in three steps"},
      {"gradients_cleared", "", true, plainly<gradients_cleared>,
       "no step has the gradients of the one before in its own, loses those of its own micro-batches, or has none"},
      {"train_mode", "", true, plainly<train_mode>,
       "modules whose train() and eval() differ are in train() where they are trained, in eval() in validation"},
      {"clips_in_time", "", true, plainly<clips_in_time>, "gradients are clipped between backward() and step()"},
      {"losses_divided", "", true, plainly<losses_divided>,
       "micro-batches of a step do not add up mean losses undivided, and none of the epoch before is among them"},
      {"faults_fired", "", true, faults_fired, "every fault fired"},
      {"culprit", "RANKS", false, culprit, "exactly these ranks are to blame for the collective that failed first"},
      {"loss_falls", "", false, plainly<loss_falls>,
       "the mean loss of the last quarter of the steps is below that of the first"},
  };
  return all;
}

std::vector<std::string> judge_names() {
  std::vector<std::string> names;
  for (const Judge& judge : judges()) names.emplace_back(judge.name);
  return names;
}

CheckProblem problem_of(const CheckSpec& check, int ranks) {
  const auto found =
      std::find_if(judges().begin(), judges().end(), [&](const Judge& judge) { return check.name == judge.name; });
  if (found == judges().end())
    return {fmt::format("there is no check {}", in_quotes(check.name)), did_you_mean(check.name, judge_names())};
  const bool takes = found->argument[0] != 0;
  const std::string wrong = takes ? want_ranks(check.argument, ranks) : want_none(check.argument, ranks);
  if (!wrong.empty()) return {wrong, ""};
  if (takes && check.argument == "none") return {"give a rank", "For example culprit:1."};
  return {};
}

Judgement judge(const TorchRun& run) {
  Judgement j;
  j.checks = all_checks(run);
  if (run.job.stopped == Stopped::interrupted) {
    j.stopped = run.job.why;
    conclude(j, ExitStatus::no_progress, run.job.why);
    return j;
  }
  const std::vector<std::string> wanted =
      run.scenario.expect.what == Expect::What::check_fails ? run.scenario.expect.names() : std::vector<std::string>();
  std::vector<std::string> red, unexpected, holding;
  bool hangs = false;
  for (const CheckResult& check : j.checks) {
    if (check.ok) continue;
    red.push_back(check.name);
    hangs |= check.name == "no_hang";
    if (!is_named(check, wanted)) unexpected.push_back(check.name);
  }
  for (const std::string& name : wanted) {
    const auto it_failed = [&](const CheckResult& check) { return !check.ok && is_named(check, {name}); };
    if (std::none_of(j.checks.begin(), j.checks.end(), it_failed)) holding.push_back(name);
  }
  if (hangs) j.stopped = "no progress";
  if (!unexpected.empty()) {
    const ExitStatus status =
        hangs && is_named({"no_hang", false, ""}, unexpected) ? ExitStatus::no_progress : ExitStatus::check_failed;
    conclude(j, status, fmt::format("failed: {}", fmt::join(red, ", ")));
  } else if (!holding.empty()) {
    conclude(j, ExitStatus::check_failed,
             fmt::format("{} {} expected to fail, and {}", fmt::join(holding, ", "),
                         holding.size() == 1 ? "was" : "were", holding.size() == 1 ? "holds" : "hold"));
  } else if (!wanted.empty()) {
    conclude(j, ExitStatus::as_expected, fmt::format("{} failed, as expected", fmt::join(wanted, ", ")));
  } else {
    conclude(j, ExitStatus::as_expected, fmt::format("{} checks hold", j.checks.size()));
  }
  return j;
}

}  // namespace seeksim::harness::torch
