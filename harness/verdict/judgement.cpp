// The verdict on a whole run: the checks that were asked for, those that are always made, and what was expected.
#include <fmt/format.h>

#include <algorithm>

#include "harness/verdict/checks.h"
#include "runtime/backend/machine/interrupts.h"

namespace seeksim::harness {
namespace {

using How = RankRecord::How;

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
  return text;
}

// Why training did not reach its last step; empty when it did.
std::string why_stopped(const Evidence& e) {
  const bool livelock = std::any_of(e.run.ranks.begin(), e.run.ranks.end(),
                                    [](const RankRecord& rank) { return rank.why.starts_with("livelock"); });
  if (e.run.end == sim::WorldEnd::deadlock)
    return livelock ? "livelock: ranks vote and agree without end, and no step follows" : "deadlock";
  if (e.run.end == sim::WorldEnd::out_of_wall_time && runtime::interrupted() != 0)
    return "interrupted: " + runtime::interrupt_text();
  if (e.run.end == sim::WorldEnd::out_of_wall_time) return "out_of_time: the wall-clock limit was reached";
  bool anybody_finished = false;
  // The rank that was out of memory reported what was in use.
  if (!e.run.detection.recoveries.empty() && e.run.detection.recoveries.back().out_of_memory >= 0) {
    const RankRecord& rank = e.run.ranks[std::size_t(e.run.detection.recoveries.back().out_of_memory)];
    if (rank.how == How::stopped) return rank.why;
  }
  for (const RankRecord& rank : e.run.ranks) {
    if (rank.how == How::stopped) return rank.why.empty() ? "the recovery policy gave up" : rank.why;
    anybody_finished |= rank.how == How::finished;
  }
  if (anybody_finished) return "";
  for (const RankRecord& rank : e.run.ranks)
    if (rank.how == How::evicted) return "no rank survived: " + rank.why;
  return "no rank survived";
}

CheckResult finished(const Evidence& e, const std::string& stopped) {
  CheckResult result{"finished", false, ""};
  const std::int64_t steps = e.scenario.train.definition.steps;
  std::size_t ranks = 0;
  for (const RankRecord& rank : e.run.ranks) ranks += rank.how == How::finished;
  result.detail =
      fmt::format("{} of {} steps, by {} of {} ranks", e.run.steps.size(), steps, ranks, e.run.ranks.size());
  for (std::size_t i = 0; i < e.run.ranks.size(); ++i) {
    const RankRecord& rank = e.run.ranks[i];
    if (rank.how == How::finished && rank.steps_committed != steps) {
      result.detail = fmt::format("rank {} finished after {} of {} steps", i, rank.steps_committed, steps);
      return result;
    }
    if (rank.how == How::running && stopped.empty()) {
      result.detail = fmt::format("rank {} did not finish", i);
      return result;
    }
  }
  result.ok = stopped.empty() && std::int64_t(e.run.steps.size()) == steps && ranks > 0;
  if (!stopped.empty()) result.detail += "; " + stopped;
  return result;
}

bool names(const std::string& wanted, const CheckResult& check) {
  return check.name == wanted || check.name.substr(0, check.name.find(':')) == wanted;
}

struct Tally {
  std::vector<std::string> red;         // checks that failed
  std::vector<std::string> unexpected;  // ... that the expectation does not name
  std::vector<std::string> holding;     // checks that the expectation names, and that did not fail
};

Tally tally(const Judgement& j, const Expect& expect) {
  Tally t;
  const std::vector<std::string> wanted =
      expect.what == Expect::What::check_fails ? expect.names() : std::vector<std::string>();
  std::vector<bool> seen(wanted.size());
  for (const CheckResult& check : j.checks) {
    if (check.ok) continue;
    t.red.push_back(check.name);
    bool named = false;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (names(wanted[i], check)) named = seen[i] = true;
    }
    if (!named) t.unexpected.push_back(check.name);
  }
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (!seen[i]) t.holding.push_back(wanted[i]);
  }
  return t;
}

void conclude(Judgement& j, ExitStatus status, std::string sentence) {
  j.status = status;
  j.verdict = name(status);
  j.sentence = std::move(sentence);
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// "11 checks hold", and how many were skipped.
std::string hold_text(const Judgement& j) {
  const auto skipped =
      std::size_t(std::count_if(j.checks.begin(), j.checks.end(), [](const CheckResult& c) { return c.skipped; }));
  const std::string text = fmt::format("{} checks hold", j.checks.size() - skipped);
  return skipped == 0 ? text : fmt::format("{}, {} skipped", text, skipped);
}

bool no_progress(const Evidence& e) {
  return e.run.end == sim::WorldEnd::deadlock || e.run.end == sim::WorldEnd::out_of_wall_time;
}

void conclude_stop(Judgement& j, const Evidence& e, const Tally& t) {
  const std::string& wanted = e.scenario.expect.argument;
  if (j.stopped.empty()) {
    conclude(j, ExitStatus::check_failed, fmt::format("training was expected to stop ({}), and finished", wanted));
  } else if (lower(j.stopped).find(lower(wanted)) == std::string::npos) {
    conclude(j, no_progress(e) ? ExitStatus::no_progress : ExitStatus::check_failed,
             fmt::format("training was expected to stop for another reason ({}): {}", wanted, j.stopped));
  } else if (!t.red.empty()) {
    conclude(j, ExitStatus::check_failed, fmt::format("stopped as expected, but failed: {}", listed(t.red)));
  } else {
    conclude(j, ExitStatus::as_expected, fmt::format("stopped as expected: {}", j.stopped));
  }
}

}  // namespace

Judgement judge(const Evidence& e) {
  Judgement j;
  j.stopped = why_stopped(e);
  const Expect& expect = e.scenario.expect;
  // Poison ends training, and no_poison says so: that it did not finish is no second finding.
  if (expect.what != Expect::What::stops && e.run.numbers.poison.empty()) j.checks.push_back(finished(e, j.stopped));
  for (const CheckSpec& check : e.scenario.checks) j.checks.push_back(judge(check, e));
  for (const CheckInfo* row : judged_unasked(e)) j.checks.push_back(judge(CheckSpec{row->name, ""}, e));
  j.checks.insert(j.checks.end(), e.further.begin(), e.further.end());

  for (std::size_t i = 0; i < e.run.ranks.size(); ++i) {
    if (e.run.ranks[i].how != How::threw) continue;
    conclude(j, ExitStatus::bug, fmt::format("rank {} failed inside seeksim: {}", i, e.run.ranks[i].why));
    return j;
  }
  const Tally t = tally(j, expect);
  if (expect.what == Expect::What::stops) {
    conclude_stop(j, e, t);
  } else if (no_progress(e)) {
    conclude(j, ExitStatus::no_progress, j.stopped);
  } else if (expect.what == Expect::What::pass) {
    if (t.red.empty()) {
      conclude(j, ExitStatus::as_expected, hold_text(j));
    } else {
      conclude(j, ExitStatus::check_failed, fmt::format("failed: {}", listed(t.red)));
    }
  } else if (!t.holding.empty()) {
    conclude(j, ExitStatus::check_failed, fmt::format("{} was expected to fail, and holds", listed(t.holding)));
  } else if (!t.unexpected.empty()) {
    conclude(j, ExitStatus::check_failed,
             fmt::format("{} failed as expected, but so did: {}", expect.argument, listed(t.unexpected)));
  } else {
    conclude(j, ExitStatus::as_expected, fmt::format("{} failed, as expected", expect.argument));
  }
  return j;
}

}  // namespace seeksim::harness
