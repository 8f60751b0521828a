// Which ranks are evicted, and when a run stops.
#include "runtime/decide/decision.h"

#include <algorithm>

#include "kernels/check.h"
#include "runtime/seams/rank_names.h"

namespace seeksim::runtime {
namespace {

bool blames_a_link(const Diagnosis& d) {
  return (d.verdict == Verdict::link || d.verdict == Verdict::corrupt_message) && !d.links.empty();
}

// Links accused now and in the attempt before, where one of them is accused again. A link is given a second chance,
// since most cuts are short and evicting a healthy rank costs a rank; the second time its end goes.
std::vector<std::pair<int, int>> links_accused_again(const Diagnosis& now, std::int64_t step,
                                                     const std::vector<FailedAttempt>& history) {
  if (!blames_a_link(now) || history.empty()) return {};
  const FailedAttempt& before = history.back();
  if (before.step != step || !blames_a_link(before.diagnosis)) return {};
  const auto& earlier = before.diagnosis.links;
  const bool same_link = std::any_of(now.links.begin(), now.links.end(), [&](const std::pair<int, int>& link) {
    return std::find(earlier.begin(), earlier.end(), link) != earlier.end();
  });
  // A sender whose messages arrive corrupt at one receiver after the other is one source.
  const bool same_sender = now.verdict == Verdict::corrupt_message &&
                           before.diagnosis.verdict == Verdict::corrupt_message &&
                           now.links.front().first == earlier.front().first;
  if (!same_link && !same_sender) return {};
  std::vector<std::pair<int, int>> links = now.links;
  links.insert(links.end(), earlier.begin(), earlier.end());
  return links;
}

// Ranks that computed other bits now and in an earlier attempt at this step. A stray particle strikes once; a rank that
// errs again has a defect.
std::vector<int> corrupt_again(const Diagnosis& now, std::int64_t step, const std::vector<FailedAttempt>& history) {
  std::vector<int> again;
  if (now.verdict != Verdict::corrupt_compute) return again;
  for (const int rank : now.culprits) {
    const bool before = std::any_of(history.begin(), history.end(), [&](const FailedAttempt& a) {
      const std::vector<int>& named = a.diagnosis.culprits;
      return a.step == step && a.diagnosis.verdict == Verdict::corrupt_compute &&
             std::find(named.begin(), named.end(), rank) != named.end();
    });
    if (before) again.push_back(rank);
  }
  return again;
}

bool has(const std::vector<int>& ranks, int rank) { return std::find(ranks.begin(), ranks.end(), rank) != ranks.end(); }

// What is wrong with the survivors that a rule of somebody's names; empty: they can go on.
std::string problem_of(const Decision& decision, const RecoveryPlan& plan, const Agreement& agreement) {
  const std::string policy = "the recovery policy " + plan.own_policy;
  if (decision.survivors.empty()) return policy + " leaves no rank";
  for (std::size_t i = 0; i < decision.survivors.size(); ++i) {
    const int rank = decision.survivors[i];
    if (!has(agreement.members, rank)) return policy + " goes on with rank " + std::to_string(rank) + ", which is gone";
    if (i > 0 && decision.survivors[i - 1] == rank) return policy + " names rank " + std::to_string(rank) + " twice";
  }
  const bool all = decision.survivors.size() == agreement.members.size() && agreement.dead.empty();
  if (plan.policy == RecoveryPolicy::retry_step && !all) return policy + " retries the step, which needs every member";
  return "";
}

Decision by_rule(const Failure& failure, const Decision& standard) {
  Decision decision = failure.plan.rule->decide(failure, standard);
  if (decision.stop) return decision;
  std::sort(decision.survivors.begin(), decision.survivors.end());
  if (const std::string wrong = problem_of(decision, failure.plan, failure.agreement); !wrong.empty()) {
    decision.stop = true;
    decision.why = wrong + ": " + failure.diagnosis.text;
    return decision;
  }
  decision.evicted = failure.agreement.dead;
  for (const int member : failure.agreement.members)
    if (!has(decision.survivors, member)) decision.evicted.push_back(member);
  std::sort(decision.evicted.begin(), decision.evicted.end());
  return decision;
}

// Whether members stand at different steps, and are to go on from where they stand.
bool committed_differently(const RecoveryPlan& plan, const Agreement& agreement, const Diagnosis& diagnosis,
                           std::int64_t step) {
  if (plan.policy == RecoveryPolicy::restart_from_checkpoint || diagnosis.verdict == Verdict::diverged) return false;
  return std::any_of(agreement.ballots.begin(), agreement.ballots.end(),
                     [&](const Ballot& ballot) { return ballot.last_committed != step - 1; });
}

Decision standard_decision(const Failure& f);

}  // namespace

int rank_to_evict(const std::vector<std::pair<int, int>>& links) {
  SEEKSIM_CHECK(!links.empty(), "no link is accused");
  std::vector<int> common = {links.front().first, links.front().second};
  for (const auto& [from, to] : links) {
    std::erase_if(common, [f = from, t = to](int rank) { return rank != f && rank != t; });
  }
  return common.size() == 1 ? common.front() : links.front().first;
}

Decision decide(const RecoveryPlan& plan, const Agreement& agreement, const Diagnosis& diagnosis, std::int64_t step,
                const std::vector<FailedAttempt>& history) {
  const Failure failure{plan, agreement, diagnosis, step, history};
  const Decision standard = standard_decision(failure);
  if (plan.rule == nullptr || committed_differently(plan, agreement, diagnosis, step)) return standard;
  return by_rule(failure, standard);
}

namespace {

Decision standard_decision(const Failure& f) {
  const auto& [plan, agreement, diagnosis, step, history] = f;
  Decision decision;
  decision.survivors = agreement.members;
  decision.evicted = agreement.dead;
  std::sort(decision.survivors.begin(), decision.survivors.end());
  std::sort(decision.evicted.begin(), decision.evicted.end());
  auto stop = [&](const std::string& why) {
    decision.stop = true;
    decision.why = why + ": " + diagnosis.text;
    return decision;
  };
  if (committed_differently(plan, agreement, diagnosis, step))
    return stop("ranks committed different steps, which the vote forbids");
  if (plan.policy == RecoveryPolicy::stop) return stop("the recovery policy is to stop");
  const auto attempts =
      std::count_if(history.begin(), history.end(), [&](const FailedAttempt& a) { return a.step == f.step; });
  if (attempts >= plan.attempts_max) {
    return stop("step " + std::to_string(step) + " failed " + std::to_string(attempts + 1) + " times");
  }
  if (plan.policy == RecoveryPolicy::retry_step) {
    if (!agreement.dead.empty())
      return stop("retry_step needs every member, and " + rank_names(decision.evicted) + " is gone");
    return decision;
  }
  auto evict = [&](int rank, const char* since) {
    if (decision.survivors.size() <= 1 || std::erase(decision.survivors, rank) == 0) return;
    decision.evicted.push_back(rank);
    std::sort(decision.evicted.begin(), decision.evicted.end());
    decision.why = "rank " + std::to_string(rank) + " is evicted, since " + since + ": " + diagnosis.text;
  };
  const auto links = links_accused_again(diagnosis, step, history);
  if (!links.empty()) evict(rank_to_evict(links), "its link failed again");
  for (const int rank : corrupt_again(diagnosis, step, history)) evict(rank, "it computed different bits again");
  if (diagnosis.verdict == Verdict::straggler) {
    for (const int rank : diagnosis.culprits) evict(rank, "all other ranks wait for it");
  }
  return decision;
}

}  // namespace
}  // namespace seeksim::runtime
