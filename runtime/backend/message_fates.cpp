// What a fault rule does to a message on its way: it is lost, held back or damaged. Such a message travels as a copy of
// its own: the sender's buffer is as it was, and free at once.
#include "kernels/check.h"
#include "runtime/backend/message_head.h"

namespace seeksim::runtime {

void MessageTransport::disturb(Exchange& exchange, const Piece& piece, Head head) {
  const PieceFate& fate = *piece.fate;
  const std::span<const std::byte> payload = bytes_of(piece);
  SEEKSIM_CHECK(fate.slow_factor == 1.0 && fate.replay_ns == 0 && fate.down_from == kForever,
                "messages between processes are lost, held back or damaged, and no more, in %s",
                describe(exchange.op).c_str());
  if (fate.touched_ns < 0) fate.touched_ns = loop_.now();
  recorder_.touched_by(exchange.record, fate.rule);
  if (fate.drop) return;
  std::vector<std::byte> copy(payload.begin(), payload.end());
  if (fate.corrupt && !copy.empty()) {
    if (fate.checksum) head.check = hash_of(copy);
    const std::uint64_t bit = fate.corrupt_bit % (8 * copy.size());
    copy[bit / 8] ^= std::byte(1u << (bit % 8));
  }
  if (fate.delay_ns > 0)
    held_back_.push_back({later(loop_.now(), fate.delay_ns), piece.peer, head, std::move(copy)});
  else
    send_copy(piece.peer, head, std::move(copy));
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
void MessageTransport::damaged(Exchange& exchange) { fail(comms_[exchange.comm], CommResult::system); }

}  // namespace seeksim::runtime
