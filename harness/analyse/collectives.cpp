#include "harness/analyse/collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace seeksim::harness {
namespace {

using Numbers = std::map<std::int64_t, Brought>;

// Operations to which all ranks bring the same size. Others may be uneven, or differ at the root.
bool same_size_everywhere(const std::string& operation) {
  static const std::set<std::string> kSame = {"all_reduce",
                                              "allreduce",
                                              "reduce",
                                              "broadcast",
                                              "all_reduce_coalesced",
                                              "allreduce_coalesced",
                                              "_all_gather_base",
                                              "_allgather_base",
                                              "all_gather_into_tensor",
                                              "_reduce_scatter_base",
                                              "reduce_scatter_tensor"};
  return kSame.contains(operation);
}
// Operations that cannot end on any rank before all have come.
bool needs_everyone(const std::string& operation) {
  return operation.starts_with("all_") || operation.starts_with("allreduce") || operation.starts_with("barrier") ||
         operation.starts_with("_all") || operation.find("reduce_scatter") != std::string::npos;
}

std::string signature(const Brought& b) {
  return same_size_everywhere(b.operation) ? b.operation + '\n' + b.sizes + '\n' + b.types : b.operation;
}

// Ranks by what they brought.
using Camps = std::map<std::string, std::vector<int>>;
template <class Key>
Camps camps_of(const std::map<int, const Brought*>& here, Key key) {
  Camps camps;
  for (const auto& [rank, brought] : here) camps[key(*brought)].push_back(rank);
  return camps;
}

// The camp that most members are in, however those decided of whom nothing is known; empty: there is none.
std::string majority_state(const Camps& camps, std::size_t unseen) {
  std::string best;
  std::size_t most = 0, second = 0;
  for (const auto& [key, ranks] : camps) {
    if (ranks.size() > most) {
      second = most, most = ranks.size(), best = key;
    } else {
      second = std::max(second, ranks.size());
    }
  }
  return most > second + unseen ? best : "";
}

std::vector<std::string> signatures_from(const Numbers& numbers, std::int64_t from) {
  std::vector<std::string> out;
  for (auto at = numbers.lower_bound(from); at != numbers.end() && out.size() < 64; ++at)
    out.push_back(signature(at->second));
  return out;
}

// Whether `a`, less its first `by`, goes on as `b` does, for at least two operations.
bool goes_on_as(const std::vector<std::string>& a, const std::vector<std::string>& b, std::size_t by) {
  if (a.size() < by + 2 || b.size() < 2) return false;
  const std::size_t n = std::min(a.size() - by, b.size());
  // One operation again and again looks shifted by any number.
  if (std::all_of(b.begin(), b.begin() + std::ptrdiff_t(n), [&](const std::string& s) { return s == b[0]; }))
    return false;
  return std::equal(a.begin() + std::ptrdiff_t(by), a.begin() + std::ptrdiff_t(by + n), b.begin());
}

// How many operations more (or, below zero, less) a rank has done from a number on; 0: it is not that.
int shift_of(const Numbers& odd, const Numbers& most, std::int64_t number) {
  const auto a = signatures_from(odd, number), b = signatures_from(most, number);
  for (int by = 1; by <= 3; ++by) {
    if (goes_on_as(a, b, std::size_t(by))) return by;
    if (goes_on_as(b, a, std::size_t(by))) return -by;
  }
  return 0;
}

std::string shown(const Brought& b, HangKind kind, std::int64_t number) {
  std::string text = fmt::format("{} #{}", b.operation, number);
  if (kind == HangKind::other_size && !b.sizes.empty()) text += " of " + b.sizes;
  if (kind == HangKind::other_type && !b.types.empty()) text += " of " + b.types;
  return text;
}

class Finder {
 public:
  Finder(const JobView& job, int group) : job_(job), group_(job.groups[std::size_t(group)]), index_(group) {}

  std::optional<Trouble> find() {
    std::set<std::int64_t> numbers;
    std::int64_t from = 0;  // older ones have fallen out of somebody's ring
    for (const auto& [rank, brought] : group_.by_rank) {
      if (brought.empty()) continue;
      const Dump* dump = job_.dump_of(rank);
      if (dump != nullptr && !dump->whole) from = std::max(from, brought.begin()->first);
      for (const auto& [number, b] : brought) numbers.insert(number);
    }
    for (const std::int64_t number : numbers) {
      if (number < from) continue;
      if (auto trouble = at(number)) return trouble;
    }
    return std::nullopt;
  }

 private:
  std::optional<Trouble> at(std::int64_t number) {
    Trouble t;
    t.group = index_;
    t.number = number;
    std::map<int, const Brought*> here;
    for (const int rank : group_.members) {
      const auto numbers = group_.by_rank.find(rank);
      const Brought* brought = nullptr;
      if (numbers != group_.by_rank.end()) {
        if (const auto found = numbers->second.find(number); found != numbers->second.end()) brought = &found->second;
      }
      if (brought != nullptr) {
        here[rank] = brought;
        (brought->over ? t.through : t.waiting).push_back(rank);
      } else if (job_.dump_of(rank) == nullptr) {
        t.no_dump.push_back(rank);
      } else if (numbers == group_.by_rank.end() || numbers->second.empty() ||
                 numbers->second.rbegin()->first < number) {
        t.absent.push_back(rank);
      }
    }
    const Camps operations = camps_of(here, [](const Brought& b) { return b.operation; });
    t.operation = biggest(operations);
    if (mismatch(t, here)) return t;
    if (t.waiting.empty() && t.absent.empty()) return std::nullopt;
    if (t.waiting.empty()) {
      if (!needs_everyone(t.operation)) return std::nullopt;
      t.ended_by_error = true;
    }
    t.kind = !t.absent.empty() ? HangKind::never_came : !t.no_dump.empty() ? HangKind::no_dump : HangKind::all_came;
    return t;
  }

  static std::string biggest(const Camps& camps) {
    std::string best;
    std::size_t most = 0;
    for (const auto& [key, ranks] : camps) {
      if (ranks.size() > most) most = ranks.size(), best = key;
    }
    return best;
  }

  bool mismatch(Trouble& t, const std::map<int, const Brought*>& here) {
    const Camps camps = camps_of(here, signature);
    if (camps.size() < 2) return false;
    if (camps_of(here, [](const Brought& b) { return b.operation; }).size() > 1) {
      t.kind = HangKind::other_operation;
    } else if (camps_of(here, [](const Brought& b) { return b.sizes; }).size() > 1) {
      t.kind = HangKind::other_size;
    } else {
      t.kind = HangKind::other_type;
    }
    const std::string most = majority_state(camps, t.absent.size() + t.no_dump.size());
    std::string sides;
    for (const auto& [key, ranks] : camps) {
      sides += fmt::format("{}{} brought {}", sides.empty() ? "" : ", ", ranks_text(ranks),
                           shown(*here.at(ranks[0]), t.kind, t.number));
    }
    t.said = sides;
    if (most.empty()) {
      t.kind = HangKind::cannot_be_known;
      return true;
    }
    for (const auto& [key, ranks] : camps) {
      if (key != most) t.odd.insert(t.odd.end(), ranks.begin(), ranks.end());
    }
    std::sort(t.odd.begin(), t.odd.end());
    t.said = fmt::format("{}, and {} brought {}", side_of(camps, here, t, most, false), ranks_text(camps.at(most)),
                         shown(*here.at(camps.at(most)[0]), t.kind, t.number));
    look_for_shift(t, camps.at(most)[0]);
    return true;
  }

  static std::string side_of(const Camps& camps, const std::map<int, const Brought*>& here, const Trouble& t,
                             const std::string& most, bool with_most) {
    std::string text;
    for (const auto& [key, ranks] : camps) {
      if ((key == most) != with_most) continue;
      text += fmt::format("{}{} brought {}", text.empty() ? "" : ", ", ranks_text(ranks),
                          shown(*here.at(ranks[0]), t.kind, t.number));
    }
    return text;
  }

  void look_for_shift(Trouble& t, int of_most) {
    if (t.kind == HangKind::other_type || t.odd.empty()) return;
    int by = 0;
    for (const int rank : t.odd) {
      const int mine = shift_of(group_.by_rank.at(rank), group_.by_rank.at(of_most), t.number);
      if (mine == 0 || (by != 0 && mine != by)) return;
      by = mine;
    }
    t.kind = HangKind::shifted;
    static constexpr const char* kCounts[] = {"", "one operation", "two operations", "three operations"};
    t.said = fmt::format("from #{} on, {} did {} {} than the others, which then follow under other numbers: {}",
                         t.number, ranks_text(t.odd), kCounts[std::abs(by)], by > 0 ? "more" : "less", t.said);
  }

  const JobView& job_;
  const GroupView& group_;
  int index_;
};

}  // namespace

std::optional<Trouble> first_trouble(const JobView& job, int group) { return Finder(job, group).find(); }

}  // namespace seeksim::harness
