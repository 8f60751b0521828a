// The life of an operation that is the same for exchanges and native sums, and the meeting places of communicators.
#include "sim/activity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "sim/core.h"

namespace seeksim::sim {

using runtime::RecordState;

// ---- SharedComm --------------------------------------------------------------------------------------------------

SharedComm::SharedComm(std::uint64_t comm_id, std::uint32_t comm_epoch, runtime::Axis comm_axis, std::vector<int> ranks,
                       int ranks_per_node)
    : id(comm_id), epoch(comm_epoch), axis(comm_axis), members(std::move(ranks)) {
  for (std::size_t i = 1; i < members.size(); ++i) contiguous_ = contiguous_ && members[i] == members[0] + int(i);
  if (!contiguous_) {
    positions_.assign(std::size_t(*std::max_element(members.begin(), members.end())) + 1, -1);
    for (std::size_t i = 0; i < members.size(); ++i) positions_[std::size_t(members[i])] = int(i);
  }
  by_node.resize(members.size());
  for (std::size_t i = 0; i < by_node.size(); ++i) by_node[i] = int(i);
  const auto node = [&](int position) { return members[std::size_t(position)] / ranks_per_node; };
  std::stable_sort(by_node.begin(), by_node.end(), [&](int a, int b) { return node(a) < node(b); });
  for (std::size_t i = 0; i < by_node.size(); ++i)
    if (i == 0 || node(by_node[i]) != node(by_node[i - 1])) node_begins.push_back(int(i));
  nodes = int(node_begins.size());
  node_begins.push_back(int(by_node.size()));
  for (int n = 0; n < nodes; ++n)
    per_node_max = std::max(per_node_max, node_begins[std::size_t(n) + 1] - node_begins[std::size_t(n)]);
}

int SharedComm::position(int rank) const {
  if (contiguous_) {
    const int position = rank - members.front();
    return position >= 0 && position < size() ? position : -1;
  }
  return rank >= 0 && std::size_t(rank) < positions_.size() ? positions_[std::size_t(rank)] : -1;
}

Group& SharedComm::group(std::uint64_t sequence) {
  for (std::size_t i = live_.size(); i-- > 0;)
    if (live_[i].sequence == sequence) return *live_[i].group;
  if (free_.empty()) {
    Group& fresh = groups_.emplace_back();
    fresh.shared = this;
    fresh.at.resize(members.size());
    free_.push_back(&fresh);
  }
  Group& group = *free_.back();
  free_.pop_back();
  group.sequence = sequence;
  live_.push_back({sequence, &group});
  return group;
}

void SharedComm::give_back(Group& group) {
  const auto it = std::find_if(live_.begin(), live_.end(), [&](const Live& l) { return l.group == &group; });
  *it = live_.back();
  live_.pop_back();
  ++group.generation;
  group.completions.clear();
  group.summed = group.mismatched = group.has_first = false;
  free_.push_back(&group);
}

void Group::leave(int position) {
  at[std::size_t(position)] = nullptr;
  if (--posted == 0) shared->give_back(*this);
}

std::string mismatch_text(const runtime::Op& a, const std::string& more_a, const runtime::Op& b,
                          const std::string& more_b) {
  return fmt::format("rank {} brought {}{} at {}, rank {} brought {}{} at {}", a.rank, describe(a), more_a, a.site,
                     b.rank, describe(b), more_b, b.site);
}

void tell_mismatch(SimActivity& one, SimActivity* other, const std::string& why) {
  Core& core = one.owner->core();
  core.transport.mismatch(why);
  core.tell_apart("ranks brought different operations: " + why);
  if (!core.plan.strict_collectives) return;
  one.owner->fail(one.comm, runtime::CommResult::invalid_usage, why);
  if (other != nullptr && other != &one) other->owner->fail(other->comm, runtime::CommResult::invalid_usage, why);
}

bool same_meaning(const runtime::Op& a, const runtime::Op& b) {
  return a.kind == b.kind && a.axis == b.axis && a.step == b.step && a.micro_batch == b.micro_batch &&
         (a.tensor == b.tensor || std::strcmp(a.tensor, b.tensor) == 0);
}

bool Group::agrees(SimActivity& activity) {
  Core& core = activity.owner->core();
  TransportHub& hub = core.transport;
  hub.compared += std::uint64_t(core.weight(activity.op.rank) - (has_first ? 0 : shared->stands_for));
  if (!has_first) {
    first = activity.op;
    has_first = true;
    return true;
  }
  if (same_meaning(first, activity.op)) return true;
  tell_mismatch(activity, at[std::size_t(shared->position(first.rank))], mismatch_text(activity.op, "", first, ""));
  return false;
}

// ---- SimActivity -------------------------------------------------------------------------------------------------

void scribble_on(runtime::Buffer& buffer, std::size_t lo, std::size_t hi) {
  if (buffer.data == nullptr) return;
  const std::uint32_t word = runtime::kPoisonAborted;
  const kernels::Vec<std::byte> range{buffer.data + lo, kernels::Index(hi - lo)};
  kernels::change_on_host(buffer.lane, range, [word](kernels::Vec<std::byte> bytes) {
    const auto n = std::size_t(bytes.n);
    for (std::size_t i = 0; i < n; i += sizeof word) std::memcpy(bytes.data + i, &word, std::min(sizeof word, n - i));
  });
}

void SimActivity::fetch() const {
  const char* own = reinterpret_cast<const char*>(this);
  for (std::size_t line = 0; line < sizeof(*this) + 128; line += 64) __builtin_prefetch(own + line, 1);
}

void SimActivity::fetch_more() const {
  const char* fifo = reinterpret_cast<const char*>(queue);
  __builtin_prefetch(fifo, 1);
  __builtin_prefetch(fifo + 64, 1);
  owner->fetch(comm, record);
}

void SimActivity::start() {
  if (aborted) {
    scribble();
    end(RecordState::aborted);
    return;
  }
  state = State::started;
  const TimeNs now = owner->core().loop.now();
  started_ns = now;
  owner->rank().recorder.started(record, now);
  if (OverlapMeter::counts(op)) owner->rank().device.overlap().transfer_starts(now);
  if (owner->comm_at(comm).shared->epoch < owner->core().transport.newest_epoch) owner->core().transport.stale(*this);
  post();
}

void SimActivity::cut_short() {
  aborted = true;
  if (state != State::started) return;  // start() ends it when the queue gets there
  withdraw();
  scribble();
  end(RecordState::aborted);
}

void SimActivity::drop() {
  if (state == State::started) withdraw();
  left(RecordState::aborted);
  owner->ended(*this);
  recycle();
}

void SimActivity::left(RecordState how) {
  const TimeNs now = owner->core().loop.now();
  owner->rank().recorder.ended(record, now, how, std::int32_t(owner->comm_at(comm).error));
  if (state == State::started && owner->core().plan.steady) owner->rank().device.course().did(op, started_ns, now);
  if (state == State::started && OverlapMeter::counts(op)) owner->rank().device.overlap().transfer_ends(now);
  TrainingMeter& training = owner->rank().device.training();
  if (state == State::started) training.did(op, now);
  if (Timeline* timeline = owner->core().timeline.get();
      timeline != nullptr && state == State::started && training.counts(op))
    timeline->ran(*queue, op.rank, op, started_ns, now, how);
  state = State::free;
  ++generation;
}

DueTimer SimActivity::due(const Timer& timer) {
  const int rank = owner->rank().host.rank();
  return {timer, arrival(Arrival::operation, rank, record), object(ObjectKind::operations, std::uint64_t(rank)),
          Access::add};
}

void SimActivity::end(RecordState how) {
  Loop& loop = owner->core().loop;
  owner->touch_operations(Access::add);
  // A fault may have wrapped the queue.
  const auto& stepped = static_cast<const runtime::SteppedQueue&>(queue->underlying());
  loop.touch(Loop::object_of(stepped), Access::add);
  left(how);
  owner->ended(*this);
  queue->activity_done(*this);
  recycle();
}

}  // namespace seeksim::sim
