#include "harness/analyse/late.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

namespace seeksim::harness {
namespace {

constexpr std::int64_t kLateNs = 500'000'000;

}  // namespace

std::string latest_text(const JobView& job) {
  std::int64_t worst = kLateNs - 1;
  std::string text;
  for (const GroupView& group : job.groups) {
    std::map<std::int64_t, std::vector<std::pair<std::int64_t, int>>> came;  // when, who
    for (const auto& [rank, numbers] : group.by_rank) {
      for (const auto& [number, b] : numbers) {
        if (b.created_ns >= 0) came[number].emplace_back(b.created_ns, rank);
      }
    }
    for (auto& [number, ranks] : came) {
      if (ranks.size() < 2) continue;
      std::sort(ranks.begin(), ranks.end());
      const auto [last, rank] = ranks.back();
      const std::int64_t gap = last - ranks[ranks.size() - 2].first;
      if (gap <= worst) continue;
      worst = gap;
      text =
          fmt::format("rank {} came last to {} #{} of {}, {:.1f} s after the next to last, by the ranks' own clocks.",
                      rank, group.by_rank.at(rank).at(number).operation, number, group.title(), double(gap) / 1e9);
    }
  }
  return text;
}

}  // namespace seeksim::harness
