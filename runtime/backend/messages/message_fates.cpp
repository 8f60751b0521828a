// What a fault rule does to a message on its way: it is lost, held back or damaged. Such a message travels as a copy of
// its own: the sender's buffer is as it was, and free at once.
#include <algorithm>

#include "kernels/check.h"
#include "runtime/backend/messages/message_head.h"
#include "runtime/backend/wire/checksum.h"

namespace seeksim::runtime {

void MessageTransport::disturb(Exchange& exchange, const Piece& piece, Head head) {
  const PieceFate& fate = *piece.fate;
  const std::span<const std::byte> payload = bytes_of(piece);
  SEEKSIM_CHECK(fate.slow_factor == 1.0 && fate.replay_ns == 0,
                "messages between processes are lost, held back or damaged, and no more, in %s",
                describe(exchange.op).c_str());
  const TimeNs now = loop_.now();
  const bool down = fate.down_from <= now && now < fate.down_until;
  TimeNs until = later(now, fate.delay_ns);
  if (down) until = later(fate.down_until, fate.delay_ns);            // it is sent again until it gets through
  const bool as_it_is = !fate.drop && !fate.corrupt && until == now;  // a cut that is to come, or is over
  if (!as_it_is && fate.touched_ns < 0) fate.touched_ns = now;
  if (!as_it_is) recorder_.touched_by(exchange.record, fate.rule);
  if (fate.drop || (down && fate.down_until == kForever)) return;
  std::vector<std::byte> copy(payload.begin(), payload.end());
  if (fate.corrupt && !copy.empty()) {
    if (fate.checksum) head.check = checksum(copy);
    const std::uint64_t bit = fate.corrupt_bit % (8 * copy.size());
    copy[bit / 8] ^= std::byte(1u << (bit % 8));
  }
  if (until > now) return hold_back(until, piece.peer, head, std::move(copy));
  send_copy(piece.peer, head, std::move(copy));
}

void MessageTransport::hold_back(TimeNs until, int to, const Head& head, std::vector<std::byte> payload) {
  const auto place = std::upper_bound(held_back_.begin(), held_back_.end(), until,
                                      [](TimeNs at, const HeldBack& other) { return at < other.at; });
  held_back_.insert(place, {until, to, head, std::move(payload)});
}

void MessageTransport::send_copy(int to, const Head& head, std::vector<std::byte> payload) {
  if (payload.size() <= Head::kRoom) return send_small(to, head, payload);
  const auto* bytes = reinterpret_cast<const std::byte*>(&head);
  const Wire::Ticket ticket = wire_.send(to, {bytes, sizeof head}, payload);
  if (ticket != 0) disturbed_[ticket] = std::move(payload);
}

bool MessageTransport::poll() {
  bool moved = false;
  while (!held_back_.empty() && held_back_.front().at <= loop_.now()) {
    HeldBack message = std::move(held_back_.front());
    held_back_.pop_front();
    send_copy(message.to, message.head, std::move(message.payload));
    moved = true;
  }
  return moved;
}

// It arrived and is not accepted: the operation cannot end, and the communicator says why.
void MessageTransport::came_damaged(Exchange& exchange) { fail(comms_[exchange.comm], CommResult::system); }

}  // namespace seeksim::runtime
