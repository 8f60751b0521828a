#include "harness/torch/show/spans.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "harness/torch/collectives.h"

namespace seeksim::harness::torch {
namespace {

using pytorch::CallEntry;
using pytorch::RankRecord;

std::int64_t first_sign_ns(const TorchRun& run) {
  std::int64_t first = std::numeric_limits<std::int64_t>::max();
  for (const RankRun& rank : run.ranks)
    if (rank.record) first = std::min(first, rank.record->now.started_ns);
  return first;
}

std::int64_t last_sign_ns(const RankRecord& record) {
  std::int64_t last = record.now.started_ns;
  const auto at = [&last](std::int64_t ns) { last = std::max(last, ns); };
  for (const pytorch::PhaseEntry& phase : record.phases) at(phase.time_ns);
  for (const CallEntry& call : record.calls) at(std::max({call.created_ns, call.started_ns, call.finished_ns}));
  for (const pytorch::StepEntry& step : record.steps) at(step.time_ns);
  for (const pytorch::LossEntry& loss : record.losses) at(loss.time_ns);
  for (const pytorch::FaultEntry& fault : record.faults) at(fault.time_ns);
  for (const pytorch::VerdictEntry& verdict : record.verdicts) at(verdict.time_ns);
  return last;
}

// A record may be damaged: no time is before the beginning, nor too long after it for a sum of two.
std::int64_t since_zero(std::int64_t ns, std::int64_t zero_ns) {
  constexpr std::int64_t kLongest_ns = std::numeric_limits<std::int64_t>::max() / 4;
  std::int64_t passed = 0;
  if (__builtin_sub_overflow(ns, zero_ns, &passed)) return ns < zero_ns ? 0 : kLongest_ns;
  return std::clamp<std::int64_t>(passed, 0, kLongest_ns);
}

class Reading {
 public:
  Reading(const RankRun& rank, std::int64_t zero_ns) : record_(*rank.record), zero_ns_(zero_ns) {
    spans_.rank = rank.rank;
    spans_.end_ns = since_zero(last_sign_ns(record_), zero_ns);
  }

  RankSpans spans(const std::map<std::pair<GroupId, std::uint64_t>, LastComer>& last) {
    phases();
    steps();
    calls(last);
    moments();
    return std::move(spans_);
  }

 private:
  std::int64_t since(std::int64_t ns) const { return since_zero(ns, zero_ns_); }

  void phases() {
    PhaseSpan open;
    open.begin_ns = since(record_.now.started_ns);
    const auto close = [&](std::int64_t at_ns) {
      open.end_ns = at_ns;
      if (open.end_ns > open.begin_ns) spans_.phases.push_back(open);
    };
    for (const pytorch::PhaseEntry& phase : record_.phases) {
      close(since(phase.time_ns));
      open = {phase.phase, phase.step, phase.micro_batch, since(phase.time_ns), 0};
    }
    close(spans_.end_ns);
  }

  // From the first phase of a step to its end.
  void steps() {
    for (const pytorch::StepEntry& step : record_.steps) {
      const auto first = std::find_if(record_.phases.begin(), record_.phases.end(),
                                      [&](const pytorch::PhaseEntry& phase) { return phase.step == step.step; });
      if (first != record_.phases.end())
        spans_.steps.push_back(
            {step.step, since(first->time_ns), std::max(since(first->time_ns), since(step.time_ns))});
    }
  }

  void calls(const std::map<std::pair<GroupId, std::uint64_t>, LastComer>& last) {
    for (const CallEntry& call : record_.calls) {
      CallSpan span;
      span.call = &call;
      span.begin_ns = since(call.started_ns > 0 ? call.started_ns : call.created_ns);
      span.end_ns = std::max(span.begin_ns, call.finished_ns > 0 ? since(call.finished_ns) : spans_.end_ns);
      if (call.seq > 0 && call.group >= 0) {
        const auto met = last.find({group_of(record_, call.group), call.seq});
        if (met != last.end() && met->second.rank != spans_.rank) {
          span.waits_for = met->second.rank;
          span.waited_until_ns = std::clamp(since(met->second.at_ns), span.begin_ns, span.end_ns);
        }
      }
      spans_.calls.push_back(span);
    }
    std::stable_sort(spans_.calls.begin(), spans_.calls.end(),
                     [](const CallSpan& a, const CallSpan& b) { return a.begin_ns < b.begin_ns; });
  }

  void moments() {
    for (const pytorch::FaultEntry& fault : record_.faults)
      spans_.moments.push_back({Moment::What::fault, since(fault.time_ns),
                                fmt::format("faults.{}: {}", fault.rule, record_.text(fault.text))});
    for (const pytorch::VerdictEntry& verdict : record_.verdicts) {
      const std::string& text = record_.text(verdict.text);
      spans_.moments.push_back({Moment::What::verdict, since(verdict.time_ns), text.substr(0, text.find('\n'))});
    }
  }

  const RankRecord& record_;
  std::int64_t zero_ns_;
  RankSpans spans_;
};

}  // namespace

std::vector<RankSpans> spans_of(const TorchRun& run) {
  const std::int64_t zero_ns = first_sign_ns(run);
  const auto last = last_comers(run);
  std::vector<RankSpans> all;
  for (const RankRun& rank : run.ranks)
    if (rank.record) all.push_back(Reading(rank, zero_ns).spans(last));
  return all;
}

}  // namespace seeksim::harness::torch
