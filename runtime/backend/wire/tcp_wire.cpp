// One stream a pair of processes: a prefix, a head, a payload, one after the other.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/check.h"
#include "runtime/backend/wire/tcp_world.h"

namespace seeksim::runtime {

TcpWire::TcpWire(int rank, std::vector<Socket> peers, const Limits& limits)
    : rank_(rank), limits_(limits), peers_(peers.size()) {
  for (std::size_t i = 0; i < peers.size(); ++i) peers_[i].socket = std::move(peers[i]);
}

// ---- out -----------------------------------------------------------------------------------------------------------

void TcpWire::post(int to, Prefix prefix, std::span<const std::byte> head, Outgoing outgoing) {
  seal(prefix, head, outgoing.payload);
  outgoing.own.resize(sizeof prefix + head.size());
  std::memcpy(outgoing.own.data(), &prefix, sizeof prefix);
  if (!head.empty()) std::memcpy(outgoing.own.data() + sizeof prefix, head.data(), head.size());
  Peer& peer = peers_.at(std::size_t(to));
  if (peer.closed) return;  // what is sent there arrives nowhere
  peer.out.push_back(std::move(outgoing));
  if (to != rank_) flush(peer);
}

Wire::Ticket TcpWire::send(int to, std::span<const std::byte> head, std::span<const std::byte> payload) {
  Prefix prefix;
  prefix.head_bytes = std::uint32_t(head.size());
  prefix.payload_bytes = payload.size();
  Outgoing outgoing;
  outgoing.payload = payload;
  if (!payload.empty()) outgoing.ticket = ++tickets_;
  const Ticket ticket = outgoing.ticket;
  post(to, prefix, head, std::move(outgoing));
  return ticket;
}

void TcpWire::send_text(int to, std::span<const std::byte> text) {
  Prefix prefix;
  prefix.is_text = 1;
  prefix.payload_bytes = text.size();
  Outgoing outgoing;
  outgoing.kept_payload.assign(text.begin(), text.end());
  outgoing.payload = outgoing.kept_payload;  // a moved vector keeps its elements
  post(to, prefix, {}, std::move(outgoing));
}

bool TcpWire::flush(Peer& peer) {
  bool moved = false;
  while (!peer.out.empty() && !peer.closed) {
    Outgoing& front = peer.out.front();
    const std::size_t own = front.own.size();
    const bool in_head = front.sent < own;
    const std::span<const std::byte> part =
        in_head ? std::span<const std::byte>(front.own).subspan(front.sent) : front.payload.subspan(front.sent - own);
    if (!part.empty()) {
      const int n = peer.socket.send_some(part);
      if (n <= 0) return moved;  // the reader notices a peer that is gone
      front.sent += std::size_t(n);
      moved = true;
    }
    if (front.sent < own + front.payload.size()) continue;
    if (front.ticket != 0) ended_.push_back({front.ticket});
    peer.out.pop_front();
  }
  return moved;
}

// ---- in ------------------------------------------------------------------------------------------------------------

bool TcpWire::read(int rank, Peer& peer) {
  std::array<std::byte, 1 << 16> bytes;
  if (rank == rank_) {  // to itself: the same bytes, without a socket
    if (peer.out.empty()) return false;
    Outgoing outgoing = std::move(peer.out.front());
    peer.out.pop_front();
    took(rank, peer, outgoing.own);
    if (!outgoing.payload.empty()) took(rank, peer, outgoing.payload);
    if (outgoing.ticket != 0) ended_.push_back({outgoing.ticket});
    return true;
  }
  if (peer.payload != 0) {  // a large one goes straight to where it is wanted
    const Incoming& incoming = incoming_.at(peer.payload);
    if (incoming.wanted && incoming.bytes - incoming.come > bytes.size()) return read_payload(rank, peer);
  }
  const int n = peer.socket.receive(bytes);
  if (n < 0) lose(peer, fmt::format("rank {} closed the connection", rank));
  if (n > 0) {
    peer.received += std::uint64_t(n);
    took(rank, peer, {bytes.data(), std::size_t(n)});
  }
  return n != 0;
}

bool TcpWire::read_payload(int rank, Peer& peer) {
  Incoming& incoming = incoming_.at(peer.payload);
  const int n = peer.socket.receive(incoming.into.subspan(incoming.come));
  if (n < 0) lose(peer, fmt::format("rank {} closed the connection", rank));
  if (n <= 0) return n != 0;
  peer.received += std::uint64_t(n);
  incoming.come += std::uint64_t(n);
  if (incoming.come == incoming.bytes) settle(std::exchange(peer.payload, 0));
  return true;
}

void TcpWire::took(int rank, Peer& peer, std::span<const std::byte> bytes) {
  while (!peer.closed && !bytes.empty()) {
    if (peer.in_text)
      bytes = bytes.subspan(take_text(rank, peer, bytes));
    else if (peer.payload != 0)
      bytes = bytes.subspan(take_payload(rank, peer, bytes));
    else
      bytes = bytes.subspan(take_head(rank, peer, bytes));
  }
}

std::size_t TcpWire::take_text(int rank, Peer& peer, std::span<const std::byte> bytes) {
  const std::size_t n = std::min<std::size_t>(peer.text_left, bytes.size());
  peer.text.insert(peer.text.end(), bytes.begin(), bytes.begin() + std::ptrdiff_t(n));
  peer.text_left -= n;
  if (peer.text_left > 0) return n;
  if (checksum(peer.text) != peer.text_check) {
    lose(peer, fmt::format("rank {} sent a text that was damaged on its way", rank));
    return n;
  }
  peer.texts.push_back(std::exchange(peer.text, {}));
  peer.in_text = false;
  return n;
}

// As much of a prefix and its head as there is; what they announce, once they are whole.
std::size_t TcpWire::take_head(int rank, Peer& peer, std::span<const std::byte> bytes) {
  const auto take = [&peer, &bytes](std::size_t whole) {
    const std::size_t n = std::min(whole - peer.in.size(), bytes.size());
    peer.in.insert(peer.in.end(), bytes.begin(), bytes.begin() + std::ptrdiff_t(n));
    bytes = bytes.subspan(n);
    return n;
  };
  std::size_t taken = peer.in.size() < sizeof(Prefix) ? take(sizeof(Prefix)) : 0;
  if (peer.in.size() < sizeof(Prefix)) return taken;
  Prefix prefix;
  std::memcpy(&prefix, peer.in.data(), sizeof prefix);
  if (prefix.magic != kMagic || prefix.checks.prefix != checksum_of_prefix(prefix)) {
    look_for_prefix(rank, peer);
    return taken;
  }
  if (prefix.head_bytes > kHeadBytesMax) {
    lose(peer, fmt::format("rank {} sent what is no message", rank));
    return taken;
  }
  peer.spoke = true;
  peer.skipped = 0;
  taken += take(sizeof prefix + prefix.head_bytes);
  if (peer.in.size() == sizeof prefix + prefix.head_bytes) begin(rank, peer, prefix);
  return taken;
}

// A damaged prefix does not say where the next message begins. That one is where the next whole prefix is.
void TcpWire::look_for_prefix(int rank, Peer& peer) {
  if (!peer.spoke) return lose(peer, fmt::format("rank {} sent what is no message, or was damaged on its way", rank));
  if (peer.skipped == 0) tell({rank, {}, 0, true});
  static constexpr auto kFirst = std::byte(kMagic & 0xff);
  const auto next = std::find(peer.in.begin() + 1, peer.in.end(), kFirst);
  peer.skipped += std::uint64_t(next - peer.in.begin());
  peer.in.erase(peer.in.begin(), next);
  if (peer.skipped > limits_.text) lose(peer, fmt::format("rank {} sends nothing but damaged messages", rank));
}

void TcpWire::begin(int rank, Peer& peer, const Prefix& prefix) {
  std::vector<std::byte> head(peer.in.begin() + sizeof prefix, peer.in.end());
  const bool damaged = checksum(head) != prefix.checks.head;
  peer.in.clear();
  if (prefix.is_text != 0) {
    if (prefix.payload_bytes > limits_.text || peer.texts.size() >= limits_.texts)
      return lose(peer, fmt::format("rank {} sent a text of {} bytes, the {}th that waits", rank, prefix.payload_bytes,
                                    peer.texts.size() + 1));
    peer.text_left = prefix.payload_bytes;
    peer.text_check = prefix.checks.payload;
    peer.in_text = prefix.payload_bytes > 0;
    if (!peer.in_text) peer.texts.emplace_back();
    return;
  }
  if (prefix.payload_bytes > 0) {
    peer.payload = ++tickets_;
    Incoming& incoming = incoming_[peer.payload];
    incoming.from = rank;
    incoming.bytes = prefix.payload_bytes;
    incoming.check = prefix.checks.payload;
    incoming.discarded = damaged;
  }
  tell({rank, std::move(head), damaged ? 0 : peer.payload, damaged});
}

void TcpWire::tell(Early message) {
  if (listener_ == nullptr) {
    Peer& peer = peers_[std::size_t(message.from)];
    peer.early += message.memory();
    early_.push_back(std::move(message));
    if (peer.early > limits_.early)
      lose(peer, fmt::format("rank {} sent more than anybody awaits", &peer - peers_.data()));
  } else if (message.damaged) {
    listener_->damaged(message.from, 0);
  } else {
    listener_->arrived(message.from, message.head, message.payload);
  }
}

std::size_t TcpWire::take_payload(int rank, Peer& peer, std::span<const std::byte> bytes) {
  Incoming& incoming = incoming_.at(peer.payload);
  const std::size_t n = std::min<std::size_t>(incoming.bytes - incoming.come, bytes.size());
  if (incoming.wanted) {
    std::memcpy(incoming.into.data() + incoming.come, bytes.data(), n);
  } else if (!incoming.discarded) {
    peer.early += n;
    if (peer.early > limits_.early) {
      lose(peer, fmt::format("rank {} sent more than anybody awaits", rank));
      return n;
    }
    incoming.early.insert(incoming.early.end(), bytes.begin(), bytes.begin() + std::ptrdiff_t(n));
  }
  incoming.come += n;
  if (incoming.come == incoming.bytes) {
    const Ticket whole = peer.payload;
    peer.payload = 0;
    settle(whole);
  }
  return n;
}

void TcpWire::take_early(Incoming& incoming) {
  peers_[std::size_t(incoming.from)].early -= incoming.early.size();
  incoming.early = {};
}

void TcpWire::settle(Ticket ticket) {
  const auto found = incoming_.find(ticket);
  const Incoming& incoming = found->second;
  if (incoming.come < incoming.bytes) return;
  if (!incoming.wanted && !incoming.discarded) return;
  const bool damaged = incoming.wanted && checksum(incoming.into) != incoming.check;
  if (incoming.wanted) ended_.push_back({ticket, damaged ? incoming.from : -1});
  incoming_.erase(found);
}

void TcpWire::receive(Ticket payload, std::span<std::byte> into) {
  Incoming& incoming = incoming_.at(payload);
  SEEKSIM_CHECK(incoming.bytes == into.size(), "a payload of %zu bytes is asked for as %zu",
                static_cast<std::size_t>(incoming.bytes), into.size());
  incoming.into = into;
  incoming.wanted = true;
  std::copy(incoming.early.begin(), incoming.early.end(), into.begin());
  take_early(incoming);
  settle(payload);
}

void TcpWire::discard(Ticket payload) {
  Incoming& incoming = incoming_.at(payload);
  incoming.discarded = true;
  take_early(incoming);
  settle(payload);
}

bool TcpWire::take_back(Ticket ticket) {
  std::erase_if(ended_, [ticket](const Ended& ended) { return ended.ticket == ticket; });
  if (const auto found = incoming_.find(ticket); found != incoming_.end()) {
    found->second.wanted = false;
    found->second.into = {};
    discard(ticket);  // the stream goes on behind it
  }
  for (Peer& peer : peers_) {
    for (Outgoing& outgoing : peer.out) {
      if (outgoing.ticket != ticket) continue;
      outgoing.ticket = 0;
      outgoing.kept_payload.assign(outgoing.payload.begin(), outgoing.payload.end());
      outgoing.payload = outgoing.kept_payload;
    }
  }
  return true;
}

void TcpWire::lose(Peer& peer, std::string why) {
  peer.closed = true;
  peer.why_closed = std::move(why);
  peer.socket.close();
  if (listener_ != nullptr) listener_->failed(peer.why_closed);
}

bool TcpWire::poll() {
  bool moved = false;
  while (listener_ != nullptr && !early_.empty()) {
    const Early message = std::move(early_.front());
    early_.pop_front();
    peers_[std::size_t(message.from)].early -= message.memory();
    tell(message);
  }
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    Peer& peer = peers_[i];
    if (peer.closed) continue;
    if (int(i) != rank_) moved |= flush(peer);
    moved |= read(int(i), peer);
  }
  const std::vector<Ended> all = std::exchange(ended_, {});
  for (const Ended& ended : all) {
    if (listener_ == nullptr) break;
    if (ended.damaged_from < 0)
      listener_->over(ended.ticket);
    else
      listener_->damaged(ended.damaged_from, ended.ticket);
  }
  return moved || !all.empty();
}

std::optional<std::vector<std::byte>> TcpWire::text_from(int rank) {
  std::deque<std::vector<std::byte>>& texts = peers_.at(std::size_t(rank)).texts;
  if (texts.empty()) return std::nullopt;
  std::vector<std::byte> text = std::move(texts.front());
  texts.pop_front();
  return text;
}

}  // namespace seeksim::runtime
