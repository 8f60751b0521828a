#include "harness/analyse/logs.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace seeksim::harness {
namespace {

// The first timeout of a rank in a group: later ones wait behind it.
struct Wait {
  std::int64_t number = -1;
  std::string operation, elements;
  auto operator<=>(const Wait&) const = default;
};

std::vector<int> keys(const std::map<int, Wait>& waits) {
  std::vector<int> ranks;
  for (const auto& [rank, wait] : waits) ranks.push_back(rank);
  return ranks;
}

std::string text_of(const Wait& w) {
  std::string text = w.operation.empty() ? "an operation" : w.operation;
  if (w.number >= 0) text += fmt::format(" #{}", w.number);
  if (!w.elements.empty() && w.elements.size() < 15) text += fmt::format(" of {} elements", w.elements);
  return text;
}

std::string group_text(const std::string& group) {
  if (group.empty()) return "";
  return group.find("default_pg") != std::string::npos ? " of the default group" : fmt::format(" of group {}", group);
}

// What more than half of all ranks say, those of whom nothing is known counted against it.
template <class Value>
const Value* majority(const std::map<Value, std::vector<int>>& camps, std::size_t unseen) {
  const Value* best = nullptr;
  std::size_t most = 0, second = 0;
  for (const auto& [value, ranks] : camps) {
    if (ranks.size() > most) {
      second = most, most = ranks.size(), best = &value;
    } else {
      second = std::max(second, ranks.size());
    }
  }
  return most > second + unseen ? best : nullptr;
}

class LogJudge {
 public:
  explicit LogJudge(const LogFacts& facts) : f_(facts) {}

  Story run() {
    collect();
    if (!by_fingerprint() && !by_absence() && !by_error() && !by_waits() && !by_transport()) by_nothing();
    tell_waits();
    tell_followers();
    tell_next();
    fill_details();
    return std::move(story_);
  }

 private:
  // Which group a watchdog's line is of stands in the status line of the same rank and number.
  void collect() {
    std::map<std::pair<int, std::int64_t>, std::set<std::string>> statuses;
    for (const WorkReport& w : f_.works) {
      if (!w.timed_out && !w.group.empty()) statuses[{w.rank, w.number}].insert(w.group);
    }
    for (const WorkReport& w : f_.works) {
      if (!w.timed_out || w.rank < 0) continue;
      std::string group = w.group;
      if (const auto s = statuses.find({w.rank, w.number});
          group.empty() && s != statuses.end() && s->second.size() == 1)
        group = *s->second.begin();
      const Wait wait{w.number, w.operation, w.elements};
      const auto [at, is_new] = waits_[group].emplace(w.rank, wait);
      if (!is_new && wait.number >= 0 && wait.number < at->second.number) at->second = wait;
    }
  }

  // Operation and shape, by PyTorch's own check of collectives.
  std::map<int, std::pair<std::string, std::string>> brought_by_rank() const {
    std::map<int, std::pair<std::string, std::string>> brought;
    for (const FingerprintReport& r : f_.fingerprints) {
      auto& b = brought[r.rank];
      if (b.first.empty() || b.second.empty()) b = {r.operation, r.shape};
    }
    return brought;
  }

  bool by_fingerprint() {
    if (f_.fingerprints.empty()) return false;
    const auto brought = brought_by_rank();
    std::map<std::string, std::vector<int>> operations;
    std::map<std::pair<std::string, std::string>, std::vector<int>> shapes;
    for (const auto& [rank, b] : brought) {
      operations[b.first].push_back(rank);
      shapes[b].push_back(rank);
    }
    std::string said;
    for (const auto& [b, ranks] : shapes)
      said += fmt::format("{}{} brought {} {}", said.empty() ? "" : ", ", ranks_text(ranks), b.first, b.second);
    story_.certain.push_back(said + ": PyTorch's own check says it.");
    const std::size_t unseen = f_.world > int(brought.size()) ? std::size_t(f_.world) - brought.size() : 0;
    story_.kind = HangKind::cannot_be_known;
    story_.headline = "Ranks brought different operations, sizes or types, and the log does not say which is right.";
    if (operations.size() > 1) {
      if (const auto* most = majority(operations, unseen))
        accuse(HangKind::other_operation, operations, *most, "another operation");
    } else if (const auto* most = majority(shapes, unseen)) {
      accuse(HangKind::other_size, shapes, *most, "another size");
    }
    return true;
  }
  template <class Camps, class Value>
  void accuse(HangKind kind, const Camps& camps, const Value& most, const char* what) {
    std::set<int> odd;
    for (const auto& [value, ranks] : camps) {
      if (value != most) odd.insert(ranks.begin(), ranks.end());
    }
    if (odd.empty()) return;
    story_.kind = kind;
    story_.accused.assign(odd.begin(), odd.end());
    story_.headline = fmt::format("{} brought {} than the others.", capitalized(ranks_text(story_.accused)), what);
  }

  bool by_absence() {
    std::set<int> ranks;
    for (const AbsenceReport& a : f_.absences) {
      ranks.insert(a.ranks.begin(), a.ranks.end());
      if (story_.certain.size() < 3) story_.certain.push_back(a.text);
    }
    if (ranks.empty()) return false;
    story_.kind = HangKind::never_came;
    story_.accused.assign(ranks.begin(), ranks.end());
    story_.headline = fmt::format("{} never came: other ranks say so.", capitalized(ranks_text(story_.accused)));
    tell_causes();
    return true;
  }

  // The same error on every rank is no rank's own.
  bool by_error() {
    std::map<std::string, std::set<int>> by_text;
    std::vector<const ErrorReport*> causes;
    for (const ErrorReport& e : f_.errors) {
      if (e.follows || e.transport) continue;
      causes.push_back(&e);
      by_text[kind_of(e.text)].insert(e.rank);
    }
    if (causes.empty()) return false;
    story_.kind = HangKind::first_error;
    const ErrorReport& first = *causes[0];
    std::set<int> ranks;
    for (const ErrorReport* e : causes) ranks.insert(e->rank);
    const auto& same = by_text.at(kind_of(first.text));
    const std::size_t everyone = f_.world > 0 ? std::size_t(f_.world) : f_.speaks.size();
    if (first.rank < 0) {
      story_.headline = "An error that is no timeout stands in the log, without its rank.";
    } else if (same.size() > 1 && same.size() >= everyone) {
      story_.headline = fmt::format("All {} ranks fail with the same error: it is no single rank's.", same.size());
    } else if (ranks.size() == 1) {
      story_.accused = {first.rank};
      story_.headline =
          fmt::format("Rank {} failed by itself; timeouts and closed connections follow from it.", first.rank);
    } else {
      story_.accused.assign(ranks.begin(), ranks.end());
      std::erase(story_.accused, -1);
      story_.headline = fmt::format("{} failed by themselves; timeouts and closed connections follow.",
                                    capitalized(ranks_text(story_.accused)));
      story_.unknown.push_back("which of them was first: lines of several ranks are not in the order of time.");
    }
    tell_causes();
    return true;
  }
  void tell_causes() {
    std::set<std::string> told;
    for (const ErrorReport& e : f_.errors) {
      if (e.follows || e.transport || told.size() >= 4) continue;
      const std::string text =
          fmt::format("{}: {}", e.rank < 0 ? "no rank named" : fmt::format("rank {}", e.rank), e.text);
      if (told.insert(text).second) story_.certain.push_back(fmt::format("{} (line {}).", text, e.line));
    }
  }
  // Without the numbers in it: addresses and sizes differ from rank to rank.
  static std::string kind_of(const std::string& text) {
    std::string kind;
    for (const char c : text.substr(0, 60)) {
      if (std::isdigit(static_cast<unsigned char>(c)) == 0) kind += c;
    }
    return kind;
  }

  bool by_waits() {
    if (waits_.empty()) return false;
    for (const auto& [group, waits] : waits_) {
      if (!group.empty() && (lagging(group, waits) || odd_one(group, waits))) return true;
    }
    const auto& [group, waits] = *std::max_element(
        waits_.begin(), waits_.end(), [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
    std::set<Wait> kinds;
    for (const auto& [rank, wait] : waits) kinds.insert(wait);
    const std::vector<int> silent = silent_ranks(waits);
    story_.kind = HangKind::cannot_be_known;
    if (waits_.size() > 1) {
      story_.headline =
          fmt::format("Ranks wait in {} groups, and in each of them in the same operation.", waits_.size());
    } else if (kinds.size() > 1) {
      story_.headline = "Ranks wait in different operations, and the log does not say that these are of one group.";
      story_.unknown.push_back("whether their numbers can be compared: each group counts by itself.");
    } else if (!silent.empty()) {
      story_.headline = fmt::format("{} {} in {}; of {} the log says nothing.", capitalized(ranks_text(keys(waits))),
                                    waits.size() == 1 ? "waits" : "wait", text_of(*kinds.begin()), ranks_text(silent));
      story_.likely.push_back(fmt::format("{} did not come, or its output is not in this log.", ranks_text(silent)));
    } else if (waits.size() == 1) {
      story_.headline = fmt::format("Rank {} waits in {}; no other rank reports a timeout.", waits.begin()->first,
                                    text_of(*kinds.begin()));
    } else {
      story_.kind = HangKind::all_came;
      story_.headline =
          fmt::format("All {} ranks that speak wait in the same {}.", waits.size(), text_of(*kinds.begin()));
      story_.likely.push_back("the transport, a device, or a rank of which this log has no line.");
      if (f_.world == 0) story_.unknown.push_back("how many ranks the job has: no line says it.");
    }
    return true;
  }

  std::vector<int> silent_ranks(const std::map<int, Wait>& waits) const {
    std::vector<int> silent;
    for (int rank = 0; rank < f_.world && silent.size() < 4096; ++rank) {
      if (!waits.contains(rank)) silent.push_back(rank);
    }
    return silent;
  }

  // Ranks whose own status says that they have not begun what others of the group wait in.
  bool lagging(const std::string& group, const std::map<int, Wait>& waits) {
    std::int64_t most = -1;
    for (const auto& [rank, wait] : waits) most = std::max(most, wait.number);
    std::set<int> behind;
    for (const WorkReport& w : f_.works) {
      if (w.timed_out || w.group != group || w.rank < 0 || waits.contains(w.rank)) continue;
      if (w.enqueued >= 0 && w.enqueued < most && w.completed == w.enqueued) behind.insert(w.rank);
    }
    if (behind.empty()) return false;
    story_.kind = HangKind::never_came;
    story_.accused.assign(behind.begin(), behind.end());
    story_.headline =
        fmt::format("{} never came to #{}{}.", capitalized(ranks_text(story_.accused)), most, group_text(group));
    story_.certain.push_back(fmt::format("{}'s own status says that the last that it enqueued came before #{}.",
                                         ranks_text(story_.accused), most));
    return true;
  }

  // Ranks of one group that wait in different things.
  bool odd_one(const std::string& group, const std::map<int, Wait>& waits) {
    std::map<Wait, std::vector<int>> camps;
    for (const auto& [rank, wait] : waits) camps[wait].push_back(rank);
    if (camps.size() < 2) return false;
    const std::size_t unseen = f_.world > int(waits.size()) ? std::size_t(f_.world) - waits.size() : 0;
    const Wait* most = majority(camps, unseen);
    std::string said;
    for (const auto& [wait, ranks] : camps)
      said += fmt::format("{}{} in {}", said.empty() ? "" : ", ", ranks_text(ranks), text_of(wait));
    story_.certain.push_back(fmt::format("timeouts{}: {}.", group_text(group), said));
    if (most == nullptr) {
      story_.kind = HangKind::cannot_be_known;
      story_.headline =
          fmt::format("Ranks wait in different operations{}, and no side has the majority.", group_text(group));
      return true;
    }
    std::set<int> odd;
    HangKind kind = HangKind::other_size;
    for (const auto& [wait, ranks] : camps) {
      if (wait == *most) continue;
      odd.insert(ranks.begin(), ranks.end());
      if (wait.number != most->number) {
        kind = HangKind::shifted;
      } else if (wait.operation != most->operation && kind != HangKind::shifted) {
        kind = HangKind::other_operation;
      }
    }
    story_.kind = kind;
    story_.accused.assign(odd.begin(), odd.end());
    story_.headline = fmt::format("{} {} somewhere else than the others{}.", capitalized(ranks_text(story_.accused)),
                                  odd.size() == 1 ? "waits" : "wait", group_text(group));
    return true;
  }

  bool by_transport() {
    for (const ErrorReport& e : f_.errors) {
      if (!e.transport) continue;
      story_.kind = HangKind::first_error;
      story_.headline = "NCCL reports an error of the network; no rank's script is behind it.";
      story_.certain.push_back(fmt::format("NCCL says: {} (line {}).", e.text, e.line));
      return true;
    }
    return false;
  }

  void by_nothing() {
    if (f_.errors.empty()) {
      story_.kind = HangKind::nothing_stuck;
      story_.headline = fmt::format("No sign of a hang in {} lines.", f_.lines);
      return;
    }
    story_.kind = HangKind::cannot_be_known;
    story_.headline = "Only what follows from a failure is in the log: closed connections, aborts, timeouts.";
    story_.unknown.push_back("the first failure: its rank's output is not in this log, or it left none.");
  }

  void tell_waits() {
    for (const auto& [group, waits] : waits_) {
      std::map<Wait, std::vector<int>> camps;
      for (const auto& [rank, wait] : waits) camps[wait].push_back(rank);
      for (const auto& [wait, ranks] : camps)
        story_.certain.push_back(
            fmt::format("{} timed out in {}{}.", ranks_text(ranks), text_of(wait), group_text(group)));
    }
    if (waits_.size() > 1) story_.unknown.push_back("numbers of different groups are not compared.");
    if (story_.kind != HangKind::first_error || waits_.empty()) {
      for (const ErrorReport& e : f_.errors) {
        if (!e.transport || story_.kind == HangKind::first_error) continue;
        story_.likely.push_back(fmt::format("the network: NCCL says {} (line {}).", e.text, e.line));
        break;
      }
    }
  }

  void tell_followers() {
    std::set<int> ranks;
    for (const ErrorReport& e : f_.errors) {
      if (e.follows && e.rank >= 0) ranks.insert(e.rank);
    }
    if (!ranks.empty())
      story_.certain.push_back(fmt::format("what {} reported only follows: closed connections, aborts, timeouts.",
                                           ranks_text({ranks.begin(), ranks.end()})));
  }

  void tell_next() {
    if (story_.kind == HangKind::nothing_stuck) return;
    const auto add = [&](const char* text) {
      if (story_.next.size() < 3) story_.next.emplace_back(text);
    };
    if (!f_.recorder)
      add("TORCH_FR_BUFFER_SIZE=2000 (older releases: TORCH_NCCL_TRACE_BUFFER_SIZE) with "
          "TORCH_NCCL_DUMP_ON_TIMEOUT=1: dumps that seeksim analyse reads.");
    if (!f_.debug_detail)
      add("TORCH_DISTRIBUTED_DEBUG=DETAIL: operation, size and type are checked before each collective.");
    if (!f_.nccl_info) add("NCCL_DEBUG=INFO: ranks, devices and the network that NCCL uses.");
    add("one file a rank: torchrun --redirects 3 --log-dir DIR, srun --output=%t.log.");
  }

  void fill_details() {
    Tree& d = story_.details;
    d["lines"] = f_.lines;
    d["world"] = f_.world;
    d["speaks"] = Tree::array();
    for (const auto& [rank, lines] : f_.speaks) {
      if (rank >= 0) d["speaks"].push_back(rank);
    }
    d["waiting"] = Tree::array();
    for (const auto& [group, waits] : waits_) {
      for (const auto& [rank, wait] : waits)
        d["waiting"].push_back({{"rank", rank},
                                {"group", group},
                                {"operation", wait.operation},
                                {"number", wait.number},
                                {"sizes", wait.elements}});
    }
    d["brought"] = Tree::array();
    for (const auto& [rank, b] : brought_by_rank())
      d["brought"].push_back({{"rank", rank}, {"operation", b.first}, {"sizes", b.second}});
  }

  const LogFacts& f_;
  std::map<std::string, std::map<int, Wait>> waits_;  // by group; "": the log does not say
  Story story_;
};

}  // namespace

Story judge_logs(const LogFacts& facts) { return LogJudge(facts).run(); }

}  // namespace seeksim::harness
