#include "pytorch/core/expectation.h"

#include <fmt/format.h>

#include <algorithm>

namespace seeksim::pytorch {
namespace {

bool same_kind(const Expectation& a, const Expectation& b) {
  const bool sized = a.op == OpName::all_reduce || a.op == OpName::reduce || a.op == OpName::broadcast;
  return a.op == b.op && a.reduce == b.reduce && a.dtype == b.dtype && a.root == b.root && a.tensors == b.tensors &&
         a.sizes == b.sizes && a.layout == b.layout && (!sized || a.numel == b.numel);
}

std::vector<int> launch(std::span<const int> places, std::span<const int> launch_ranks) {
  std::vector<int> out;
  for (const int place : places) out.push_back(launch_ranks[std::size_t(place)]);
  return out;
}

// Everybody outside the one largest party; everybody where two parties are equally large.
std::vector<int> outside_largest(const std::vector<std::vector<int>>& parties) {
  std::size_t largest = 0;
  bool alone = true;
  for (std::size_t i = 1; i < parties.size(); ++i) {
    if (parties[i].size() == parties[largest].size()) alone = false;
    if (parties[i].size() > parties[largest].size()) largest = i, alone = true;
  }
  std::vector<int> odd;
  for (std::size_t i = 0; i < parties.size(); ++i) {
    if (!alone || i != largest) odd.insert(odd.end(), parties[i].begin(), parties[i].end());
  }
  std::sort(odd.begin(), odd.end());
  return odd;
}

std::optional<Disagreement> of_kinds(std::span<const Expectation> all, std::span<const int> launch_ranks) {
  std::vector<std::vector<int>> parties;
  for (int place = 0; place < int(all.size()); ++place) {
    const auto same = [&](const std::vector<int>& party) {
      return same_kind(all[std::size_t(party.front())], all[std::size_t(place)]);
    };
    const auto found = std::find_if(parties.begin(), parties.end(), same);
    if (found == parties.end()) {
      parties.push_back({place});
    } else {
      found->push_back(place);
    }
  }
  if (parties.size() == 1) return std::nullopt;
  Disagreement d;
  d.odd = outside_largest(parties);
  for (const std::vector<int>& party : parties) {
    d.text += fmt::format("{}{}: {}", d.text.empty() ? "" : "\n  ", describe(all[std::size_t(party.front())]),
                          ranks_text(launch(party, launch_ranks)));
  }
  return d;
}

std::optional<Disagreement> of_sizes(std::span<const Expectation> all, std::span<const int> launch_ranks) {
  constexpr std::size_t kPairsShown = 8;
  std::vector<int> wrong(all.size(), 0);
  std::size_t pairs = 0;
  Disagreement d;
  for (std::size_t from = 0; from < all.size(); ++from) {
    for (std::size_t to = 0; to < all.size(); ++to) {
      const std::int64_t given = all[from].gives[to], taken = all[to].takes[from];
      if (given == taken) continue;
      ++wrong[from], ++wrong[to];
      if (++pairs > kPairsShown) continue;
      d.text += fmt::format("{}rank {} gives {} bytes to rank {}, which expects {}", d.text.empty() ? "" : "\n  ",
                            launch_ranks[from], given, launch_ranks[to], taken);
    }
  }
  if (pairs == 0) return std::nullopt;
  if (pairs > kPairsShown) d.text += fmt::format("\n  and {} more pairs", pairs - kPairsShown);
  const int most = *std::max_element(wrong.begin(), wrong.end());
  for (std::size_t place = 0; place < all.size(); ++place) {
    if (wrong[place] == most) d.odd.push_back(int(place));
  }
  return d;
}

}  // namespace

std::uint64_t memory_order(std::span<const int> dimensions) {
  std::uint64_t order = 0;
  for (const int one : dimensions) order = order << 4 | std::uint64_t(one + 1);
  return order;
}

std::string memory_order_text(std::uint64_t order, std::int64_t tensors) {
  if (tensors > 1) return fmt::format("{:08x}", std::uint32_t(order ^ order >> 32));
  std::string text;
  for (int shift = 60; shift >= 0; shift -= 4) {
    const std::uint64_t one = order >> shift & 15;
    if (one != 0) text += fmt::format("{}{}", text.empty() ? "" : " ", one - 1);
  }
  return text;
}

std::string describe(const Expectation& e) {
  std::string text(name(e.op));
  if (e.dtype != DType::none) text += fmt::format(" {} x {}", name(e.dtype), e.numel);
  if (e.tensors > 1) text += fmt::format(" in {} tensors (sizes {:08x})", e.tensors, std::uint32_t(e.sizes));
  if (e.reduce != ReduceName::none) text += fmt::format(", {}", name(e.reduce));
  if (e.root >= 0) text += fmt::format(", root {}", e.root);
  if (e.layout != 0) text += fmt::format(", in memory by dimensions {}", memory_order_text(e.layout, e.tensors));
  return text;
}

std::string ranks_text(std::span<const int> launch_ranks) {
  std::string text = launch_ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < launch_ranks.size(); ++i) text += fmt::format("{}{}", i ? ", " : "", launch_ranks[i]);
  return text;
}

std::optional<Disagreement> disagreement(std::span<const Expectation> all, std::span<const int> launch_ranks) {
  if (auto kinds = of_kinds(all, launch_ranks)) return kinds;
  return of_sizes(all, launch_ranks);
}

}  // namespace seeksim::pytorch
