#include "harness/torch/collectives.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <map>

#include "harness/torch/blame.h"
#include "runtime/seams/rank_names.h"

namespace seeksim::harness::torch {

using pytorch::CallEntry;
using pytorch::OpName;
using pytorch::RankRecord;
using pytorch::ReduceName;
using runtime::rank_names;

namespace {

struct Seen {
  const RankRecord* record = nullptr;
  const CallEntry* call = nullptr;
};
using Collective = std::map<int, Seen>;                                       // by launch rank
using Collectives = std::map<std::pair<GroupId, std::uint64_t>, Collective>;  // by group and number

Collectives gathered(const TorchRun& run) {
  Collectives all;
  for (const RankRun& rank : run.ranks) {
    if (!rank.record) continue;
    std::vector<GroupId> groups;
    for (std::size_t i = 0; i < rank.record->groups.size(); ++i)
      groups.push_back(group_of(*rank.record, std::int32_t(i)));
    for (const CallEntry& call : rank.record->calls) {
      if (call.seq == 0 || call.group < 0 || std::size_t(call.group) >= groups.size()) continue;
      all[{groups[std::size_t(call.group)], call.seq}][rank.rank] = {&*rank.record, &call};
    }
  }
  return all;
}

// Whether each rank has to give as much as the others. Where parts may be ragged, or only the root gives or gets
// something, the backend holds what each rank gives to what the others expect of it.
bool sizes_agree(OpName op) {
  switch (op) {
    case OpName::all_reduce:
    case OpName::reduce:
    case OpName::broadcast:
    case OpName::reduce_scatter:  // each rank gives parts for all of them
      return true;
    default:
      return false;
  }
}

// What a rank means by its call, in words that are equal where the calls are.
std::string meaning(const Seen& seen) {
  const CallEntry& call = *seen.call;
  std::string text(name(call.op));
  if (call.op == OpName::barrier) return text;
  text += fmt::format(" {}", name(call.dtype));
  if (call.reduce != ReduceName::none) text += fmt::format(" {}", name(call.reduce));
  if (sizes_agree(call.op)) text += fmt::format(" x {}", call.numel);
  if (call.root >= 0) text += fmt::format(" root {}", call.root);
  // "[64,256] in memory by dimensions 1 0": libraries combine memory byte by byte.
  const std::string_view shape = seen.record->text(call.shape);
  const std::size_t layout = shape.find(" in memory");
  if (layout != std::string_view::npos) text += shape.substr(layout);
  return text;
}

std::string side(const std::string& what, const std::vector<int>& ranks, const Seen& seen) {
  const std::string frame = own_frame(seen.record->text(seen.call->stack));
  return fmt::format("{} mean{} {}{}", rank_names(ranks), ranks.size() == 1 ? "s" : "", what,
                     frame.empty() ? "" : " at " + frame);
}

// The sides of a collective, the larger ones first.
std::vector<std::pair<std::string, std::vector<int>>> sides_of(const Collective& collective) {
  std::map<std::string, std::vector<int>> by_meaning;
  for (const auto& [rank, seen] : collective) by_meaning[meaning(seen)].push_back(rank);
  std::vector<std::pair<std::string, std::vector<int>>> sides(by_meaning.begin(), by_meaning.end());
  std::stable_sort(sides.begin(), sides.end(),
                   [](const auto& a, const auto& b) { return a.second.size() > b.second.size(); });
  return sides;
}

std::string mismatch(const GroupId& group, std::uint64_t number, const Collective& collective) {
  const CallEntry& any = *collective.begin()->second.call;
  std::vector<std::string> words;
  for (const auto& [what, ranks] : sides_of(collective))
    words.push_back(side(what, ranks, collective.at(ranks.front())));
  return fmt::format("collective #{} of group {} (step {}, {}): {}", number, group.name, any.step, name(any.phase),
                     fmt::join(words, "; "));
}

// A collective that ranks ended without: everybody ended well, and somebody had never called it.
std::string left_out(const TorchRun& run, const GroupId& group, const Collective& collective) {
  std::vector<int> missing, there;
  for (const int rank : group.ranks) (collective.contains(rank) ? there : missing).push_back(rank);
  const bool all_have_records = std::all_of(missing.begin(), missing.end(), [&](int rank) {
    return std::size_t(rank) < run.ranks.size() && run.ranks[std::size_t(rank)].record.has_value();
  });
  if (missing.empty() || there.empty() || !all_have_records) return "";
  const Seen& seen = collective.at(there.front());
  const std::string frame = own_frame(seen.record->text(seen.call->stack));
  return fmt::format("{} never called {}, which {} called{}", rank_names(missing), describe(*seen.record, *seen.call),
                     rank_names(there), frame.empty() ? "" : " at " + frame);
}

}  // namespace

Finding collectives_match(const TorchRun& run) {
  const Collectives all = gathered(run);
  std::size_t compared = 0;
  for (const auto& [key, collective] : all) {
    if (sides_of(collective).size() > 1) return bad(mismatch(key.first, key.second, collective));
    compared += collective.size() > 1;
  }
  const std::optional<Culprits> culprits = culprits_of(run);
  // A rank that the backend saw to differ, and that died before its record told what it meant.
  if (culprits && culprits->blame == pytorch::Blame::disagrees) return bad(sentence(*culprits, run));
  const bool all_ended_well = std::all_of(run.job.processes.begin(), run.job.processes.end(),
                                          [](const ProcessRun& process) { return process.ending.good(); });
  for (const auto& [key, collective] : all) {
    if (!all_ended_well) break;  // who is missing is no_hang's business
    if (const std::string text = left_out(run, key.first, collective); !text.empty()) return bad(text);
  }
  if (compared == 0) return blind("no collective was recorded by two ranks");
  return good(fmt::format("{} collectives, the same on every rank", compared));
}

namespace {

constexpr std::int64_t kTogether_ns = 1'000'000;  // who comes within it has come with the others

// Members by when they came; empty where one of them did not end the collective.
std::vector<std::pair<std::int64_t, int>> arrivals(const GroupId& group, const Collective& collective) {
  std::vector<std::pair<std::int64_t, int>> came;
  for (const auto& [rank, seen] : collective)
    if (seen.call->state == pytorch::CallState::finished) came.emplace_back(seen.call->started_ns, rank);
  if (came.size() != group.ranks.size()) came.clear();
  std::sort(came.begin(), came.end());
  return came;
}

}  // namespace

std::map<std::pair<GroupId, std::uint64_t>, LastComer> last_comers(const TorchRun& run) {
  std::map<std::pair<GroupId, std::uint64_t>, LastComer> all;
  for (const auto& [key, collective] : gathered(run)) {
    const auto came = arrivals(key.first, collective);
    if (came.size() >= 2) all[key] = {came.back().second, came.back().first, came[came.size() - 2].first};
  }
  return all;
}

Waits waits_of(const TorchRun& run) {
  Waits waits;
  waits.ranks.resize(run.ranks.size());
  std::int64_t first_ns = std::numeric_limits<std::int64_t>::max(), last_of_all_ns = 0;
  for (const auto& [key, collective] : gathered(run)) {
    const CallEntry& any = *collective.begin()->second.call;
    if (any.phase == pytorch::StepPhase::init) continue;
    const auto came = arrivals(key.first, collective);
    if (came.size() < 2) continue;
    ++waits.collectives;
    first_ns = std::min(first_ns, came.front().first);
    last_of_all_ns = std::max(last_of_all_ns, came.back().first);
    const auto [last_ns, last] = came.back();
    for (const auto& [at_ns, rank] : came) waits.ranks[std::size_t(rank)].waited_s += double(last_ns - at_ns) * 1e-9;
    const std::int64_t late_ns = last_ns - came[came.size() - 2].first;
    if (late_ns <= kTogether_ns) continue;
    Waits::OfRank& one = waits.ranks[std::size_t(last)];
    ++one.last;
    one.kept_s += double(late_ns) * 1e-9;
    one.kept_in_s[any.phase] += double(late_ns) * 1e-9;
  }
  if (waits.collectives > 0) waits.span_s = double(last_of_all_ns - first_ns) * 1e-9;
  return waits;
}

int Waits::slowest() const {
  const auto most = std::max_element(ranks.begin(), ranks.end(),
                                     [](const OfRank& a, const OfRank& b) { return a.kept_s < b.kept_s; });
  return most == ranks.end() || most->kept_s == 0 ? -1 : int(most - ranks.begin());
}

std::string sentence(const Waits& waits) {
  if (waits.collectives == 0) return "";
  const int slowest = waits.slowest();
  if (slowest < 0) return fmt::format("ranks came together to {} collectives", waits.collectives);
  const Waits::OfRank& one = waits.ranks[std::size_t(slowest)];
  std::vector<std::string> phases;
  for (const auto& [phase, kept_s] : one.kept_in_s) phases.push_back(fmt::format("{} {:.2f} s", name(phase), kept_s));
  return fmt::format("rank {} kept the others waiting longest: {:.2f} of {:.2f} s, in {} of {} collectives ({})",
                     slowest, one.kept_s, waits.span_s, one.last, waits.collectives, fmt::join(phases, ", "));
}

std::size_t collectives_compared(const TorchRun& run) {
  std::size_t compared = 0;
  for (const auto& [key, collective] : gathered(run)) compared += collective.size() > 1;
  return compared;
}

}  // namespace seeksim::harness::torch
