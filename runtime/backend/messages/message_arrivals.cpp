// What comes from peers. Nothing that a peer sends is believed: a piece lands in a buffer only when its head names what
// the receiver awaits, its bytes are as many as the head says, and no other piece has come in its place.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "kernels/check.h"
#include "runtime/backend/messages/message_head.h"
#include "runtime/backend/wire/checksum.h"

namespace seeksim::runtime {
namespace {

// Messages from one rank that came before their operations. A rank runs ahead of another by a few operations.
constexpr std::size_t kEarlyMemoryMax = std::size_t(64) << 20;
constexpr std::size_t kTextsKept = 8;

}  // namespace

void MessageTransport::complain(std::string text) {
  if (complaints_.size() < kTextsKept) complaints_.push_back({loop_.now(), std::move(text)});
}

// The sender runs another program, or is no rank of this job: nothing else that it sends can be trusted.
void MessageTransport::refuse(const Early& message, const std::string& what) {
  complain(fmt::format("rank {} sent {}", message.from, what));
  fail_all_with(message.from, CommResult::remote_error);
  throw_away(message);
}

void MessageTransport::fail_all_with(int member, CommResult error) {
  for (Held& held : comms_) {
    if (std::find(held.members.begin(), held.members.end(), member) != held.members.end()) fail(held, error);
  }
}

void MessageTransport::arrived(int from, std::span<const std::byte> bytes, Wire::Ticket payload) {
  Early message;
  message.from = from;
  message.ticket = payload;
  if (bytes.size() < sizeof(Head)) return refuse(message, fmt::format("a message of {} bytes", bytes.size()));
  std::memcpy(&message.head, bytes.data(), sizeof(Head));
  const Head& head = message.head;
  if (head.magic != Head::kMagic || head.kind > Head::kJoined)
    return refuse(message, "what is no message of this program");
  if (head.run != run_) return throw_away(message);
  const std::span<const std::byte> more = bytes.subspan(sizeof(Head));
  if (head.kind != Head::kPiece) {
    if (payload != 0) return refuse(message, "a payload with a message that has none");
    return arrive(head, from, more);
  }
  message.payload.assign(more.begin(), more.end());
  const std::uint64_t came = payload == 0 ? more.size() : wire_.announced_bytes(payload);
  if (came != head.bytes || (payload != 0 && !more.empty()))
    return refuse(message, fmt::format("{} bytes under a head that says {}", came, head.bytes));
  const Key key{head.comm, head.epoch};
  if (gone_.contains(key)) return throw_away(message);
  if (const auto handle = handles_.find(key); handle != handles_.end()) {
    const Held& held = comms_[handle->second - 1];
    const auto at = std::find_if(held.pending.begin(), held.pending.end(),
                                 [&](const Exchange* exchange) { return exchange->op.sequence == head.sequence; });
    if (at == held.pending.end() && head.sequence <= held.last_sequence)
      return refuse(message, fmt::format("a piece of operation #{}, which is over", head.sequence));
    if (at != held.pending.end() && (*at)->started) {
      Exchange& exchange = **at;
      take(exchange, message);
      return end_if_over(exchange);
    }
  }
  keep(key, std::move(message));
}

void MessageTransport::keep(const Key& key, Early message) {
  std::size_t& memory = early_memory_[message.from];
  if (memory + message.memory() > kEarlyMemoryMax)
    return refuse(message, fmt::format("more than {} MiB that no operation awaits", kEarlyMemoryMax >> 20));
  memory += message.memory();
  early_[key].push_back(std::move(message));
}

// What came before its operation, in the order in which it came.
std::vector<MessageTransport::Early> MessageTransport::take_kept(const Key& key, std::uint64_t sequence) {
  std::vector<Early> taken;
  const auto found = early_.find(key);
  if (found == early_.end()) return taken;
  std::vector<Early>& waiting = found->second;
  const auto mine = std::stable_partition(waiting.begin(), waiting.end(),
                                          [&](const Early& message) { return message.head.sequence != sequence; });
  taken.assign(std::make_move_iterator(mine), std::make_move_iterator(waiting.end()));
  waiting.erase(mine, waiting.end());
  for (const Early& message : taken) early_memory_[message.from] -= message.memory();
  return taken;
}

// The receiver looks at what it gets: kind, axis, step, micro-batch, tensor, bytes and type are what it asked for.
void MessageTransport::take(Exchange& exchange, const Early& message) {
  const Head& head = message.head;
  const Op& op = exchange.op;
  const auto part = std::find_if(exchange.parts.begin(), exchange.parts.end(), [&](const Exchange::Part& p) {
    return !p.piece.send && p.piece.peer == message.from && p.number == head.number;
  });
  const bool same = part != exchange.parts.end() && head.op == op.kind && head.axis == op.axis &&
                    head.step == op.step && head.micro_batch == op.micro_batch && head.tensor == hash_of(op.tensor) &&
                    head.bytes == part->piece.hi - part->piece.lo && head.type == part->piece.type;
  ++compared_;
  if (!same) {
    if (mismatches_.size() < kTextsKept) {
      mismatches_.push_back(
          fmt::format("rank {} sent {} bytes of a {} (step {}, micro-batch {}), rank {} awaits {} at {}", message.from,
                      head.bytes, name(head.op), head.step, head.micro_batch, rank_, describe(op), op.site));
    }
    fail(comms_[exchange.comm], CommResult::invalid_usage);
    return throw_away(message);
  }
  if (part->fate != Exchange::Fate::open)
    return refuse(message, fmt::format("piece {} of {} again", head.number, describe(op)));
  const auto index = std::size_t(part - exchange.parts.begin());
  if (message.ticket == 0) {
    if (head.check != 0 && checksum(message.payload) != head.check) return came_damaged(exchange);
    std::copy(message.payload.begin(), message.payload.end(), bytes_of(part->piece).begin());
    return piece_over(exchange, index);
  }
  part->check = head.check;
  part->fate = Exchange::Fate::on_the_wire;
  ++exchange.on_the_wire;
  on_the_wire_[message.ticket] = {&exchange, index};
  wire_.receive(message.ticket, bytes_of(part->piece));
}

MessageTransport::OnTheWire MessageTransport::off_the_wire(Wire::Ticket ticket) {
  const auto found = on_the_wire_.find(ticket);
  SEEKSIM_CHECK(found != on_the_wire_.end(), "the wire ends an unknown message");
  const OnTheWire ended = found->second;
  on_the_wire_.erase(found);
  --ended.exchange->on_the_wire;
  return ended;
}

// What a head was about is not known where the head itself is damaged: all that the sender has a part in is in doubt.
void MessageTransport::damaged(int from, Wire::Ticket payload) {
  if (payload != 0) {
    const OnTheWire ended = off_the_wire(payload);
    complain(fmt::format("a message of rank {} was damaged on its way: {}", from, describe(ended.exchange->op)));
    came_damaged(*ended.exchange);
    return end_if_over(*ended.exchange);
  }
  complain(fmt::format("a message of rank {} was damaged on its way", from));
  fail_all_with(from, CommResult::system);
}

void MessageTransport::over(Wire::Ticket ticket) {
  if (disturbed_.erase(ticket) > 0) return;
  const OnTheWire ended = off_the_wire(ticket);
  const Exchange::Part& part = ended.exchange->parts[ended.piece];
  if (part.check != 0 && checksum(bytes_of(part.piece)) != part.check)
    came_damaged(*ended.exchange);
  else
    piece_over(*ended.exchange, ended.piece);
  end_if_over(*ended.exchange);
}

void MessageTransport::throw_away(const Early& message) {
  ++thrown_away_;
  if (message.ticket != 0) wire_.discard(message.ticket);
}

}  // namespace seeksim::runtime
