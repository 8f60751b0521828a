#include "tests/harness/export/trace_rules.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace seeksim::harness::testing {
namespace {

using Thread = std::pair<int, int>;

bool is_whole(const Json& event, const char* key) { return event.contains(key) && event[key].is_number_integer(); }

bool is_reserved_colour(const Json& name) {
  static const std::set<std::string> kColours = {"thread_state_uninterruptible",
                                                 "thread_state_iowait",
                                                 "thread_state_running",
                                                 "thread_state_runnable",
                                                 "thread_state_sleeping",
                                                 "thread_state_unknown",
                                                 "background_memory_dump",
                                                 "light_memory_dump",
                                                 "detailed_memory_dump",
                                                 "vsync_highlight_color",
                                                 "generic_work",
                                                 "good",
                                                 "bad",
                                                 "terrible",
                                                 "black",
                                                 "grey",
                                                 "white",
                                                 "yellow",
                                                 "olive",
                                                 "rail_response",
                                                 "rail_animation",
                                                 "rail_idle",
                                                 "rail_load",
                                                 "startup"};
  return kColours.count(name) > 0;
}

// Reads the events one after the other.
class Rules {
 public:
  // What is wrong with the next event; empty: nothing.
  std::string look_at(const Json& event) {
    if (!event.contains("name") || !event["name"].is_string()) return "no name";
    if (!is_whole(event, "pid") || !is_whole(event, "tid")) return "no process or thread";
    const Thread thread{event["pid"], event["tid"]};
    const std::string phase = event.value("ph", "");
    if (phase == "M") return metadata(event, thread);
    if (!event.contains("ts") || !event["ts"].is_number() || event["ts"] < 0) return "no time";
    const std::int64_t at = ns(event["ts"]);
    if (at < last_) return "out of order";
    last_ = at;
    if (!named_.count(thread)) return "of a thread without a name";
    if (!processes_.count(thread.first)) return "of a process without a name";
    if (event.contains("cname") && !is_reserved_colour(event["cname"])) return "no reserved colour";
    if (phase == "X") return span(event, thread, at);
    if (phase == "C") return counter(event);
    if (phase == "s" || phase == "f") return arrow(event, thread, at, phase == "s");
    if (phase != "i") return "unknown kind of event";
    const std::string scope = event.value("s", "");
    return scope == "g" || scope == "p" || scope == "t" ? "" : "no scope";
  }

  // Of arrows, when all spans are known.
  std::string at_the_end() const {
    if (sent_.size() != received_.size()) return "an arrow without an end";
    for (const auto& [id, from] : sent_) {
      const auto to = received_.find(id);
      if (to == received_.end() || to->second.second < from.second)
        return fmt::format("arrow {} ends before it begins", id);
      if (!inside(from)) return fmt::format("arrow {} begins outside of all spans", id);
      if (!inside(to->second)) return fmt::format("arrow {} ends outside of all spans", id);
    }
    return "";
  }

 private:
  struct Span {
    std::int64_t begin, end;
  };
  using End = std::pair<Thread, std::int64_t>;

  std::string metadata(const Json& event, const Thread& thread) {
    static const std::map<std::string, std::string> kKeys = {{"process_name", "name"},
                                                             {"process_labels", "labels"},
                                                             {"process_sort_index", "sort_index"},
                                                             {"thread_name", "name"},
                                                             {"thread_sort_index", "sort_index"}};
    const auto known = kKeys.find(event["name"]);
    if (known == kKeys.end() || !event["args"].is_object() || !event["args"].contains(known->second))
      return "unknown metadata";
    if (event["args"][known->second].is_number_integer() != (known->second == "sort_index")) return "unknown metadata";
    if (event["name"] == "thread_name") named_.insert(thread);
    if (event["name"] == "process_name") processes_.insert(thread.first);
    return "";
  }

  // Spans of a thread are apart; a recovery contains its stages.
  std::string span(const Json& event, const Thread& thread, std::int64_t at) {
    if (!event.contains("dur") || !event["dur"].is_number() || event["dur"] < 0) return "no duration";
    if (!event["args"].is_object() || !event["cat"].is_string()) return "no arguments or category";
    const std::int64_t end = at + ns(event["dur"]);
    std::vector<std::int64_t>& open = open_[thread];
    while (!open.empty() && open.back() <= at) open.pop_back();
    if (!open.empty() && event["cat"] != "recovery") return "begins before what is in front of it has ended";
    if (!open.empty() && open.back() < end) return "ends behind the span in which it began";
    open.push_back(end);
    spans_[thread].push_back({at, end});
    return "";
  }

  static std::string counter(const Json& event) {
    if (!event["args"].is_object() || event["args"].empty()) return "counts nothing";
    for (const auto& [what, value] : event["args"].items())
      if (!value.is_number() || value < 0) return "a counter below zero, or without a number";
    return "";
  }

  std::string arrow(const Json& event, const Thread& thread, std::int64_t at, bool begins) {
    if (!is_whole(event, "id")) return "no id";
    if (!begins && event.value("bp", "") != "e") return "bound to what comes next";
    auto& ends = begins ? sent_ : received_;
    return ends.emplace(event["id"].get<std::int64_t>(), End{thread, at}).second ? "" : "its id is taken";
  }

  bool inside(const End& end) const {
    const auto spans = spans_.find(end.first);
    if (spans == spans_.end()) return false;
    for (const Span& span : spans->second) {
      if (span.begin <= end.second && (end.second < span.end || end.second == span.begin)) return true;
    }
    return false;
  }

  std::set<Thread> named_;
  std::set<int> processes_;
  std::map<Thread, std::vector<std::int64_t>> open_;  // ends of the spans that are not over, from outside
  std::map<Thread, std::vector<Span>> spans_;
  std::map<std::int64_t, End> sent_, received_;
  std::int64_t last_ = 0;
};

}  // namespace

std::int64_t ns(const Json& microseconds) { return std::llround(microseconds.get<double>() * 1000); }

std::string wrong_with_trace(const Json& trace) {
  if (!trace.is_object() || !trace.contains("traceEvents") || !trace["traceEvents"].is_array()) return "no traceEvents";
  if (trace["displayTimeUnit"] != "ns" && trace["displayTimeUnit"] != "ms") return "displayTimeUnit";
  Rules rules;
  for (const Json& event : trace["traceEvents"]) {
    if (const std::string wrong = rules.look_at(event); !wrong.empty()) return wrong + ": " + event.dump();
  }
  return rules.at_the_end();
}

}  // namespace seeksim::harness::testing
