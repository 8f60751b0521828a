// Exchanges over a wire: how pieces find each other, and what becomes of them when a rank gives up.
#include "runtime/backend/messages/message_transport.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "kernels/check.h"
#include "runtime/backend/messages/message_head.h"

namespace seeksim::runtime {
namespace {

// How long an abort waits until the wire has let go of the buffers: peers that live take what was sent to them.
constexpr TimeNs kLettingGo = 2 * kSecond;

// Leaves in a range what an aborted operation leaves.
void scribble_on(Buffer& buffer, std::size_t lo, std::size_t hi) {
  const std::uint32_t word = kPoisonAborted;
  for (std::size_t i = lo; i < hi; i += sizeof word) std::memcpy(buffer.data + i, &word, std::min(sizeof word, hi - i));
}

}  // namespace

MessageTransport::MessageTransport(ProgressLoop& loop, Wire& wire, Signals& signals, Recorder& recorder, int rank,
                                   std::uint64_t run)
    : loop_(loop), wire_(wire), signals_(signals), recorder_(recorder), rank_(rank), run_(run) {
  static_assert(sizeof(Head) + Head::kRoom <= Wire::kHeadBytesMax);
  wire_.listen(this);
  loop_.add(wire_);
  loop_.add(*this);
}

MessageTransport::~MessageTransport() {
  loop_.remove(*this);
  loop_.remove(wire_);
  wire_.listen(nullptr);
}

MessageTransport::Held* MessageTransport::find(Comm comm) {
  if (comm.handle == 0 || comm.handle > comms_.size()) return nullptr;
  Held& held = comms_[comm.handle - 1];
  return held.state == Held::State::dead ? nullptr : &held;
}

CommResult MessageTransport::usable(const Held* held) {
  if (held == nullptr) return CommResult::invalid_argument;
  if (held->state != Held::State::ready) return CommResult::invalid_usage;
  return held->error;
}

CommResult MessageTransport::async_error(Comm comm) {
  const Held* held = find(comm);
  if (held == nullptr) return CommResult::invalid_argument;
  if (held->error != CommResult::success) return held->error;
  const bool flushing = held->state == Held::State::finalized && !held->pending.empty();
  return flushing ? CommResult::in_progress : CommResult::success;
}

MessageTransport::Head MessageTransport::head_of(std::uint8_t kind, const Key& key) const {
  Head head;
  head.run = run_;
  head.kind = kind;
  head.comm = key.first;
  head.epoch = key.second;
  return head;
}

void MessageTransport::send_small(int to, const Head& head, std::span<const std::byte> more) {
  std::array<std::byte, Wire::kHeadBytesMax> bytes;
  SEEKSIM_CHECK(more.size() <= Head::kRoom, "%zu bytes do not travel with a head", more.size());
  std::memcpy(bytes.data(), &head, sizeof head);
  if (!more.empty()) std::memcpy(bytes.data() + sizeof head, more.data(), more.size());
  wire_.send(to, {bytes.data(), sizeof head + more.size()}, {});
}

// ---- an operation ------------------------------------------------------------------------------------------------

namespace {
Payload payload_of(std::span<const Piece> pieces, const Op& op) {
  Payload payload;
  const auto put = [&](bool send, std::uint64_t& buffer, std::uint64_t& offset) {
    const auto first =
        std::find_if(pieces.begin(), pieces.end(), [send](const Piece& piece) { return piece.send == send; });
    if (first == pieces.end()) return;
    buffer = first->buffer->id;
    offset = first->lo;
    payload.type = first->type;
  };
  put(false, payload.to, payload.to_offset);
  put(true, payload.from, payload.from_offset);
  payload.count = op.bytes / size_of(payload.type);
  return payload;
}
}  // namespace

bool MessageTransport::are_valid(std::span<const Piece> pieces, std::span<const int> members) {
  return std::all_of(pieces.begin(), pieces.end(), [&](const Piece& piece) {
    return piece.buffer != nullptr && piece.lo <= piece.hi && piece.hi <= piece.buffer->bytes &&
           std::find(members.begin(), members.end(), piece.peer) != members.end();
  });
}

CommResult MessageTransport::exchange(Queue& queue, Comm comm, const Op& op, std::span<const Piece> pieces,
                                      DiesAt dies) {
  SEEKSIM_CHECK(dies == DiesAt::never, "this transport kills no rank in the middle of %s", describe(op).c_str());
  Held* held = find(comm);
  const CommResult state = usable(held);
  if (state != CommResult::success || pieces.empty()) return state;
  if (!are_valid(pieces, held->members)) return held->error = CommResult::invalid_argument;
  if (spare_.empty()) {
    exchanges_.push_back(std::make_unique<Exchange>());
    spare_.push_back(exchanges_.back().get());
  }
  Exchange& made = *spare_.back();
  spare_.pop_back();
  made.owner = this;
  made.queue = &queue;
  made.comm = comm.handle - 1;
  made.op = op;
  made.parts.clear();
  std::map<std::pair<int, bool>, std::uint32_t> numbers;
  Use& use = use_[std::size_t(op.kind)];
  ++use.calls;
  for (const Piece& piece : pieces) {
    made.parts.push_back({piece, numbers[{piece.peer, piece.send}]++, 0, Exchange::Fate::open});
    if (piece.send) use.bytes += piece.hi - piece.lo;
  }
  made.unfinished = pieces.size();
  made.on_the_wire = 0;
  made.started = made.given_up = false;
  made.record = recorder_.enqueued(op, loop_.now(), comm.handle, payload_of(pieces, op));
  recorder_.mix(op, 0);
  held->pending.push_back(&made);
  held->last_sequence = std::max(held->last_sequence, op.sequence);
  queue.enqueue_activity(op, made, {});
  return CommResult::success;
}

void MessageTransport::start(Exchange& exchange) {
  exchange.started = true;
  if (exchange.given_up) return end_if_over(exchange);
  recorder_.started(exchange.record, loop_.now());
  const Key key = comms_[exchange.comm].key;
  for (std::size_t i = 0; i < exchange.parts.size(); ++i) {
    if (exchange.parts[i].piece.send) send_piece(exchange, i);
  }
  for (const Early& message : take_kept(key, exchange.op.sequence)) take(exchange, message);
  end_if_over(exchange);
}

void MessageTransport::send_piece(Exchange& exchange, std::size_t index) {
  Exchange::Part& part = exchange.parts[index];
  const Op& op = exchange.op;
  const std::span<const std::byte> payload = bytes_of(part.piece);
  Head head = head_of(Head::kPiece, comms_[exchange.comm].key);
  head.sequence = op.sequence;
  head.number = part.number;
  head.op = op.kind;
  head.axis = op.axis;
  head.step = op.step;
  head.micro_batch = op.micro_batch;
  head.tensor = hash_of(op.tensor);
  head.bytes = payload.size();
  head.type = part.piece.type;
  if (part.piece.fate != nullptr) {
    disturb(exchange, part.piece, head);
    return piece_over(exchange, index);
  }
  if (payload.size() <= Head::kRoom) {
    send_small(part.piece.peer, head, payload);
    return piece_over(exchange, index);
  }
  const auto* bytes = reinterpret_cast<const std::byte*>(&head);
  const Wire::Ticket ticket = wire_.send(part.piece.peer, {bytes, sizeof head}, payload);
  if (ticket == 0) return piece_over(exchange, index);
  part.fate = Exchange::Fate::on_the_wire;
  ++exchange.on_the_wire;
  on_the_wire_[ticket] = {&exchange, index};
}

void MessageTransport::piece_over(Exchange& exchange, std::size_t index) {
  exchange.parts[index].fate = Exchange::Fate::over;
  --exchange.unfinished;
}

void MessageTransport::end_if_over(Exchange& exchange) {
  if (!exchange.started || exchange.on_the_wire > 0) return;
  if (exchange.given_up) {
    for (const Exchange::Part& part : exchange.parts) {
      if (!part.piece.send) scribble_on(*part.piece.buffer, part.piece.lo, part.piece.hi);
    }
    end(exchange, RecordState::aborted);
  } else if (exchange.unfinished == 0) {
    end(exchange, RecordState::completed);
  }
}

void MessageTransport::end(Exchange& exchange, RecordState how) {
  Held& held = comms_[exchange.comm];
  recorder_.ended(exchange.record, loop_.now(), how, std::int32_t(held.error));
  std::erase(held.pending, &exchange);
  spare_.push_back(&exchange);
  exchange.queue->activity_done(exchange);
}

// ---- failures ----------------------------------------------------------------------------------------------------

void MessageTransport::fail(Held& held, CommResult error) {
  if (held.state == Held::State::dead || held.state == Held::State::revoked) return;
  if (held.error != CommResult::success) return;
  held.error = error;
  signals_.alarm = true;
}

// MPI says no more than that it cannot go on: everybody's communicators are in doubt.
void MessageTransport::failed(const std::string& why) {
  complain(why);
  for (Held& held : comms_) fail(held, CommResult::remote_error);
}

// In the order of the queues; what has not started yet ends when its queue gets there.
void MessageTransport::give_up(Held& held) {
  gone_.insert(held.key);
  handles_.erase(held.key);
  if (const auto found = early_.find(held.key); found != early_.end()) {
    for (const Early& message : found->second) {
      early_memory_[message.from] -= message.memory();
      throw_away(message);
    }
    early_.erase(found);
  }
  const std::deque<Exchange*> pending = held.pending;
  for (Exchange* exchange : pending) {
    exchange->given_up = true;
    end_if_over(*exchange);
  }
}

CommResult MessageTransport::revoke(Comm comm) {
  if (comm.handle == 0) return CommResult::success;
  Held* held = find(comm);
  if (held == nullptr || held->state != Held::State::ready) return CommResult::invalid_argument;
  held->state = Held::State::revoked;
  held->error = CommResult::success;
  give_up(*held);
  return CommResult::success;
}

bool MessageTransport::letting_go() const {
  return std::any_of(on_the_wire_.begin(), on_the_wire_.end(),
                     [](const auto& one) { return one.second.exchange->given_up; });
}

void MessageTransport::take_back_given_up() {
  for (auto one = on_the_wire_.begin(); one != on_the_wire_.end();) {
    Exchange& exchange = *one->second.exchange;
    if (!exchange.given_up || !wire_.take_back(one->first)) {
      ++one;
      continue;
    }
    one = on_the_wire_.erase(one);
    --exchange.on_the_wire;
    end_if_over(exchange);
  }
}

// A buffer may be used again only when the wire reads and writes it no more. TCP gives it back at once. MPI without
// ULFM cannot take a message back from a peer that is gone.
CommResult MessageTransport::abort(std::span<const Comm> comms) {
  for (const Comm comm : comms) {
    Held* held = find(comm);
    if (held == nullptr) continue;
    held->state = Held::State::dead;
    give_up(*held);
  }
  signals_.alarm = false;
  take_back_given_up();
  if (!loop_.until(later(loop_.now(), kLettingGo), [this] { return !letting_go(); })) {
    Op op = on_the_wire_.begin()->second.exchange->op;
    throw SeamError(ErrorKind::no_progress, op,
                    "a peer neither takes nor ends a message that was given up; only a new start of the job helps");
  }
  return CommResult::success;
}

CommResult MessageTransport::finalize(Comm comm) {
  if (comm.handle == 0) return CommResult::success;
  Held* held = find(comm);
  if (held == nullptr || held->state != Held::State::ready) return CommResult::invalid_argument;
  if (held->error != CommResult::success) return held->error;
  held->state = Held::State::finalized;
  return async_error(comm);
}

CommResult MessageTransport::destroy(Comm comm) {
  if (comm.handle == 0) return CommResult::success;
  Held* held = find(comm);
  if (held == nullptr) return CommResult::invalid_argument;
  if (held->error != CommResult::success) return held->error;
  while (!held->pending.empty() && held->error == CommResult::success) loop_.turn();
  if (held->error != CommResult::success) return held->error;
  held->state = Held::State::dead;
  give_up(*held);
  return CommResult::success;
}

// The peer that this rank waits for. In the oldest operation that has started: the sender of a piece that has not come,
// else the receiver of one that was not taken.
Transport::Unmatched MessageTransport::unmatched(Comm comm) const {
  const Held* held = find(comm);
  if (held == nullptr || held->pending.empty() || !held->pending.front()->started) return {};
  const Exchange& oldest = *held->pending.front();
  const Exchange::Part* missing = nullptr;
  for (const Exchange::Part& part : oldest.parts) {
    if (part.fate == Exchange::Fate::over) continue;
    if (missing == nullptr || (missing->fate != Exchange::Fate::open && part.fate == Exchange::Fate::open))
      missing = &part;
  }
  Unmatched out;
  out.pending = true;
  out.op = oldest.op;
  if (missing != nullptr) {
    out.peer = missing->piece.peer;
    out.waits_for_send = !missing->piece.send;
  }
  return out;
}

}  // namespace seeksim::runtime
