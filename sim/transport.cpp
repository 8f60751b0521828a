// A rank's transport: operations and NCCL's state machine. What each verb returns in each state is the table of
// sim/README.md, and tests/conformance holds it to that.
#include "sim/transport.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/check.h"
#include "runtime/seams/bounded.h"
#include "sim/core.h"

namespace seeksim::sim {

using runtime::Comm;
using runtime::CommResult;
using runtime::Op;
using runtime::Piece;

namespace {
template <class T, class Make>
T& take(std::vector<T*>& spare, Make make) {
  if (spare.empty()) return make();
  T* taken = spare.back();
  spare.pop_back();
  return *taken;
}
}  // namespace

// ---- handles -----------------------------------------------------------------------------------------------------

RankComm* SimTransport::find(Comm comm) {
  core_.loop.touch(object(ObjectKind::signals, std::uint64_t(rank_.host.rank())), Access::read);
  if (comm.handle == 0 || comm.handle > comms_.size()) return nullptr;
  RankComm& held = comms_[comm.handle - 1];
  return held.state == RankComm::State::dead ? nullptr : &held;
}

CommResult SimTransport::usable(const RankComm* comm) {
  if (comm == nullptr) return CommResult::invalid_argument;
  if (comm->state != RankComm::State::ready) return CommResult::invalid_usage;
  return comm->error;
}

CommResult SimTransport::async_error(Comm comm) {
  const RankComm* held = find(comm);
  if (held == nullptr) return CommResult::invalid_argument;
  if (held->error != CommResult::success) return held->error;
  const bool flushing = held->state == RankComm::State::finalized && held->oldest != nullptr;
  return flushing ? CommResult::in_progress : CommResult::success;
}

// ---- operations --------------------------------------------------------------------------------------------------

namespace {
// For the record: where the first pieces out and in lie.
runtime::Payload payload_of(std::span<const Piece> pieces, const Op& op) {
  runtime::Payload payload;
  bool out = false, in = false;
  for (const Piece& piece : pieces) {
    bool& seen = piece.send ? out : in;
    if (seen) continue;
    seen = true;
    (piece.send ? payload.from : payload.to) = piece.buffer->id;
    (piece.send ? payload.from_offset : payload.to_offset) = piece.lo;
    payload.type = piece.type;
    if (out && in) break;
  }
  payload.count = op.bytes / runtime::size_of(payload.type);
  return payload;
}

void put_from(runtime::Payload& payload, const runtime::VecView<const float>& part) {
  payload.from = part.buffer->id;
  payload.from_offset = std::uint64_t(part.offset) * sizeof(float);
}
}  // namespace

CommResult SimTransport::exchange(runtime::Queue& queue, Comm comm, const Op& op, std::span<const Piece> pieces,
                                  runtime::DiesAt dies) {
  RankComm* held = find(comm);
  const CommResult state = usable(held);
  if (state != CommResult::success || pieces.empty()) return state;
  if (!valid(*held, pieces)) {  // drops the whole group, and poisons a non-blocking communicator
    held->error = CommResult::invalid_argument;
    return CommResult::invalid_argument;
  }
  payload_ = payload_of(pieces, op);
  std::uint64_t bytes = 0;
  for (const Piece& piece : pieces) bytes += piece.send ? piece.hi - piece.lo : 0;
  sent(op, bytes);
  if (rank_.device.watched()) {
    for (const Piece& piece : pieces) touched_.push_back({piece.buffer, piece.lo, piece.hi, !piece.send});
  }
  const std::size_t members = held->shared->members.size();
  if (core_.gathers_natively() && NativeGather::meets_at_once(op.kind)) {
    NativeGather& gather = take(spare_gathers_, [this]() -> NativeGather& { return core_.transport.make_gather(); });
    gather.prepare(core_.network.load(op.rank, pieces), NativeGather::whole_bytes(pieces, members));
    enqueue(gather, queue, comm, op);
    return CommResult::success;
  }
  if (held->shared->simulated < members)  // to ranks for whom another one stands
    core_.tell_apart(op.rank, fmt::format("rank {} sends single messages ({})", op.rank, name(op.kind)));
  Exchange& exchange = take(spare_exchanges_, [this]() -> Exchange& { return core_.transport.make_exchange(); });
  exchange.prepare(pieces, dies);
  if (core_.network.times() != nullptr && NativeGather::gathers(op.kind))
    exchange.takes(measured_gather(*held->shared, NativeGather::whole_bytes(pieces, members)));
  enqueue(exchange, queue, comm, op);
  return CommResult::success;
}

// With its noise, and as many times as long as the schedule makes this rank's queue.
TimeNs SimTransport::measured_gather(const SharedComm& shared, std::size_t bytes) {
  Network& network = core_.network;
  const TimeNs alone =
      network.times()->time(CollectiveTimes::What::all_gather, bytes, shared.size(), shared.nodes, shared.per_node_max);
  const double slow = network.slowness(rank_.host.rank(), SlowQueue::Which::communication);
  return runtime::to_time_ns(double(alone) * slow * network.jitter());
}

bool SimTransport::valid(const RankComm& comm, std::span<const Piece> pieces) const {
  return std::all_of(pieces.begin(), pieces.end(), [&](const Piece& piece) {
    return piece.buffer != nullptr && piece.lo <= piece.hi && piece.hi <= piece.buffer->bytes &&
           comm.shared->position(piece.peer) >= 0;
  });
}

bool SimTransport::has_native(Comm comm, const Op& op) const {
  const bool sums = op.kind == runtime::OpKind::all_reduce || op.kind == runtime::OpKind::reduce_scatter;
  return core_.plan.native_collectives && !core_.loop.untimed() && sums && find(comm) != nullptr;
}

CommResult SimTransport::tree_all_reduce(runtime::Queue& queue, Comm comm, const Op& op,
                                         const runtime::TreeReduce& reduce) {
  RankComm* held = find(comm);
  const CommResult state = usable(held);
  if (state != CommResult::success || reduce.out.n == 0) return state;  // nothing to sum: no part in it
  NativeReduce& native = take(spare_natives_, [this]() -> NativeReduce& { return core_.transport.make_native(); });
  native.prepare(reduce);
  payload_ = {runtime::ElementType::f32,
              std::uint64_t(reduce.out.n),
              0,
              0,
              reduce.out.buffer->id,
              std::uint64_t(reduce.out.offset) * sizeof(float)};
  if (!reduce.parts.empty()) put_from(payload_, reduce.parts.front().value);
  // As Communicator sends it: each of its subtree roots to the shards' owners, then its own shard to all others.
  const std::uint64_t bytes = std::uint64_t(reduce.out.n) * sizeof(float), n = held->shared->members.size();
  sent(op, (reduce.parts.size() + 1) * (bytes * (n - 1) / n));
  if (rank_.device.watched()) {
    for (const runtime::TreeReduceSlice& part : reduce.parts) touched_.push_back(part.value.range());
    touched_.push_back(reduce.out.range());
  }
  enqueue(native, queue, comm, op);
  return CommResult::success;
}

CommResult SimTransport::tree_reduce_scatter(runtime::Queue& queue, Comm comm, const Op& op,
                                             const runtime::TreeScatter& scatter) {
  RankComm* held = find(comm);
  const CommResult state = usable(held);
  if (state != CommResult::success) return state;
  if (!valid(*held, scatter.pieces)) {
    held->error = CommResult::invalid_argument;
    return CommResult::invalid_argument;
  }
  NativeScatter& native = take(spare_scatters_, [this]() -> NativeScatter& { return core_.transport.make_scatter(); });
  native.prepare(scatter);
  payload_ = payload_of(scatter.pieces, op);
  if (!scatter.parts.empty()) put_from(payload_, scatter.parts.front().value);
  std::uint64_t bytes = 0;
  for (const Piece& piece : scatter.pieces) bytes += piece.send ? piece.hi - piece.lo : 0;
  if (!scatter.pieces.empty()) sent(op, bytes);
  if (rank_.device.watched()) {
    for (const runtime::TreeReduceSlice& part : scatter.parts) touched_.push_back(part.value.range());
    for (const runtime::TreeTarget& target : scatter.targets) touched_.push_back(target.out.range());
  }
  enqueue(native, queue, comm, op);
  return CommResult::success;
}

void SimTransport::enqueue(SimActivity& activity, runtime::Queue& queue, Comm comm, const Op& op) {
  activity.owner = this;
  activity.queue = &queue;
  activity.op = op;
  activity.comm = comm.handle - 1;
  activity.state = SimActivity::State::queued;
  activity.aborted = false;
  activity.record = rank_.recorder.enqueued(op, core_.loop.now(), comm.handle, payload_);
  rank_.recorder.mix(op, 0);
  RankComm& held = comms_[activity.comm];
  activity.previous = held.newest;
  activity.next = nullptr;
  (held.newest != nullptr ? held.newest->next : held.oldest) = &activity;
  held.newest = &activity;
  queue.enqueue_activity(op, activity, touched_);
  touched_.clear();
}

void SimTransport::ended(SimActivity& activity) {
  RankComm& held = comms_[activity.comm];
  (activity.previous != nullptr ? activity.previous->next : held.oldest) = activity.next;
  (activity.next != nullptr ? activity.next->previous : held.newest) = activity.previous;
  const Blocked blocked = rank_.host.blocked();
  if (blocked == Blocked::abort) core_.loop.wake(rank_.host);
}

void SimTransport::fetch(std::uint32_t comm, std::uint64_t record) const {
  __builtin_prefetch(&comms_[comm], 1);
  __builtin_prefetch(&rank_.host, 1);
  rank_.recorder.fetch(record);
}

void SimTransport::fetch_ahead() const {
  if (!comms_.empty()) __builtin_prefetch(&comms_.back(), 1);
  if (!spare_exchanges_.empty()) spare_exchanges_.back()->fetch();
  if (!spare_natives_.empty()) spare_natives_.back()->fetch();
  rank_.recorder.fetch_next();
}

void SimTransport::sent(const Op& op, std::uint64_t bytes) {
  Use& use = use_[std::size_t(op.kind)];
  ++use.calls;
  use.bytes += bytes;
}

runtime::Transport::Unmatched SimTransport::unmatched(Comm comm) const {
  const RankComm* held = find(comm);
  touch_operations(Access::read);
  if (held == nullptr || held->oldest == nullptr) return {};
  return held->oldest->unmatched();
}

void SimTransport::touch_operations(Access how) const {
  core_.loop.touch(object(ObjectKind::operations, std::uint64_t(rank_.host.rank())), how);
}

// ---- failures ----------------------------------------------------------------------------------------------------

void SimTransport::fail(std::uint32_t comm, CommResult error, const std::string& why) {
  RankComm& held = comms_[comm];
  core_.loop.touch(object(ObjectKind::signals, std::uint64_t(rank_.host.rank())), Access::write);
  if (held.state == RankComm::State::dead || held.state == RankComm::State::revoked) return;
  if (held.error != CommResult::success || rank_.host.dying()) return;
  held.error = error;
  core_.story(rank_.host.rank(), fmt::format("its communicator reports {}: {}", name(error), why));
  rank_.signals.alarm = true;
  if (rank_.host.blocked() == Blocked::event) core_.loop.wake(rank_.host);
}

void SimTransport::withdraw_all() {
  touch_operations(Access::write);
  for (RankComm& held : comms_) {
    while (held.oldest != nullptr) held.oldest->drop();
    held.state = RankComm::State::dead;
  }
}

void SimTransport::notice_death_of(int dead, bool same_node) {
  if ((core_.network.node_of(dead) == core_.network.node_of(rank_.host.rank())) != same_node) return;
  for (std::uint32_t i = 0; i < comms_.size(); ++i) {
    for (const SimActivity* a = comms_[i].oldest; a != nullptr; a = a->next) {
      if (!a->waits_on(dead)) continue;
      fail(i, CommResult::remote_error, fmt::format("rank {} closed the connection", dead));
      break;
    }
  }
}

// ---- NCCL's verbs ------------------------------------------------------------------------------------------------

// In the order of the queues; what has not started yet ends when its queue gets there.
void SimTransport::cut_short(RankComm& comm) {
  SimActivity* activity = comm.oldest;
  while (activity != nullptr) {
    SimActivity* next = activity->next;
    activity->cut_short();
    activity = next;
  }
}

CommResult SimTransport::revoke(Comm comm) {
  if (comm.handle == 0) return CommResult::success;
  RankComm* held = find(comm);
  if (held == nullptr || held->state != RankComm::State::ready) return CommResult::invalid_argument;
  held->state = RankComm::State::revoked;
  touch_operations(Access::write);
  held->error = CommResult::success;
  cut_short(*held);
  return CommResult::success;
}

// Freeing a communicator waits for the device, and so for the kernels of all others that are in flight: abort them in
// one call, or hang on one that hangs.
CommResult SimTransport::abort(std::span<const Comm> comms) {
  if (rank_.host.dying()) return CommResult::success;
  touch_operations(Access::write);
  for (const Comm comm : comms) {
    RankComm* held = find(comm);
    if (held == nullptr) continue;
    held->state = RankComm::State::dead;
    cut_short(*held);
  }
  rank_.signals.alarm = false;
  while (others_in_flight() && !rank_.host.dying()) rank_.host.block(Blocked::abort, runtime::kForever);
  touch_operations(Access::read);
  return CommResult::success;
}

bool SimTransport::others_in_flight() const {
  return std::any_of(comms_.begin(), comms_.end(), [](const RankComm& held) {
    return held.state != RankComm::State::dead && held.oldest != nullptr &&
           held.oldest->state == SimActivity::State::started;
  });
}

CommResult SimTransport::finalize(Comm comm) {
  if (comm.handle == 0) return CommResult::success;
  RankComm* held = find(comm);
  if (held == nullptr || held->state != RankComm::State::ready) return CommResult::invalid_argument;
  if (held->error != CommResult::success) return held->error;
  held->state = RankComm::State::finalized;
  return async_error(comm);
}

// Waits for what is pending: on a communicator that hangs, for ever. After an error it returns that and frees nothing.
CommResult SimTransport::destroy(Comm comm) {
  if (comm.handle == 0 || rank_.host.dying()) return CommResult::success;
  RankComm* held = find(comm);
  if (held == nullptr) return CommResult::invalid_argument;
  if (held->error != CommResult::success) return held->error;
  const std::uint32_t index = comm.handle - 1;
  while (comms_[index].oldest != nullptr && !rank_.host.dying()) rank_.host.block(Blocked::abort, runtime::kForever);
  touch_operations(Access::read);
  if (comms_[index].error != CommResult::success) return comms_[index].error;
  comms_[index].state = RankComm::State::dead;
  return CommResult::success;
}

// ---- TransportHub ------------------------------------------------------------------------------------------------

void TransportHub::died(int rank) {
  core_.loop.touch(object(ObjectKind::network, 0), Access::write);
  any_dead_ = true;
  noticed_[rank] = {};
  const auto tell = [this, rank](TimeNs after, bool same_node) {
    if (after < 0) return;
    core_.loop.call_at(runtime::later(core_.loop.now(), after),
                       arrival(Arrival::noticed, rank, core_.control.lives(rank) * 2 + (same_node ? 1 : 0)),
                       [this, rank, same_node, life = core_.control.lives(rank)] {
                         if (core_.control.lives(rank) != life) return;
                         core_.loop.touch(object(ObjectKind::network, 0), Access::write);
                         (same_node ? noticed_[rank].inside : noticed_[rank].between) = true;
                         for (auto& other : core_.ranks) {
                           if (other == nullptr || other->host.rank() == rank) continue;
                           other->transport.touch_operations(Access::write);
                           if (!other->host.dying() && !other->host.ended())
                             other->transport.notice_death_of(rank, same_node);
                         }
                       });
  };
  tell(core_.network.inside().notice_crash_ns, true);
  tell(core_.network.between().notice_crash_ns, false);
}

bool TransportHub::known_dead(int rank, bool same_node) const {
  core_.loop.touch(object(ObjectKind::network, 0), Access::read);
  const auto it = noticed_.find(rank);
  return it != noticed_.end() && (same_node ? it->second.inside : it->second.between);
}

void TransportHub::stale(SimActivity& activity) {
  ++stale_count_;
  core_.story(activity.op.rank,
              fmt::format("{} is stale: the others are in epoch {}", describe(activity.op), newest_epoch));
}

void TransportHub::rises(Zombie zombie) {
  const bool taken = core_.plan.stale_messages_taken;
  if (taken) core_.loop.touch(object(ObjectKind::network, 2), Access::write);
  core_.story(zombie.to, fmt::format("the message of rank {} in {} arrives a second time{}", zombie.from, zombie.what,
                                     taken ? "" : ": it is stale, and dropped"));
  if (taken)
    zombies_.push_back(std::move(zombie));
  else
    ++stale_count_;
}

void TransportHub::land_on(int from, const runtime::Piece& received) {
  const auto fits = [&](const Zombie& z) {
    return z.from == from && z.to == received.buffer->rank && z.bytes.size() == received.hi - received.lo;
  };
  const auto zombie = std::find_if(zombies_.begin(), zombies_.end(), fits);
  if (zombie == zombies_.end() || received.buffer->data == nullptr) return;
  kernels::copy_bytes(received.buffer->lane, zombie->bytes.data(), received.buffer->data + received.lo,
                      zombie->bytes.size());
  zombies_.erase(zombie);
}

}  // namespace seeksim::sim
