#include "harness/report/story.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

#include "runtime/seams/rank_names.h"
#include "runtime/seams/time.h"

namespace seeksim::harness {
namespace {

using runtime::rank_list;
using runtime::rank_names;
using runtime::seconds;

// Lines of the story, sorted by time; at equal times in the order in which they were added.
class Story {
 public:
  void add(TimeNs at, std::string text) { lines_.push_back({at, std::move(text)}); }
  void sort() {
    std::stable_sort(lines_.begin(), lines_.end(), [](const StoryLine& a, const StoryLine& b) { return a.at < b.at; });
  }
  std::vector<StoryLine> lines() && { return std::move(lines_); }
  std::string text(const Style& style) const {
    std::string out;
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      if (lines_.size() > kLinesMax && i == kLinesMax / 2) {
        const std::size_t left_out = lines_.size() - kLinesMax;
        out += style.faint(fmt::format("  ... {} more ...\n", left_out));
        i += left_out;
      }
      out += fmt::format("  {} {}\n", style.faint(fmt::format("{:>14.6f} s ", seconds(lines_[i].at))),
                         indented(lines_[i].text, style));
    }
    return out;
  }

 private:
  static constexpr std::size_t kLinesMax = 60;
  static constexpr std::size_t kWaitsMax = 8;

  // Text of several lines is a wait-for graph below its headline.
  static std::string indented(const std::string& text, const Style& style) {
    const std::size_t end = text.find('\n');
    std::string out = text.substr(0, end);
    if (end == std::string::npos) return out;
    const std::string margin(21, ' ');
    const std::vector<std::string> waits = waits_of(text.substr(end + 1));
    for (std::size_t i = 0; i < std::min(waits.size(), kWaitsMax); ++i) out += '\n' + style.faint(margin + waits[i]);
    if (waits.size() > kWaitsMax)
      out += '\n' + style.faint(fmt::format("{}... {} more", margin, waits.size() - kWaitsMax));
    return out;
  }

  std::vector<StoryLine> lines_;
};

// "rank 5: waits for ..." as the rank and the rest; -1 and the whole line where it begins otherwise.
std::pair<int, std::string> of_rank(const std::string& line) {
  constexpr std::string_view kRank = "rank ";
  int rank = -1;
  if (!line.starts_with(kRank)) return {-1, line};
  const auto [end, error] = std::from_chars(line.data() + kRank.size(), line.data() + line.size(), rank);
  const std::size_t at = std::size_t(end - line.data());
  if (error != std::errc() || line.compare(at, 2, ": ") != 0) return {-1, line};
  return {rank, line.substr(at + 2)};
}

// An operation "of rank 5" in a line that is about rank 5 already.
std::string without_own_name(std::string text, int rank) {
  const std::string own = fmt::format(" of rank {},", rank);
  const std::size_t at = text.find(own);
  return at == std::string::npos ? text : text.erase(at, own.size() - 1);
}

void tell_recovery(const Recovery& r, const Style& style, Story& story) {
  story.add(r.detected_ns, fmt::format("rank {} detected: {} in {}", r.first_rank, name(r.error),
                                       without_own_name(describe(r.op), r.first_rank)));
  if (!r.memory.empty()) story.add(r.detected_ns, fmt::format("rank {}: {}", r.out_of_memory, r.memory));
  if (r.agreed_ns >= 0) {
    story.add(r.agreed_ns, fmt::format("agreed: {}", style.bold(r.diagnosis.text)));
    if (r.analysis && !r.analysis->chain.empty())
      story.add(r.agreed_ns, fmt::format("flight recorders: {}", r.analysis->chain));
    if (!r.evicted.empty()) {
      story.add(r.agreed_ns, fmt::format("evicted {}; {} survivor{}: {}", rank_names(r.evicted), r.survivors.size(),
                                         r.survivors.size() == 1 ? "" : "s", rank_list(r.survivors)));
    }
  }
  if (!r.layout.empty()) story.add(r.agreed_ns, fmt::format("layout: {}", r.layout));
  if (r.rebuilt_ns >= 0) {
    story.add(r.rebuilt_ns,
              fmt::format("rebuilt the group: epoch {} with {}", r.epoch + 1,
                          r.survivors.size() == 1 ? "1 rank" : fmt::format("{} ranks", r.survivors.size())));
  }
  if (r.resumed_ns >= 0) {
    story.add(r.resumed_ns, fmt::format("resumed: step {} committed; {} steps lost", r.step, r.steps_lost));
  }
}

// What an event is about: its text up to the first colon ("revokes epoch 0").
std::string subject(const Event& event) { return event.text.substr(0, event.text.find(':')); }

// Several ranks that report the same at nearly the same time make one line: the first reports, the others are listed.
void tell_events(const std::vector<Event>& events, Story& story) {
  for (std::size_t i = 0; i < events.size(); ++i) {
    const Event& first = events[i];
    std::vector<int> others;
    while (first.rank >= 0 && i + 1 < events.size() && events[i + 1].rank >= 0 && events[i + 1].rank != first.rank &&
           subject(events[i + 1]) == subject(first)) {
      others.push_back(events[++i].rank);
    }
    std::sort(others.begin(), others.end());
    const std::string also = others.empty() ? "" : fmt::format("; likewise {}", rank_names(others));
    story.add(first.at_ns, first.rank < 0 ? first.text
                                          : fmt::format("rank {}: {}{}", first.rank,
                                                        without_own_name(first.text, first.rank), also));
  }
}

Story sorted_story(const RunRecord& run, const Style& style, const std::vector<StoryLine>& further = {}) {
  Story story;
  for (const StoryLine& line : further) story.add(line.at, line.text);
  tell_events(run.events, story);
  for (const Recovery& recovery : run.detection.recoveries) tell_recovery(recovery, style, story);
  if (!run.steps.empty()) {
    story.add(run.steps.front().committed_ns, fmt::format("step {} committed: the first", run.steps.front().step));
    if (run.steps.size() > 1) {
      story.add(run.steps.back().committed_ns, fmt::format("step {} committed: the last", run.steps.back().step));
    }
  }
  story.sort();
  return story;
}

}  // namespace

std::vector<std::string> waits_of(const std::string& graph) {
  std::vector<std::pair<std::string, std::vector<int>>> groups;  // what is waited for, and by whom
  for (std::size_t from = 0; from < graph.size();) {
    const std::size_t end = std::min(graph.find('\n', from), graph.size());
    const auto [rank, rest] = of_rank(graph.substr(from, end - from));
    from = end + 1;
    if (rest.starts_with("host waits for its ")) continue;
    const std::string what = without_own_name(rest, rank);
    const auto known = std::find_if(groups.begin(), groups.end(), [&, whose = rank](const auto& group) {
      return whose >= 0 && !group.second.empty() && group.first == what;
    });
    if (known == groups.end()) {
      groups.push_back({what, rank < 0 ? std::vector<int>{} : std::vector<int>{rank}});
    } else {
      known->second.push_back(rank);
    }
  }
  std::vector<std::string> lines;
  for (const auto& [what, ranks] : groups)
    lines.push_back(ranks.empty() ? what : fmt::format("{}: {}", rank_names(ranks), what));
  return lines;
}

std::vector<StoryLine> story_lines(const RunRecord& run) { return sorted_story(run, Style{}).lines(); }

std::string story_of(const RunRecord& run, const Style& style, const std::vector<StoryLine>& further) {
  return sorted_story(run, style, further).text(style);
}

}  // namespace seeksim::harness
