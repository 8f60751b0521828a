#include "harness/analyse/hang.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "harness/analyse/collectives.h"
#include "harness/analyse/groups.h"
#include "harness/analyse/late.h"
#include "harness/analyse/sends.h"
#include "harness/input/problem.h"

namespace seeksim::harness {
namespace {

bool is_mismatch(HangKind kind) {
  return kind == HangKind::other_operation || kind == HangKind::other_size || kind == HangKind::other_type ||
         kind == HangKind::shifted || kind == HangKind::cannot_be_known;
}

std::string what_of(const DumpEntry& e) { return e.p2p ? e.operation : fmt::format("{} #{}", e.operation, e.number); }

class Judge {
 public:
  explicit Judge(JobView job) : job_(std::move(job)) {}

  Story run() {
    for (std::size_t g = 0; g < job_.groups.size(); ++g) {
      if (auto trouble = first_trouble(job_, int(g))) troubles_.push_back(*trouble);
    }
    parts_ = lone_parts(job_);
    draw_edges();
    if (!by_mismatch() && !by_cycle() && !by_partner() && !by_absence() && !by_no_dump()) all_came();
    tell_waiting();
    tell_dumps();
    tell_next();
    fill_details();
    return std::move(story_);
  }

 private:
  const GroupView& group(const Trouble& t) const { return job_.groups[std::size_t(t.group)]; }
  std::string place(const Trouble& t) const {
    return fmt::format("{} #{} of {}", t.operation, t.number, group(t).title());
  }

  // Who waits for whom: for ranks whose dumps show that they have not come.
  void draw_edges() {
    for (const Trouble& t : troubles_) {
      if (t.kind != HangKind::never_came || t.ended_by_error) continue;
      for (const int rank : t.waiting) {
        const Standing& s = job_.stuck.at(rank);
        if (s.entry.p2p || s.group != t.group || s.entry.number != t.number) continue;
        edges_[rank].insert(t.absent.begin(), t.absent.end());
      }
    }
    for (const LonePart& part : parts_) {
      if (part.known && !part.partner_came) edges_[part.rank].insert(part.partner);
    }
  }

  bool by_mismatch() {
    for (const Trouble& t : troubles_) {
      if (!is_mismatch(t.kind)) continue;
      story_.kind = t.kind;
      story_.accused = t.odd;
      if (t.kind == HangKind::cannot_be_known) {
        story_.headline =
            fmt::format("Ranks disagree at #{} of {}, and no side has the majority.", t.number, group(t).title());
        story_.certain.push_back(t.said + ".");
        story_.unknown.push_back("which of them is right: the script says which operation belongs there.");
      } else {
        const char* what = t.kind == HangKind::other_operation ? "brought another operation to"
                           : t.kind == HangKind::other_size    ? "brought another size to"
                           : t.kind == HangKind::other_type    ? "brought another type to"
                                                               : "out of step with the others from";
        story_.headline = fmt::format("{} {}{} #{} of {}.", capitalized(ranks_text(t.odd)),
                                      t.kind == HangKind::shifted ? (t.odd.size() == 1 ? "is " : "are ") : "", what,
                                      t.number, group(t).title());
        story_.certain.push_back(t.said + ".");
        for (const int rank : t.odd) tell_frame(rank, t);
        story_.unknown.push_back(
            "why: a branch, a loop or a size that depends on the rank's own data is the usual one.");
      }
      return true;
    }
    return false;
  }

  void tell_frame(int rank, const Trouble& t) {
    const Brought& b = group(t).by_rank.at(rank).at(t.number);
    if (!b.frame.empty()) story_.certain.push_back(fmt::format("rank {} called {} at {}.", rank, b.operation, b.frame));
  }

  // A way along the edges that leads back to where it began; empty: there is none.
  std::vector<int> find_cycle() const {
    std::set<int> done;
    for (const auto& [start, targets] : edges_) {
      std::vector<int> way;
      std::set<int> on_way;
      int at = start;
      // From a rank any edge to a rank that waits itself will do: a cycle is reached or the way ends.
      while (!done.contains(at) && on_way.insert(at).second) {
        way.push_back(at);
        const auto from = edges_.find(at);
        if (from == edges_.end()) break;
        int next = -1;
        for (const int target : from->second) {
          if (on_way.contains(target)) {
            next = target;
            break;
          }
          if (edges_.contains(target) && !done.contains(target)) next = target;
        }
        if (next < 0) break;
        if (on_way.contains(next)) return {std::find(way.begin(), way.end(), next), way.end()};
        at = next;
      }
      done.insert(way.begin(), way.end());
    }
    return {};
  }

  bool by_cycle() {
    const std::vector<int> cycle = find_cycle();
    if (cycle.empty()) return false;
    story_.kind = HangKind::cycle;
    story_.headline = "Ranks wait for each other in a cycle: they entered their operations in different orders.";
    for (const int rank : cycle) {
      const Standing& s = job_.stuck.at(rank);
      story_.certain.push_back(fmt::format("rank {} waits in {} of {} for {}.", rank, what_of(s.entry),
                                           job_.groups[std::size_t(s.group)].title(),
                                           ranks_text({edges_.at(rank).begin(), edges_.at(rank).end()})));
    }
    story_.unknown.push_back("which order was meant: the script says it. All ranks have to keep the same one.");
    return true;
  }

  bool by_partner() {
    for (const LonePart& part : parts_) {
      if (!part.known || part.partner_came) continue;
      if (job_.stuck.contains(part.partner) && edges_.contains(part.partner)) continue;  // it waits itself
      story_.kind = HangKind::no_partner;
      story_.headline = fmt::format("Rank {} waits in {}, which has not begun the other half.", part.rank, part.text);
      if (const auto s = job_.stuck.find(part.partner); s == job_.stuck.end()) {
        story_.accused = {part.partner};
        tell_last(part.partner);
      } else {
        story_.unknown.push_back(fmt::format("which half is wrong: rank {} stands in {} of {}.", part.partner,
                                             what_of(s->second.entry),
                                             job_.groups[std::size_t(s->second.group)].title()));
      }
      return true;
    }
    return false;
  }

  bool begins_with(const Trouble& t) const {
    return std::none_of(t.absent.begin(), t.absent.end(), [&](int rank) { return job_.stuck.contains(rank); });
  }

  // Ranks that others wait for, and that wait for nobody.
  bool by_absence() {
    std::set<int> accused;
    const Trouble* first = nullptr;
    for (const Trouble& t : troubles_) {
      if (t.kind != HangKind::never_came) continue;
      for (const int rank : t.absent) {
        if (job_.stuck.contains(rank)) continue;
        accused.insert(rank);
        // Where only those are missed who wait for nobody, it began.
        if (first == nullptr || (!begins_with(*first) && begins_with(t))) first = &t;
      }
    }
    if (first == nullptr) return false;
    story_.kind = HangKind::never_came;
    story_.accused.assign(accused.begin(), accused.end());
    std::vector<int> absent;
    for (const int rank : first->absent) {
      if (accused.contains(rank)) absent.push_back(rank);
    }
    story_.headline = fmt::format("{} never came to {}.", capitalized(ranks_text(absent)), place(*first));
    if (first->ended_by_error)
      story_.certain.push_back(fmt::format("{} of {} has ended without it, so by an error or a timeout.", place(*first),
                                           ranks_text(first->through)));
    for (const int rank : accused) tell_last(rank);
    story_.unknown.push_back(
        job_.gloo ? "where it stands now: gloo records no sends and receives, and the recorder no code of the script."
                  : "where it stands now: the recorder knows collectives, sends and receives, and no other code.");
    return true;
  }

  void tell_last(int rank) {
    const Dump* dump = job_.dump_of(rank);
    if (dump == nullptr || dump->entries.empty()) {
      story_.certain.push_back(fmt::format("the dump of rank {} has no operation at all.", rank));
      return;
    }
    const DumpEntry& e = dump->entries.back();
    const DumpGroup& in = dump->groups[std::size_t(e.group)];
    story_.certain.push_back(fmt::format("rank {} is in no recorded operation; its last, {} of {}, has ended{}.", rank,
                                         what_of(e), title_of(in.name, in.desc),
                                         e.frame.empty() ? "" : " (" + e.frame + ")"));
  }

  bool by_no_dump() {
    for (const Trouble& t : troubles_) {
      if (t.kind != HangKind::no_dump) continue;
      story_.kind = HangKind::no_dump;
      story_.headline = fmt::format("Every rank whose dump is here has come to {}; there is no dump of {}.", place(t),
                                    ranks_text(t.no_dump));
      story_.unknown.push_back(
          fmt::format("whether {} died, hangs elsewhere, or only was not collected.", ranks_text(t.no_dump)));
      return true;
    }
    for (const LonePart& part : parts_) {
      if (part.known) continue;
      story_.kind = job_.dump_of(part.partner) == nullptr ? HangKind::no_dump : HangKind::cannot_be_known;
      story_.headline =
          fmt::format("Rank {} waits in {}, and the dumps do not say whether that one came.", part.rank, part.text);
      return true;
    }
    return false;
  }

  void all_came() {
    for (const Trouble& t : troubles_) {
      if (t.kind != HangKind::all_came) continue;
      story_.kind = HangKind::all_came;
      story_.headline =
          fmt::format("All {} ranks have come to {}, and it does not end.", group(t).members.size(), place(t));
      if (!t.through.empty())
        story_.certain.push_back(
            fmt::format("it has ended on {}, not on {}.", ranks_text(t.through), ranks_text(t.waiting)));
      story_.likely.push_back("the transport or a device: all brought the same operation, size and type.");
      story_.unknown.push_back("which link or device: no dump says it.");
      return;
    }
    if (!job_.stuck.empty()) {
      story_.kind = HangKind::cannot_be_known;
      story_.headline = "Ranks wait, and the dumps do not say for whom.";
      return;
    }
    story_.kind = HangKind::nothing_stuck;
    story_.headline = fmt::format("Nothing is stuck in the dumps of {} ranks.", job_.dumps.size());
    if (const std::string late = latest_text(job_); !late.empty()) story_.certain.push_back(late);
    if (!job_.no_dump.empty())
      story_.unknown.push_back(fmt::format("what {} did: there is no dump of it.", ranks_text(job_.no_dump)));
  }

  // Those who wait, by what they wait in.
  void tell_waiting() {
    std::map<std::string, std::vector<int>> waiting;
    for (const auto& [rank, s] : job_.stuck) {
      std::string text = fmt::format("in {} of {}", what_of(s.entry), job_.groups[std::size_t(s.group)].title());
      if (!s.entry.sizes.empty() && s.entry.sizes != "[]") text += fmt::format(", {} {}", s.entry.sizes, s.entry.types);
      if (!s.entry.frame.empty()) text += ", " + s.entry.frame;
      waiting[text].push_back(rank);
    }
    for (const auto& [text, ranks] : waiting)
      story_.certain.push_back(fmt::format("{} {} {}.", ranks_text(ranks), ranks.size() == 1 ? "waits" : "wait", text));
    story_.details["waiting"] = Tree::array();
    for (const auto& [rank, s] : job_.stuck) {
      const DumpEntry& e = s.entry;
      story_.details["waiting"].push_back({{"rank", rank},
                                           {"group", job_.groups[std::size_t(s.group)].name},
                                           {"operation", e.operation},
                                           {"number", e.number},
                                           {"sizes", e.sizes},
                                           {"types", e.types},
                                           {"frame", e.frame}});
    }
  }

  void tell_dumps() {
    if (job_.no_dump.empty() || story_.kind == HangKind::nothing_stuck || story_.kind == HangKind::no_dump) return;
    story_.unknown.push_back(fmt::format("there is no dump of {}: dead, or not collected.", ranks_text(job_.no_dump)));
  }

  void tell_next() {
    if (story_.kind == HangKind::nothing_stuck) return;
    const bool frames =
        std::any_of(job_.stuck.begin(), job_.stuck.end(), [](const auto& s) { return !s.second.entry.frame.empty(); });
    if (!job_.no_dump.empty())
      story_.next.push_back(
          "TORCH_NCCL_DUMP_ON_TIMEOUT=1, with TORCH_FR_DUMP_TEMP_FILE on a disk that outlives the job.");
    if (!frames && !job_.stuck.empty())
      story_.next.push_back("dumps with stack traces say in which line of the script each rank stands.");
    if (!story_.accused.empty())
      story_.next.push_back(
          fmt::format("py-spy dump --pid PID on {} while it hangs: its Python stack.", ranks_text(story_.accused)));
    story_.next.push_back("TORCH_DISTRIBUTED_DEBUG=DETAIL checks operation, size and type before each collective.");
    if (story_.next.size() > 3) story_.next.resize(3);
  }

  void fill_details() {
    Tree& d = story_.details;
    d["dumps"] = job_.dumped();
    d["missing_dumps"] = job_.no_dump;
    d["version"] = job_.dumps.front().version;
    d["troubles"] = Tree::array();
    for (const Trouble& t : troubles_) {
      d["troubles"].push_back({{"kind", name(t.kind)},
                               {"group", group(t).name},
                               {"members", group(t).members},
                               {"number", t.number},
                               {"operation", t.operation},
                               {"waiting", t.waiting},
                               {"absent", t.absent},
                               {"odd", t.odd},
                               {"no_dump", t.no_dump}});
    }
  }

  JobView job_;
  std::vector<Trouble> troubles_;
  std::vector<LonePart> parts_;
  std::map<int, std::set<int>> edges_;
  Story story_;
};

}  // namespace

Story judge_dumps(std::vector<Dump> dumps) {
  if (dumps.empty()) throw BadInput("", "there is no dump of a flight recorder", "Name a folder with dumps.");
  return Judge(view_job(std::move(dumps))).run();
}

}  // namespace seeksim::harness
