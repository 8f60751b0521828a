#include "harness/torch/blame.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "runtime/seams/rank_names.h"

namespace seeksim::harness::torch {

using pytorch::Blame;
using pytorch::CallEntry;
using pytorch::CallState;
using pytorch::RankRecord;
using pytorch::VerdictEntry;
using runtime::rank_names;

namespace {

// Verdicts on one collective belong together: ranks find out within the time that a message takes.
bool same_collective(const VerdictEntry& a, const VerdictEntry& b, const GroupId& of_a, const GroupId& of_b) {
  return a.seq == b.seq && of_a == of_b && a.blame == b.blame;
}

std::string collective_of(const RankRecord& record, const VerdictEntry& verdict) {
  if (verdict.call >= 0 && std::size_t(verdict.call) < record.calls.size())
    return describe(record, record.calls[std::size_t(verdict.call)]);
  CallEntry call;
  call.op = verdict.op;
  call.seq = verdict.seq;
  call.step = verdict.step;
  call.group = verdict.group;
  return describe(record, call);
}

// Collectives of a group that a rank joined.
std::uint64_t joined_by(const TorchRun& run, int rank, const GroupId& group) {
  std::uint64_t joined = 0;
  for (const RankRun& one : run.ranks) {
    if (one.rank != rank || !one.record) continue;
    for (const CallEntry& call : one.record->calls) {
      if (call.seq > 0 && call.state != CallState::created && group_of(*one.record, call.group) == group)
        joined = std::max(joined, call.seq);
    }
  }
  return joined;
}

// What a rank stood at: its own frame in the stacks that were taken, or that it is dead.
std::string whereabouts(const TorchRun& run, int rank) {
  for (const ProcessRun& process : run.job.processes) {
    if (process.rank == rank && process.ending.over && !process.ended_by_us && !process.ending.good())
      return fmt::format("its process ended {}", how(process.ending));
  }
  for (const RankRun& one : run.ranks) {
    if (one.rank != rank) continue;
    const std::string frame = own_frame(one.stack);
    return frame.empty() ? "it is alive" : fmt::format("it is alive and stands at {}", frame);
  }
  return "";
}

std::string verb_of(Blame blame) {
  switch (blame) {
    case Blame::did_not_join:
      return "did not join";
    case Blame::is_dead:
      return "died before";
    case Blame::contribution_lost:
      return "joined, but its contribution never arrived in";
    case Blame::disagrees:
      return "means another collective than";
    case Blame::backend_failed:
      return "got no result from the backend below in";
    case Blame::unreachable:
      return "could not be reached in";
    default:
      return "did not answer in";
  }
}

}  // namespace

bool is_hang(Blame blame) { return blame != Blame::is_dead && blame != Blame::disagrees; }

std::optional<Culprits> culprits_by_verdict(const TorchRun& run) {
  const RankRecord* first_record = nullptr;
  const VerdictEntry* first = nullptr;
  for (const RankRun& rank : run.ranks) {
    if (!rank.record) continue;
    for (const VerdictEntry& verdict : rank.record->verdicts) {
      if (first != nullptr && verdict.time_ns >= first->time_ns) continue;
      first = &verdict;
      first_record = &*rank.record;
    }
  }
  if (first == nullptr) return std::nullopt;
  const GroupId group = group_of(*first_record, first->group);
  Culprits found{first->blame, {}, {}, collective_of(*first_record, *first), 0, 0, first->step};
  std::set<int> blamed, waiting;
  std::int64_t waited_ns = 0;
  for (const RankRun& rank : run.ranks) {
    if (!rank.record) continue;
    for (const VerdictEntry& verdict : rank.record->verdicts) {
      if (!same_collective(verdict, *first, group_of(*rank.record, verdict.group), group)) continue;
      blamed.insert(verdict.rank);
      waiting.insert(rank.rank);
      waited_ns = std::max(waited_ns, verdict.waited_ns);
    }
  }
  found.ranks.assign(blamed.begin(), blamed.end());
  for (const int rank : waiting) {
    if (!blamed.contains(rank)) found.waiting.push_back(rank);
  }
  found.waited_s = double(waited_ns) * 1e-9;
  found.joined = joined_by(run, found.ranks.front(), group);
  return found;
}

std::optional<Culprits> culprits_by_record(const TorchRun& run) {
  // The earliest collective that some members have joined and nobody finished.
  const RankRecord* record = nullptr;
  const CallEntry* first = nullptr;
  for (const RankRun& rank : run.ranks) {
    if (!rank.record) continue;
    for (const CallEntry& call : rank.record->calls) {
      if (call.state != CallState::started || call.seq == 0 ||
          (first != nullptr && call.created_ns >= first->created_ns))
        continue;
      first = &call;
      record = &*rank.record;
    }
  }
  if (first == nullptr) return std::nullopt;
  const GroupId group = group_of(*record, first->group);
  Culprits found{Blame::did_not_join, {}, {}, describe(*record, *first), 0, 0, first->step};
  for (const int rank : group.ranks)
    (joined_by(run, rank, group) >= first->seq ? found.waiting : found.ranks).push_back(rank);
  if (found.ranks.empty() || found.waiting.empty()) return std::nullopt;
  found.waited_s = run.job.wall_s - double(first->created_ns - record->now.started_ns) * 1e-9;
  found.joined = joined_by(run, found.ranks.front(), group);
  return found;
}

std::optional<Culprits> culprits_of(const TorchRun& run) {
  std::optional<Culprits> found = culprits_by_verdict(run);
  const bool ended_waiting = run.job.stopped != Stopped::no && run.job.stopped != Stopped::interrupted;
  if (!found && ended_waiting) found = culprits_by_record(run);
  return found;
}

std::string sentence(const Culprits& culprits, const TorchRun& run) {
  std::set<int> hosts;
  for (const int rank : culprits.ranks) hosts.insert(host_of(run, rank));
  // Each side says that of the other.
  if (culprits.blame == Blame::unreachable && hosts.size() > 1 && !hosts.contains(-1)) {
    std::vector<std::string> names;
    for (const int host : hosts) names.push_back(host_name(run, host));
    return fmt::format("{} could not reach each other in {}; ranks waited {:.1f} s", fmt::join(names, " and "),
                       culprits.collective, culprits.waited_s);
  }
  const std::string where = hosts.size() == 1 ? host_name(run, *hosts.begin()) : "";
  std::string text = fmt::format("{}{} {} {}", rank_names(culprits.ranks), where.empty() ? "" : " on " + where,
                                 verb_of(culprits.blame), culprits.collective);
  if (is_hang(culprits.blame) && !culprits.waiting.empty())
    text += fmt::format("; {} waited {:.1f} s", rank_names(culprits.waiting), culprits.waited_s);
  if (culprits.blame == Blame::did_not_join && culprits.ranks.size() == 1) {
    text +=
        fmt::format(". It had joined {} collective{} of the group", culprits.joined, culprits.joined == 1 ? "" : "s");
    const std::string stands = whereabouts(run, culprits.ranks.front());
    if (!stands.empty()) text += "; " + stands;
  }
  return text;
}

}  // namespace seeksim::harness::torch
