// Presets and arithmetic of links. Where the numbers come from: sim/README.md.
#include "sim/links.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <stdexcept>

#include "runtime/seams/bounded.h"

namespace seeksim::sim {
namespace {

using runtime::kMicrosecond;
using runtime::kMillisecond;
using runtime::kSecond;
using runtime::later;
using runtime::to_time_ns;

// TCP gives up after its 15th retransmission, the interval doubling from 0.2 s to at most 120 s.
constexpr TimeNs kTcpGivesUp = 924'600 * kMillisecond;
// InfiniBand retries 7 times with a time-out of 4.096 us * 2^20.
constexpr TimeNs kIbGivesUp = 30'060 * kMillisecond;

struct Preset {
  const char* name;
  LinkModel link;
};
//                      latency          bytes/ns hides shorter cuts  notices a crash     notices a cut
const Preset kPresets[] = {
    {"ideal", {0, 1e12, 0, -1, 0}},
    {"nvlink", {2 * kMicrosecond, 300.0, 0, -1, 0}},
    {"pcie", {3 * kMicrosecond, 25.0, 0, -1, 0}},
    {"ib", {4 * kMicrosecond, 50.0, kIbGivesUp, kIbGivesUp, kIbGivesUp}},
    {"tcp", {25 * kMicrosecond, 12.5, kTcpGivesUp, 100 * kMicrosecond, kTcpGivesUp}},
};

TimeNs all_reduce_over(const LinkModel& link, int n, std::size_t bytes) {
  if (n <= 1) return 0;
  const double ring = 2.0 * (n - 1) * (double(link.latency_ns) + double(bytes) / n / link.bytes_per_ns);
  const int depth = std::bit_width(unsigned(n - 1));
  const double tree = 2.0 * depth * (double(link.latency_ns) + double(bytes) / link.bytes_per_ns);
  return runtime::to_time_ns(std::min(ring, tree));
}

}  // namespace

LinkModel link_preset(const std::string& name) {
  std::string known;
  for (const Preset& preset : kPresets) {
    if (name == preset.name) return preset.link;
    known += (known.empty() ? "" : ", ") + std::string(preset.name);
  }
  throw std::invalid_argument("unknown network \"" + name + "\"; known: " + known);
}

namespace {
const char* inside_a_node(const std::string& network) {
  if (network == "ideal") return "ideal";
  return network == "pcie" || network == "tcp" ? "pcie" : "nvlink";
}
}  // namespace

// For an untimed world. A failure that is reported after seconds is still reported then: other ranks' deadlines count.
static void take_no_time(LinkModel& link) {
  link.latency_ns = 0;
  link.bytes_per_ns = std::numeric_limits<double>::infinity();
  if (link.notice_crash_ns < kSecond) link.notice_crash_ns = std::min<TimeNs>(link.notice_crash_ns, 0);
}

Network::Network(const WorldPlan& plan)
    : ranks_per_node_(plan.ranks_per_node),
      inside_(link_preset(inside_a_node(plan.network))),
      between_(link_preset(plan.network)),
      noise_(plan.schedule.strategy == Strategy::untimed || plan.steady ? 0 : plan.noise),
      steady_(plan.steady),
      times_(plan.schedule.strategy == Strategy::untimed ? nullptr : plan.collective_times),
      random_(plan.seed, Stream::noise),
      adapters_(std::size_t(plan.ranks())) {
  if (plan.schedule.strategy == Strategy::untimed) {
    take_no_time(inside_);
    take_no_time(between_);
  }
  for (const SlowQueue& slow : plan.schedule.slow) {
    if (slow_.empty()) slow_.assign(std::size_t(plan.ranks()), SlowQueues{1, 1, 1, 1, 1});
    slow_.at(std::size_t(slow.rank))[std::size_t(slow.queue)] *= double(std::uint64_t(1) << slow.doublings);
  }
}

// Sender and receiver are each busy for the length of the transfer; the data is there when both are through with it.
TimeNs Network::arrival(TimeNs now, int from, int to, std::size_t bytes, double slow, TimeNs delay) {
  const bool near = node_of(from) == node_of(to);
  const LinkModel& link = near ? inside_ : between_;
  Adapter& sender = near ? adapters_[std::size_t(from)].inside : adapters_[std::size_t(from)].between;
  Adapter& receiver = near ? adapters_[std::size_t(to)].inside : adapters_[std::size_t(to)].between;
  slow *= slowness(from, SlowQueue::Which::communication);
  const TimeNs busy = to_time_ns(double(bytes) / link.bytes_per_ns * slow * jitter());
  sender.sent = later(std::max(sender.sent, now), busy);
  receiver.received = later(std::max(receiver.received, now), busy);
  const TimeNs latency = to_time_ns(double(link.latency_ns) * slow * jitter());
  return later(later(std::max(sender.sent, receiver.received), latency), delay);
}

void CollectiveLoad::at_least(const CollectiveLoad& other) {
  for (Adapter CollectiveLoad::*adapter : {&CollectiveLoad::inside, &CollectiveLoad::between}) {
    (this->*adapter).busy = std::max((this->*adapter).busy, (other.*adapter).busy);
    (this->*adapter).used |= (other.*adapter).used;
  }
}

// Each piece is rounded to nanoseconds by itself, as arrival() does it.
CollectiveLoad Network::load(int rank, std::span<const runtime::Piece> pieces) const {
  TimeNs sent[2] = {}, received[2] = {};
  CollectiveLoad load;
  for (const runtime::Piece& piece : pieces) {
    const bool near = node_of(rank) == node_of(piece.peer);
    const LinkModel& link = near ? inside_ : between_;
    const double slow = slowness(piece.send ? rank : piece.peer, SlowQueue::Which::communication);
    (piece.send ? sent : received)[near] += runtime::to_time_ns(double(piece.hi - piece.lo) / link.bytes_per_ns * slow);
    (near ? load.inside : load.between).used = true;
  }
  load.inside.busy = std::max(sent[true], received[true]);
  load.between.busy = std::max(sent[false], received[false]);
  return load;
}

TimeNs Network::time_of(const CollectiveLoad& busiest) const {
  const TimeNs inside = busiest.inside.used ? busiest.inside.busy + inside_.latency_ns : 0;
  const TimeNs between = busiest.between.used ? busiest.between.busy + between_.latency_ns : 0;
  return std::max(inside, between);
}

TimeNs Network::all_reduce(int nodes, int per_node, std::size_t bytes) const {
  return later(all_reduce_over(inside_, per_node, bytes), all_reduce_over(between_, nodes, bytes));
}

}  // namespace seeksim::sim
