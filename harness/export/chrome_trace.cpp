// Everything that is drawn becomes an Item, items are sorted by time, and each is written as one line of JSON. Nothing
// on one thread of a rank contains or overlaps anything else there; recoveries contain their stages.
#include "harness/export/chrome_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <tuple>

#include "harness/export/trace_story.h"
#include "harness/export/trace_words.h"
#include "harness/input/json.h"

#include <nlohmann/json.hpp>

namespace seeksim::harness {
namespace {

using runtime::Op;
using sim::Blocked;
using sim::Timeline;

// Threads of a process, in the order in which they are shown; queues come behind.
enum Thread : int { kSteps, kPhases, kFirstLane };

class Writer {
 public:
  Writer(const Timeline& timeline, const Scenario& scenario, const RunRecord& run)
      : timeline_(timeline), scenario_(scenario), run_(run), story_(trace_story(timeline, run)) {}

  std::string text() {
    number_threads();
    gather_spans();
    gather_steps();
    gather_phases();
    gather_marks();
    gather_story();
    gather_arrows();
    gather_counters();
    // Items of one thread stay in the order of their reports: an item without length may stand where the next begins.
    std::stable_sort(items_.begin(), items_.end(), [](const Item& a, const Item& b) {
      return std::tuple(a.at, a.pid, a.tid) < std::tuple(b.at, b.pid, b.tid);
    });
    out_ = "{\"displayTimeUnit\":\"ns\",\"otherData\":" + about() + ",\n\"traceEvents\":[";
    name_threads();
    for (const Item& item : items_) line(item.text(*this, item));
    return std::move(out_) + "\n]}\n";
  }

 private:
  struct Item {
    TimeNs at = 0;
    TimeNs length = 0;  // 0: it has none
    int pid = 0;
    int tid = 0;
    std::size_t index = 0;  // of what it speaks of
    std::string (*text)(const Writer& writer, const Item& item) = nullptr;
  };
  struct PhaseOf {
    Op op;
    std::uint32_t part;
    std::uint64_t launches;
  };

  void line(const std::string& text) {
    out_ += lines_++ == 0 ? "\n" : ",\n";
    out_ += text;
  }

  std::string about() const {
    Json about = {{"scenario", scenario_.name},
                  {"seed", scenario_.world.seed},
                  {"time", "virtual"},
                  {"ranks", timeline_.ranks()},
                  {"fingerprint", fmt::format("{:016x}", run_.fingerprint)},
                  {"spans", timeline_.spans().size()},
                  {"spans_left_out", timeline_.forgotten()}};
    if (timeline_.forgotten() > 0) {
      about["left_out"] = Json::array();
      for (const Timeline::LeftOut& one : timeline_.left_out()) about["left_out"].push_back(stretch_in_words(one));
    }
    return about.dump(-1, ' ', false, Json::error_handler_t::replace);
  }

  // ---- threads
  // Known queues as they are used in a step, others by name behind them.
  static int place_of(const Timeline::Lane& lane) {
    static constexpr std::array<std::string_view, 6> kKnown = {"host",       "compute queue", "communication queue",
                                                               "copy queue", "host queue",    "storage queue"};
    const auto known = std::find(kKnown.begin(), kKnown.end(), std::string_view(lane.name));
    return int(known - kKnown.begin());
  }

  void number_threads() {
    const std::vector<Timeline::Lane>& lanes = timeline_.lanes();
    std::vector<std::size_t> order(lanes.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return std::tuple(lanes[a].rank, place_of(lanes[a]), lanes[a].name) <
             std::tuple(lanes[b].rank, place_of(lanes[b]), lanes[b].name);
    });
    tids_.resize(lanes.size());
    std::map<int, int> next;
    for (const std::size_t lane : order) tids_[lane] = kFirstLane + next[lanes[lane].rank]++;
  }

  void name_threads() {
    const auto tell = [this](int pid, int tid, const char* what, const char* key, const std::string& value) {
      line(fmt::format(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"{}":{}}}}})", what, pid, tid, key, value));
    };
    const auto thread = [&](int pid, int tid, std::string_view name) {
      tell(pid, tid, "thread_name", "name", as_json_text(name));
      tell(pid, tid, "thread_sort_index", "sort_index", std::to_string(tid));
    };
    const auto process = [&](int pid, std::string_view name, int place) {
      tell(pid, 0, "process_name", "name", as_json_text(name));
      tell(pid, 0, "process_sort_index", "sort_index", std::to_string(place));
    };
    if (!story_.tracks.empty()) process(timeline_.ranks(), "faults and recoveries", -1);
    for (std::size_t track = 0; track < story_.tracks.size(); ++track)
      thread(timeline_.ranks(), int(track), story_.tracks[track]);
    for (int rank = 0; rank < timeline_.ranks(); ++rank) {
      const int node = rank / scenario_.world.ranks_per_node;
      process(rank, fmt::format("node {} / rank {}", node, rank), rank);
      tell(rank, 0, "process_labels", "labels", as_json_text(fmt::format("node {}", node)));
      thread(rank, kSteps, "steps");
      thread(rank, kPhases, "phases of the compute queue");
    }
    for (std::size_t lane = 0; lane < tids_.size(); ++lane)
      thread(timeline_.lanes()[lane].rank, tids_[lane], timeline_.lanes()[lane].name);
  }

  // ---- what queues and hosts did
  void gather_spans() {
    for (std::size_t i = 0; i < timeline_.spans().size(); ++i) {
      const Timeline::Span& span = timeline_.spans()[i];
      items_.push_back({span.begin, span.end - span.begin, timeline_.lanes()[span.lane].rank, tids_[span.lane], i,
                        [](const Writer& writer, const Item& item) { return writer.span(item); }});
    }
  }

  static std::string complete(const Item& item, const std::string& name, std::string_view category,
                              std::string_view colour, const std::string& args) {
    return fmt::format(
        R"({{"ph":"X","name":{},"cat":"{}","ts":{},"dur":{},"pid":{},"tid":{},"cname":"{}","args":{{{}}}}})", name,
        category, in_microseconds(item.at), in_microseconds(item.length), item.pid, item.tid, colour, args);
  }

  std::string span(const Item& item) const {
    const Timeline::Span& span = timeline_.spans()[item.index];
    if (span.why != Blocked::no) {
      const bool hangs = span.why == Blocked::for_ever;
      return complete(item, as_json_text(wait_in_words(span.why)), "wait", hangs ? "bad" : "thread_state_sleeping", "");
    }
    const bool whole = span.state == runtime::RecordState::completed;
    const std::string_view kind = name(span.op.kind);
    const bool has_tensor = span.op.tensor != nullptr && *span.op.tensor != '\0';
    const std::string title = has_tensor ? fmt::format("{} {}", kind, span.op.tensor) : std::string(kind);
    return complete(item, as_json_text(title), name(span.op.phase), whole ? trace_colour(span.op.phase) : "bad",
                    args_of(span.op, whole));
  }

  static std::string args_of(const Op& op, bool whole) {
    std::string args = fmt::format(R"("kind":"{}","phase":"{}","step":{},"epoch":{},"sequence":{})", name(op.kind),
                                   name(op.phase), op.step, op.epoch, op.sequence);
    const auto add = [&](bool there, const char* key, auto value) {
      if (there) fmt::format_to(std::back_inserter(args), R"(,"{}":{})", key, value);
    };
    add(op.micro_batch >= 0, "micro_batch", op.micro_batch);
    add(op.layer >= 0, "layer", op.layer);
    add(op.peer >= 0, "peer", op.peer);
    add(op.bytes > 0, "bytes", op.bytes);
    add(op.tensor != nullptr && *op.tensor != '\0', "tensor", as_json_text(op.tensor != nullptr ? op.tensor : ""));
    add(runtime::is_collective(op.kind) || op.peer >= 0, "axis", as_json_text(name(op.axis)));
    add(op.site != nullptr && *op.site != '\0', "site", as_json_text(op.site != nullptr ? op.site : ""));
    add(!whole, "cut_short", "true");
    return args;
  }

  // ---- steps: from the first operation of a step to its last, one attempt after the other
  void gather_steps() {
    std::map<std::pair<int, std::uint32_t>, std::pair<TimeNs, TimeNs>> bounds;  // by rank and part
    for (const Timeline::Span& span : timeline_.spans()) {
      if (span.why != Blocked::no || span.op.step < 0) continue;
      if (span.op.step >= scenario_.train.definition.steps) continue;  // the last checkpoint: no step follows it
      const auto [at, fresh] = bounds.try_emplace({timeline_.lanes()[span.lane].rank, span.part}, span.begin, span.end);
      at->second.first = std::min(at->second.first, span.begin);
      at->second.second = std::max(at->second.second, span.end);
    }
    for (auto at = bounds.begin(); at != bounds.end(); ++at) {
      const auto& [rank, part] = at->first;
      const auto next = std::next(at);
      auto [begin, end] = at->second;
      // A step's parameters may be published when the next one has begun.
      if (next != bounds.end() && next->first.first == rank) end = std::max(begin, std::min(end, next->second.first));
      items_.push_back({begin, end - begin, rank, kSteps, part,
                        [](const Writer& writer, const Item& item) { return writer.step(item); }});
    }
  }

  std::string step(const Item& item) const {
    const sim::Parts::Part& step = timeline_.parts()[item.index];
    const std::string again = step.epoch > 0 ? fmt::format(", epoch {}", step.epoch) : "";
    return complete(item, as_json_text(fmt::format("step {}{}", step.step, again)), "step", "generic_work",
                    fmt::format(R"("step":{},"epoch":{})", step.step, step.epoch));
  }

  // ---- phases: launches in a row of one queue that stand at one place in a step
  void gather_phases() {
    std::map<int, std::size_t> open;  // by rank: among items_
    for (const Timeline::Span& span : timeline_.spans()) {
      const Timeline::Lane& lane = timeline_.lanes()[span.lane];
      if (lane.name != "compute queue") continue;
      const auto at = open.find(lane.rank);
      if (at != open.end()) {
        Item& item = items_[at->second];
        PhaseOf& phase = phases_[item.index];
        if (std::tuple(phase.part, phase.op.phase, phase.op.micro_batch) ==
            std::tuple(span.part, span.op.phase, span.op.micro_batch)) {
          item.length = std::max(item.at + item.length, span.end) - item.at;
          ++phase.launches;
          continue;
        }
      }
      phases_.push_back({span.op, span.part, 1});
      open[lane.rank] = items_.size();
      items_.push_back({span.begin, span.end - span.begin, lane.rank, kPhases, phases_.size() - 1,
                        [](const Writer& writer, const Item& item) { return writer.phase(item); }});
    }
  }

  std::string phase(const Item& item) const {
    const PhaseOf& phase = phases_[item.index];
    const std::string batch = phase.op.micro_batch >= 0 ? fmt::format(" {}", phase.op.micro_batch) : "";
    return complete(item, as_json_text(fmt::format("{}{}", name(phase.op.phase), batch)), "phase",
                    trace_colour(phase.op.phase),
                    fmt::format(R"("step":{},"epoch":{},"micro_batch":{},"launches":{})", phase.op.step, phase.op.epoch,
                                phase.op.micro_batch, phase.launches));
  }

  // ---- instants
  void gather_marks() {
    for (const Timeline::Mark& mark : timeline_.marks()) marks_.push_back(mark);
    for (const Recovery& recovery : run_.detection.recoveries) {
      const auto mark = [&](TimeNs at, const char* stage, const std::string& more) {
        if (at >= 0)
          marks_.push_back({at, -1, "recovery", fmt::format("recovery {}: {}{}", recovery.epoch, stage, more)});
      };
      mark(recovery.detected_ns, "detected", fmt::format(", {} in {}", name(recovery.error), describe(recovery.op)));
      mark(recovery.agreed_ns, "agreed", ", " + recovery.diagnosis.text);
      mark(recovery.rebuilt_ns, "rebuilt", "");
      mark(recovery.resumed_ns, "resumed", "");
    }
    for (std::size_t i = 0; i < marks_.size(); ++i) {
      items_.push_back({marks_[i].at, 0, std::max(marks_[i].rank, 0), kSteps, i,
                        [](const Writer& writer, const Item& item) { return writer.mark(item); }});
    }
  }

  std::string mark(const Item& item) const {
    const Timeline::Mark& mark = marks_[item.index];
    const bool of_world = mark.rank < 0;
    const bool bad = std::string_view(mark.what) != "recovery";
    const std::string title = mark.text.substr(0, mark.text.find('\n'));
    const std::string all = title == mark.text ? "" : R"("text":)" + as_json_text(mark.text);
    return fmt::format(
        R"({{"ph":"i","name":{},"cat":"{}","ts":{},"pid":{},"tid":{},"s":"{}","cname":"{}","args":{{{}}}}})",
        as_json_text(title), mark.what, in_microseconds(mark.at), item.pid, item.tid, of_world ? 'g' : 'p',
        bad ? "terrible" : "good", all);
  }

  // ---- faults, recoveries and what was left out: a process of its own
  void gather_story() {
    for (std::size_t i = 0; i < story_.spans.size(); ++i) {
      const StorySpan& span = story_.spans[i];
      items_.push_back({span.begin, span.end - span.begin, timeline_.ranks(), span.track, i,
                        [](const Writer& writer, const Item& item) {
                          const StorySpan& told = writer.story_.spans[item.index];
                          return complete(item, as_json_text(told.name), told.category, told.colour, told.args);
                        }});
    }
  }

  // ---- messages between two ranks
  // By lane, sorted: where its spans are. An end of an arrow belongs into one.
  std::vector<std::vector<std::pair<TimeNs, TimeNs>>> places_of_spans() const {
    std::vector<std::vector<std::pair<TimeNs, TimeNs>>> places(timeline_.lanes().size());
    if (timeline_.arrows().empty()) return places;
    for (const Timeline::Span& span : timeline_.spans()) places[span.lane].emplace_back(span.begin, span.end);
    for (auto& spans : places) std::sort(spans.begin(), spans.end());
    return places;
  }

  static bool inside(const std::vector<std::pair<TimeNs, TimeNs>>& spans, TimeNs at) {
    const auto after = std::upper_bound(spans.begin(), spans.end(), std::pair(at, runtime::kForever));
    return after != spans.begin() && (at < std::prev(after)->second || at == std::prev(after)->first);
  }

  void gather_arrows() {
    const auto places = places_of_spans();
    for (std::size_t i = 0; i < timeline_.arrows().size(); ++i) {
      const Timeline::Arrow& arrow = timeline_.arrows()[i];
      const TimeNs middle = arrow.sent + (arrow.received - arrow.sent) / 2;
      if (!inside(places[arrow.from], arrow.sent) || !inside(places[arrow.to], middle)) continue;
      const auto end = [&](std::uint32_t lane, TimeNs at, auto text) {
        items_.push_back({at, 0, timeline_.lanes()[lane].rank, tids_[lane], i, text});
      };
      end(
          arrow.from, arrow.sent,
          +[](const Writer& writer, const Item& item) { return writer.arrow(item, R"("ph":"s")"); });
      // Inside what received it, whose end is outside for some viewers.
      end(
          arrow.to, middle,
          +[](const Writer& writer, const Item& item) { return writer.arrow(item, R"("ph":"f","bp":"e")"); });
    }
  }

  std::string arrow(const Item& item, const char* end) const {
    return fmt::format(R"({{{},"name":"message","cat":"message","id":{},"ts":{},"pid":{},"tid":{}}})", end, item.index,
                       in_microseconds(item.at), item.pid, item.tid);
  }

  // ---- numbers over time: memory by tag, bytes of communication under way, what stands in a queue
  void gather_counters() {
    for (const Timeline::Memory& memory : timeline_.memory()) {
      for (std::size_t tag = 0; tag < memory.bytes.size(); ++tag) uses_tag_[tag] |= memory.bytes[tag] > 0;
    }
    for (std::size_t i = 0; i < timeline_.memory().size(); ++i)
      items_.push_back({timeline_.memory()[i].at, 0, timeline_.memory()[i].rank, kSteps, i,
                        [](const Writer& writer, const Item& item) { return writer.memory(item); }});
    for (std::size_t i = 0; i < timeline_.depths().size(); ++i) {
      const Timeline::Depth& depth = timeline_.depths()[i];
      items_.push_back({depth.at, 0, timeline_.lanes()[depth.lane].rank, kSteps, i,
                        [](const Writer& writer, const Item& item) { return writer.depth(item); }});
    }
    gather_traffic();
    for (std::size_t i = 0; i < traffic_.size(); ++i)
      items_.push_back({traffic_[i].at, 0, traffic_[i].rank, kSteps, i,
                        [](const Writer& writer, const Item& item) { return writer.traffic(item); }});
  }

  // Bytes of the operations that have begun and not ended, at each moment at which they change.
  void gather_traffic() {
    std::map<std::pair<int, TimeNs>, std::int64_t> changes;  // by rank and time
    for (const Timeline::Span& span : timeline_.spans()) {
      const bool travels = runtime::is_collective(span.op.kind) || span.op.peer >= 0;
      if (span.why != Blocked::no || !travels || span.op.bytes == 0) continue;
      const int rank = timeline_.lanes()[span.lane].rank;
      changes[{rank, span.begin}] += std::int64_t(span.op.bytes);
      changes[{rank, span.end}] -= std::int64_t(span.op.bytes);
    }
    std::int64_t bytes = 0;  // each rank's changes sum to zero
    for (const auto& [place, change] : changes) {
      bytes += change;
      if (change != 0) traffic_.push_back({place.second, place.first, bytes});
    }
  }

  static std::string counter(const Item& item, const std::string& name, const std::string& values) {
    return fmt::format(R"({{"ph":"C","name":{},"ts":{},"pid":{},"tid":{},"args":{{{}}}}})", as_json_text(name),
                       in_microseconds(item.at), item.pid, item.tid, values);
  }

  std::string memory(const Item& item) const {
    const Timeline::Memory& memory = timeline_.memory()[item.index];
    std::string values;
    for (std::size_t tag = 0; tag < memory.bytes.size(); ++tag) {
      if (uses_tag_[tag])
        values +=
            fmt::format("{}\"{}\":{}", values.empty() ? "" : ",", name(runtime::MemoryTag(tag)), memory.bytes[tag]);
    }
    return counter(item, "memory, bytes", values);
  }

  std::string depth(const Item& item) const {
    const Timeline::Depth& depth = timeline_.depths()[item.index];
    return counter(item, timeline_.lanes()[depth.lane].name + ", depth", fmt::format("\"items\":{}", depth.depth));
  }

  std::string traffic(const Item& item) const {
    return counter(item, "in flight, bytes", fmt::format("\"bytes\":{}", traffic_[item.index].bytes));
  }

  const Timeline& timeline_;
  const Scenario& scenario_;
  const RunRecord& run_;
  struct Traffic {
    TimeNs at;
    int rank;
    std::int64_t bytes;
  };
  std::vector<Traffic> traffic_;
  std::array<bool, std::size_t(runtime::MemoryTag::count_)> uses_tag_{};  // on some rank
  std::vector<int> tids_;                                                 // by lane
  std::vector<Item> items_;
  const StoryTracks story_;
  std::vector<PhaseOf> phases_;
  std::vector<Timeline::Mark> marks_;
  std::string out_;
  std::size_t lines_ = 0;
};

}  // namespace

std::string chrome_trace(const Timeline& timeline, const Scenario& scenario, const RunRecord& run) {
  return Writer(timeline, scenario, run).text();
}

std::string trace_summary(const Timeline& timeline, const std::string& file) {
  std::string left_out;
  if (timeline.forgotten() > 0) {
    for (const Timeline::LeftOut& one : timeline.left_out())
      left_out += (left_out.empty() ? "; left out: " : ", ") + stretch_in_words(one);
    if (left_out.size() > 120) left_out = left_out.substr(0, left_out.rfind(',', 110)) + ", ..";
    left_out = fmt::format(" (of {}{})", timeline.forgotten() + timeline.spans().size(), left_out);
  }
  return fmt::format("  trace     {}: {} spans of {} ranks{}. ui.perfetto.dev or chrome://tracing opens it\n", file,
                     timeline.spans().size(), timeline.ranks(), left_out);
}

}  // namespace seeksim::harness
