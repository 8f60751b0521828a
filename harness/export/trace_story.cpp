#include "harness/export/trace_story.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "harness/export/trace_words.h"
#include "harness/record/causes.h"

namespace seeksim::harness {
namespace {

// Groups of spans, each on the first track of its kind that is free when it begins.
class Tracks {
 public:
  explicit Tracks(StoryTracks& all) : all_(all) {}
  // In the order of their begins. The first span contains the others.
  void add(const char* kind, std::vector<StorySpan> spans) {
    if (kind_ != kind) {
      kind_ = kind;
      ends_.clear();
      first_ = int(all_.tracks.size());
    }
    std::size_t track = 0;
    while (track < ends_.size() && ends_[track] > spans[0].begin) ++track;
    if (track == ends_.size()) {
      ends_.push_back(0);
      all_.tracks.push_back(track == 0 ? kind : fmt::format("{} ({})", kind, track + 1));
    }
    ends_[track] = spans[0].end;
    for (StorySpan& span : spans) {
      span.track = first_ + int(track);
      all_.spans.push_back(std::move(span));
    }
  }

 private:
  StoryTracks& all_;
  std::string kind_;
  int first_ = 0;
  std::vector<TimeNs> ends_;  // by track of this kind
};

void sort_by_begin(std::vector<std::vector<StorySpan>>& groups) {
  std::stable_sort(groups.begin(), groups.end(), [](const auto& a, const auto& b) { return a[0].begin < b[0].begin; });
}

// From its first firing to its last one, to the end of the run where that is not known, or until ranks recovered.
TimeNs end_of_fault(const RunRecord& run, const std::vector<Cause>& causes, std::size_t rule) {
  const faults::RuleStatus& fault = run.faults[rule];
  TimeNs end = fault.fired_ns.empty() ? fault.first_fired_ns : fault.fired_ns.back();
  if (fault.fired > fault.fired_ns.size()) end = std::max(end, run.virtual_ns);
  for (std::size_t i = 0; i < causes.size(); ++i) {
    const Recovery& recovery = run.detection.recoveries[i];
    if (causes[i].fault == int(rule))
      end = std::max({end, recovery.detected_ns, recovery.agreed_ns, recovery.rebuilt_ns});
  }
  return end;
}

std::vector<std::vector<StorySpan>> faults_of(const RunRecord& run, const std::vector<Cause>& causes) {
  std::vector<std::vector<StorySpan>> groups;
  for (std::size_t i = 0; i < run.faults.size(); ++i) {
    const faults::RuleStatus& fault = run.faults[i];
    if (fault.first_fired_ns < 0) continue;
    std::string whom;
    if (!fault.ranks.empty() && fault.ranks.size() <= 4)
      whom = fmt::format(", rank{} {}", fault.ranks.size() == 1 ? "" : "s", fmt::join(fault.ranks, " "));
    groups.push_back({{fault.first_fired_ns, end_of_fault(run, causes, i), 0,
                       fmt::format("{}{}", name(fault.kind), whom), "fault", "terrible",
                       fmt::format(R"("rule":{},"fired":{},"ranks":[{}])", as_json_text(fault.text), fault.fired,
                                   fmt::join(fault.ranks, ","))}});
  }
  sort_by_begin(groups);
  return groups;
}

std::vector<std::vector<StorySpan>> recoveries_of(const RunRecord& run, const std::vector<Cause>& causes) {
  std::vector<std::vector<StorySpan>> groups;
  for (std::size_t i = 0; i < causes.size(); ++i) {
    const Recovery& recovery = run.detection.recoveries[i];
    if (recovery.detected_ns < 0) continue;
    const int fault = causes[i].fault;
    const TimeNs begin = fault < 0 ? recovery.detected_ns : causes[i].injected_ns;
    std::vector<StorySpan> spans(1);
    TimeNs end = begin;
    const auto stage = [&](const char* what, TimeNs until, const char* colour) {
      if (until < end) return;
      spans.push_back({end, until, 0, what, "recovery", colour, ""});
      end = until;
    };
    if (fault >= 0) stage("detection", recovery.detected_ns, "bad");
    stage("agreement", recovery.agreed_ns, "thread_state_iowait");
    stage("rebuild", recovery.rebuilt_ns, "rail_animation");
    stage("resume", recovery.resumed_ns, "good");
    spans[0] = {begin,
                end,
                0,
                fmt::format("recovery of epoch {}", recovery.epoch),
                "recovery",
                "generic_work",
                fmt::format(R"("step":{},"noticed_by":{},"error":{},"diagnosis":{},"fault":{},"evicted":[{}],)"
                            R"("steps_lost":{},"resumed":{})",
                            recovery.step, recovery.first_rank, as_json_text(name(recovery.error)),
                            as_json_text(recovery.diagnosis.text), fault < 0 ? "null" : std::to_string(fault),
                            fmt::join(recovery.evicted, ","), recovery.steps_lost, recovery.resumed_ns >= 0)};
    groups.push_back(std::move(spans));
  }
  sort_by_begin(groups);
  return groups;
}

}  // namespace

std::string stretch_in_words(const sim::Timeline::LeftOut& one) {
  const std::string steps = one.first_step == one.last_step
                                ? fmt::format("step {}", one.first_step)
                                : fmt::format("steps {} to {}", one.first_step, one.last_step);
  return one.whole ? steps : "a part of " + steps;
}

StoryTracks trace_story(const sim::Timeline& timeline, const RunRecord& run) {
  StoryTracks all;
  Tracks tracks(all);
  const std::vector<Cause> causes = causes_of(run);
  for (auto& fault : faults_of(run, causes)) tracks.add("faults", std::move(fault));
  for (auto& recovery : recoveries_of(run, causes)) tracks.add("recoveries", std::move(recovery));
  for (const sim::Timeline::LeftOut& one : timeline.left_out())
    tracks.add("left out", {{one.begin, one.end, 0, stretch_in_words(one) + ": left out", "left_out", "grey", ""}});
  return all;
}

}  // namespace seeksim::harness
