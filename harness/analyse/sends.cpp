#include "harness/analyse/sends.h"

#include <fmt/format.h>

#include <algorithm>

namespace seeksim::harness {
namespace {

int rank_of_job(const GroupView& group, int in_group) {
  return in_group >= 0 && in_group < int(group.order.size()) ? group.order[std::size_t(in_group)] : -1;
}

// How many sends (or receives) between two ranks of a group a rank has begun, up to one of its entries.
std::size_t count_of(const Dump& dump, const GroupView& group, const char* operation, int partner,
                     const DumpEntry* until) {
  std::size_t count = 0;
  for (const DumpEntry& e : dump.entries) {
    if (!e.p2p || e.operation != operation || dump.groups[std::size_t(e.group)].name != group.name) continue;
    if (rank_of_job(group, e.peer) == partner) ++count;
    if (until != nullptr && e.created_ns == until->created_ns && e.number == until->number && e.peer == until->peer)
      break;
  }
  return count;
}

}  // namespace

std::vector<LonePart> lone_parts(const JobView& job) {
  std::vector<LonePart> parts;
  for (const auto& [rank, standing] : job.stuck) {
    const DumpEntry& e = standing.entry;
    if (!e.p2p) continue;
    const GroupView& group = job.groups[std::size_t(standing.group)];
    LonePart part;
    part.rank = rank;
    part.partner = rank_of_job(group, e.peer);
    if (part.partner < 0) continue;
    const bool sends = e.operation == "send";
    const Dump* mine = job.dump_of(rank);
    const Dump* theirs = job.dump_of(part.partner);
    part.text = fmt::format("{} {} rank {} in {}", e.operation, sends ? "to" : "from", part.partner, group.title());
    part.known = theirs != nullptr && theirs->whole && mine->whole;
    if (part.known) {
      const std::size_t nth = count_of(*mine, group, sends ? "send" : "recv", part.partner, &e);
      part.partner_came = count_of(*theirs, group, sends ? "recv" : "send", rank, nullptr) >= nth;
    }
    parts.push_back(part);
  }
  return parts;
}

}  // namespace seeksim::harness
