#include "runtime/backend/gpu/nccl_transport.h"

#ifdef SEEKSIM_NCCL

#include <algorithm>
#include <utility>

#include "kernels/check.h"
#include "kernels/device_table.h"
#include "kernels/pointwise.h"

namespace seeksim::runtime {
namespace {

const NcclApi& loaded() {
  const NcclApi* const api = NcclApi::get();
  if (api == nullptr) throw std::runtime_error(nccl_problem());
  return *api;
}

}  // namespace

NcclTransport::NcclTransport(ProgressLoop& loop, CudaDevice& device, MessageTransport& side, Signals& signals,
                             Recorder& recorder, int rank)
    : loop_(loop),
      device_(device),
      side_(side),
      signals_(signals),
      recorder_(recorder),
      nccl_(loaded()),
      rank_(rank),
      first_messages_(nccl_) {
  loop_.add(*this);
}

// Those that were destroyed have some time to end in order. The others, and those whose members do not come, are
// aborted, all in one group: their kernels would never end.
NcclTransport::~NcclTransport() {
  constexpr TimeNs kGoodbye = 5 * kSecond;
  try {
    loop_.until(later(loop_.now(), kGoodbye), [this] {
      see_off();
      return leaving_.empty();
    });
  } catch (const std::exception&) {  // the wire is gone, so no peer comes any more
  }
  loop_.remove(*this);
  for (Held& held : comms_) {
    if (held.state != Held::State::dead) leaving_.push_back(held.comm);
  }
  leaving_.insert(leaving_.end(), half_made_.begin(), half_made_.end());
  if (leaving_.empty()) return;
  static_cast<void>(nccl_.group_start());
  for (ncclComm_t const comm : leaving_) static_cast<void>(nccl_.comm_abort(comm));
  static_cast<void>(nccl_.group_end());
}

NcclTransport::Held* NcclTransport::find(Comm comm) {
  if (comm.handle == 0 || comm.handle > comms_.size()) return nullptr;
  Held& held = comms_[comm.handle - 1];
  return held.state == Held::State::dead ? nullptr : &held;
}

void NcclTransport::fail(Held& held, CommResult error) {
  if (held.state == Held::State::dead || held.state == Held::State::revoked) return;
  if (held.error != CommResult::success) return;
  held.error = error;
  signals_.alarm = true;
}

// ---- an operation ------------------------------------------------------------------------------------------------

NcclTransport::Exchange* NcclTransport::begin(Queue& queue, Comm comm, const Op& op, CommResult& why) {
  Held* const held = find(comm);
  why = held == nullptr                      ? CommResult::invalid_argument
        : held->state != Held::State::ready  ? CommResult::invalid_usage
        : held->error != CommResult::success ? held->error
                                             : CommResult::success;
  if (why != CommResult::success) return nullptr;
  auto* const stream = dynamic_cast<CudaQueue*>(&queue.underlying());
  SEEKSIM_CHECK(stream != nullptr, "NCCL works on streams, and queue '%s' is none", queue.name());
  if (spare_.empty()) {
    exchanges_.push_back(std::make_unique<Exchange>());
    spare_.push_back(exchanges_.back().get());
  }
  Exchange* const made = spare_.back();
  spare_.pop_back();
  made->owner = this;
  made->queue = stream;
  made->comm = comm.handle - 1;
  made->op = op;
  made->pieces.clear();
  made->addend = {};
  made->sum = {};
  made->shares.clear();
  made->over = {};
  made->started = made->launched = made->given_up = false;
  return made;
}

CommResult NcclTransport::enqueue(Exchange& made, ElementType type, std::uint64_t bytes_sent) {
  MessageTransport::Use& use = use_[std::size_t(made.op.kind)];
  ++use.calls;
  use.bytes += bytes_sent;
  Payload payload;
  payload.type = type;
  payload.count = made.op.bytes / size_of(type);
  made.record = recorder_.enqueued(made.op, loop_.now(), std::uint32_t(made.comm + 1), payload);
  recorder_.mix(made.op, 0);
  comms_[made.comm].pending.push_back(&made);
  CudaQueue* const stream = made.queue;
  stream->enqueue_activity(made.op, made, {});
  made.over = stream->record();
  return CommResult::success;
}

CommResult NcclTransport::exchange(Queue& queue, Comm comm, const Op& op, std::span<const Piece> pieces, DiesAt dies) {
  SEEKSIM_CHECK(dies == DiesAt::never, "this transport kills no rank in the middle of %s", describe(op).c_str());
  Held* const held = find(comm);
  if (held != nullptr && held->state == Held::State::ready && pieces.empty()) return held->error;
  const bool on_device = std::all_of(pieces.begin(), pieces.end(), [](const Piece& piece) {
    return piece.buffer != nullptr && piece.buffer->space == Space::device;
  });
  CommResult why = CommResult::success;
  Exchange* const made = begin(queue, comm, op, why);
  if (made == nullptr) return why;
  if (!on_device || !MessageTransport::are_valid(pieces, held->members)) {
    spare_.push_back(made);
    return held->error = CommResult::invalid_argument;
  }
  made->pieces.assign(pieces.begin(), pieces.end());
  std::uint64_t bytes = 0;
  for (const Piece& piece : pieces) {
    SEEKSIM_CHECK(piece.fate == nullptr, "this transport disturbs no message of %s", describe(op).c_str());
    if (piece.send) bytes += piece.hi - piece.lo;
  }
  return enqueue(*made, pieces.front().type, bytes);
}

// The queue has reached it.
void NcclTransport::start(Exchange& exchange) {
  exchange.started = true;
  Held& held = comms_[exchange.comm];
  exchange.given_up ? launch(held, exchange) : launch_what_can(held);
}

// A communicator's groups reach NCCL one by one and in the order of the calls, which is the same on all members. Only
// that order pairs senders with receivers, and a communicator that connects a group takes no other one. The queues may
// reach the groups of several communicators in another order.
void NcclTransport::launch_what_can(Held& held) {
  for (;;) {
    const auto next =
        std::find_if(held.pending.begin(), held.pending.end(), [](const Exchange* e) { return !e->launched; });
    if (next == held.pending.end() || !(*next)->started || held.connecting != nullptr) return;
    launch(held, **next);
  }
}

void NcclTransport::launch(Held& held, Exchange& exchange) {
  exchange.launched = true;
  const bool open = held.state == Held::State::ready || held.state == Held::State::finalized;
  if (exchange.given_up || !open || held.error != CommResult::success) {
    scribble(exchange);
    return exchange.queue->activity_done(exchange);
  }
  recorder_.started(exchange.record, loop_.now());
  ncclResult_t worst = nccl_.group_start();
  const ncclResult_t called = exchange.addend.n > 0 ? add_up(exchange, held) : send_and_receive(exchange, held);
  if (worst == ncclSuccess) worst = called;
  const ncclResult_t ended = nccl_.group_end();
  if (worst == ncclSuccess || worst == ncclInProgress) worst = ended;
  if (worst == ncclInProgress) {
    held.connecting = &exchange;  // until progress() finds it connected: the stream may not be touched
    return;
  }
  if (worst != ncclSuccess) fail(held, result_of(worst));
  exchange.queue->activity_done(exchange);
}

// The first error; NCCL's group goes on all the same.
ncclResult_t NcclTransport::send_and_receive(const Exchange& exchange, const Held& held) const {
  ncclResult_t worst = ncclSuccess;
  for (const Piece& piece : exchange.pieces) {
    const auto peer = std::find(held.members.begin(), held.members.end(), piece.peer) - held.members.begin();
    std::byte* const at = piece.buffer->data + piece.lo;
    const std::size_t bytes = piece.hi - piece.lo;
    const cudaStream_t stream = exchange.queue->stream();
    const ncclResult_t result = piece.send ? nccl_.send(at, bytes, ncclUint8, int(peer), held.comm, stream)
                                           : nccl_.recv(at, bytes, ncclUint8, int(peer), held.comm, stream);
    if (worst == ncclSuccess) worst = result;
  }
  return worst;
}

bool NcclTransport::progress(Held& held) {
  if (held.state == Held::State::dead || held.state == Held::State::revoked) return false;
  ncclResult_t state = ncclSuccess;
  if (nccl_.async_error(held.comm, &state) != ncclSuccess) state = ncclInternalError;
  if (state != ncclSuccess && state != ncclInProgress) fail(held, result_of(state));
  if (state == ncclInProgress) return false;
  Exchange* const connected = std::exchange(held.connecting, nullptr);
  if (connected != nullptr) {  // its queue goes on, and may come to the next one, which connects in its turn
    connected->queue->activity_done(*connected);
    launch_what_can(held);
  }
  finalize_if_due(held);
  return connected != nullptr;
}

bool NcclTransport::poll() {
  bool moved = false;
  if (!leaving_.empty()) see_off();
  for (Held& held : comms_) {
    moved = progress(held) || moved;
    while (!held.pending.empty()) {
      Exchange& oldest = *held.pending.front();
      if (!oldest.launched || held.connecting == &oldest || !oldest.queue->done(oldest.over)) break;
      end(oldest, oldest.given_up || held.error != CommResult::success ? RecordState::aborted : RecordState::completed);
      moved = true;
    }
  }
  return moved;
}

void NcclTransport::end(Exchange& exchange, RecordState how) {
  Held& held = comms_[exchange.comm];
  recorder_.ended(exchange.record, loop_.now(), how, std::int32_t(held.error));
  std::erase(held.pending, &exchange);
  spare_.push_back(&exchange);
}

// ---- failures ----------------------------------------------------------------------------------------------------

// On the stream, behind the work that NCCL left there: "done" does not mean good, so the result must not look good.
// Where the context is lost, nothing can write it and nothing can read it: the device's next wait reports that.
void NcclTransport::scribble(const Exchange& exchange) try {
  const kernels::Lane lane = exchange.queue->lane();
  for (const Piece& piece : exchange.pieces) {
    if (piece.send) continue;
    const std::size_t lo = (piece.lo + 3) / 4 * 4, hi = piece.hi / 4 * 4;  // whole words; what is left is under a word
    if (lo < hi)
      kernels::fill_bits(lane, {reinterpret_cast<float*>(piece.buffer->data + lo), Index((hi - lo) / 4)},
                         kPoisonAborted);
  }
  if (exchange.sum.n > 0) kernels::fill_bits(lane, exchange.sum.get(), kPoisonAborted);
  for (const SumShare& share : exchange.shares)
    if (share.out.n > 0) kernels::fill_bits(lane, share.out.get(), kPoisonAborted);
} catch (const kernels::DeviceError&) {
}

void NcclTransport::give_up(Held& held) {
  const std::deque<Exchange*> pending = held.pending;
  for (Exchange* exchange : pending) exchange->given_up = true;  // all, before any queue goes on
  for (Exchange* exchange : pending) {
    if (!exchange->started) continue;  // its queue will get there
    scribble(*exchange);
    const bool was_launched = std::exchange(exchange->launched, true);
    if (was_launched && held.connecting != exchange) {
      exchange->queue->put_off(exchange->over);  // nobody may read before the poison is there
      continue;
    }
    if (held.connecting == exchange) held.connecting = nullptr;
    exchange->queue->activity_done(*exchange);
  }
}

CommResult NcclTransport::async_error(Comm comm) {
  Held* const held = find(comm);
  if (held == nullptr) return CommResult::invalid_argument;
  poll();  // what has ended by now is not pending any more
  if (held->error != CommResult::success || held->state == Held::State::revoked) return held->error;
  if (held->finalize_due) return CommResult::in_progress;
  ncclResult_t state = ncclSuccess;
  if (nccl_.async_error(held->comm, &state) != ncclSuccess) state = ncclInternalError;
  // While a group connects, the communicator is in progress. That is no error.
  if (state == ncclInProgress && held->state == Held::State::ready) return CommResult::success;
  if (state != ncclSuccess && state != ncclInProgress) fail(*held, result_of(state));
  return result_of(state);
}

CommResult NcclTransport::revoke(Comm comm) {
  if (comm.handle == 0) return CommResult::success;
  Held* const held = find(comm);
  if (held == nullptr || held->state != Held::State::ready) return CommResult::invalid_argument;
  const CommResult result = result_of(nccl_.comm_revoke(held->comm, NCCL_REVOKE_DEFAULT));
  held->state = Held::State::revoked;
  held->error = CommResult::success;
  static_cast<void>(side_.revoke(held->side));
  give_up(*held);
  return result == CommResult::in_progress ? CommResult::success : result;
}

// One by one they would hang: a kernel of one may wait for a peer that is stuck in another (conformance C7). A kernel
// of ours that hangs ahead of them blocks this for ever; only the end of the process helps then (C16).
CommResult NcclTransport::abort(std::span<const Comm> comms) {
  std::vector<Held*> aborted;
  std::vector<Comm> sides;
  static_cast<void>(nccl_.group_start());
  for (ncclComm_t const comm : std::exchange(half_made_, {})) static_cast<void>(nccl_.comm_abort(comm));
  for (const Comm comm : comms) {
    Held* const held = find(comm);
    if (held == nullptr) continue;
    static_cast<void>(nccl_.comm_abort(held->comm));
    held->state = Held::State::dead;
    held->comm = nullptr;
    aborted.push_back(held);
    sides.push_back(held->side);
  }
  static_cast<void>(nccl_.group_end());
  for (Held* const held : aborted) give_up(*held);  // when all are dead: the queue of one may come to another
  // A parent's abort ends the making of its children, and then the handles of those are there.
  for (ncclComm_t& child : children_) {
    if (ncclComm_t const late = taken(child); late != nullptr) give_up_half_made(late);
  }
  signals_.alarm = false;
  return side_.abort(sides);
}

CommResult NcclTransport::finalize(Comm comm) {
  if (comm.handle == 0) return CommResult::success;
  Held* const held = find(comm);
  if (held == nullptr || held->state != Held::State::ready) return CommResult::invalid_argument;
  if (held->error != CommResult::success) return held->error;
  held->state = Held::State::finalized;
  static_cast<void>(side_.finalize(held->side));
  held->finalize_due = true;
  finalize_if_due(*held);
  if (!held->pending.empty() || held->members.size() > 1) return CommResult::in_progress;
  ncclResult_t state = ncclInProgress;
  // Nothing is pending and no peer has to come: only NCCL's own thread has to get there.
  loop_.until(later(loop_.now(), kSecond), [&] {
    if (state == ncclInProgress && nccl_.async_error(held->comm, &state) != ncclSuccess) state = ncclInternalError;
    return state != ncclInProgress;
  });
  return result_of(state);
}

// NCCL flushes what it was given: so it is given all of it before.
void NcclTransport::finalize_if_due(Held& held) {
  const bool all = std::all_of(held.pending.begin(), held.pending.end(), [](const Exchange* e) { return e->launched; });
  if (!held.finalize_due || !all || held.connecting != nullptr || held.error != CommResult::success) return;
  held.finalize_due = false;
  const ncclResult_t result = nccl_.comm_finalize(held.comm);
  if (result != ncclSuccess && result != ncclInProgress) fail(held, result_of(result));
}

// Destroying a communicator with an error would wait for ever, so it is left: the caller that gets the error aborts it.
CommResult NcclTransport::destroy(Comm comm) {
  if (comm.handle == 0) return CommResult::success;
  Held* const held = find(comm);
  if (held == nullptr) return CommResult::invalid_argument;
  if (held->state == Held::State::ready) static_cast<void>(finalize(comm));
  while (!held->pending.empty() && held->error == CommResult::success) loop_.turn();
  if (held->error != CommResult::success) return held->error;
  leaving_.push_back(std::exchange(held->comm, nullptr));
  held->state = Held::State::dead;
  static_cast<void>(side_.destroy(held->side));
  see_off();
  return CommResult::success;
}

// All members have to come to the end of a communicator, and each of them ends several, in orders of their own: who
// waited for the first would be waited for at another one, and all of them for ever.
void NcclTransport::see_off() {
  std::erase_if(leaving_, [this](ncclComm_t comm) {
    ncclResult_t state = ncclSuccess;
    if (nccl_.async_error(comm, &state) != ncclSuccess) state = ncclInternalError;
    if (state == ncclInProgress) return false;
    static_cast<void>(state == ncclSuccess ? nccl_.comm_destroy(comm) : nccl_.comm_abort(comm));
    return true;
  });
}

// NCCL does not say which peer is missing.
Transport::Unmatched NcclTransport::unmatched(Comm comm) const {
  const Held* const held = find(comm);
  if (held == nullptr || held->pending.empty() || !held->pending.front()->started) return {};
  Unmatched out;
  out.pending = true;
  out.op = held->pending.front()->op;
  return out;
}

}  // namespace seeksim::runtime

#endif
