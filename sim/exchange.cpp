// How pieces meet, move and get lost.
#include "sim/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "kernels/check.h"
#include "sim/core.h"

namespace seeksim::sim {

using runtime::CommResult;
using runtime::DiesAt;
using runtime::kForever;
using runtime::Piece;
using runtime::PieceFate;
using runtime::RecordState;

namespace {

constexpr std::size_t kFewPieces = 8;  // up to here a linear search beats an index

void flip_bit(const Piece& piece, std::uint64_t bit) {
  const std::uint64_t bits = (piece.hi - piece.lo) * 8;
  if (bits == 0 || piece.buffer->data == nullptr) return;
  bit %= bits;
  const kernels::Vec<std::byte> byte{piece.buffer->data + piece.lo + bit / 8, 1};
  kernels::change_on_host(piece.buffer->lane, byte,
                          [&](kernels::Vec<std::byte> b) { b[0] ^= std::byte(1u << (bit % 8)); });
}

// In a run of shapes there is nothing to move.
void move_payload(const Piece& sent, const Piece& received) {
  if (sent.buffer->data == nullptr) return;
  const kernels::Lane& lane = sent.buffer->lane.device != nullptr ? sent.buffer->lane : received.buffer->lane;
  kernels::copy_bytes(lane, sent.buffer->data + sent.lo, received.buffer->data + received.lo, sent.hi - sent.lo);
}

}  // namespace

// ---- from the transport ------------------------------------------------------------------------------------------

void Exchange::prepare(std::span<const Piece> pieces, DiesAt dies) {
  pieces_.clear();
  order_.clear();  // an exchange is used again: what it was sorted by before must not be looked at
  for (const Piece& piece : pieces) pieces_.push_back({piece});
  dies_ = dies;
  takes_ns_ = -1;
  if (pieces_.size() > kFewPieces) sort_by_peer();
}

void Exchange::sort_by_peer() {
  const auto peer = [this](std::size_t i) { return pieces_[i].piece.peer; };
  bool sorted = true;
  for (std::size_t i = 1; i < pieces_.size() && sorted; ++i) sorted = peer(i - 1) <= peer(i);
  order_.clear();
  if (sorted) return;
  order_.resize(pieces_.size());
  for (std::size_t i = 0; i < order_.size(); ++i) order_[i] = std::uint32_t(i);
  std::stable_sort(order_.begin(), order_.end(), [&](std::uint32_t a, std::uint32_t b) { return peer(a) < peer(b); });
}

Exchange::Run Exchange::run_of(int peer) const {
  if (pieces_.size() <= kFewPieces) return {0, pieces_.size()};
  std::size_t lo = 0, hi = pieces_.size();
  while (lo < hi) {
    const std::size_t middle = (lo + hi) / 2;
    if (at(middle).piece.peer < peer)
      lo = middle + 1;
    else
      hi = middle;
  }
  std::size_t end = lo;
  while (end < pieces_.size() && at(end).piece.peer == peer) ++end;
  return {lo, end};
}

// ---- meeting -----------------------------------------------------------------------------------------------------

void Exchange::post() {
  Core& core = owner->core();
  RankComm& held = owner->comm_at(comm);
  unmatched_ = std::uint32_t(pieces_.size());
  ready_ = core.loop.now();
  group_ = &held.shared->group(op.sequence);
  meets_at_ =
      object(ObjectKind::group, held.shared->id, op.sequence * 0x9e3779b97f4a7c15ull >> 28 ^ held.shared->epoch);
  core.loop.touch(meets_at_, Access::add);
  owner->touch_operations(Access::add);
  SimActivity*& mine = group_->at[std::size_t(held.position)];
  SEEKSIM_CHECK(mine == nullptr, "two operations of one rank with the same sequence number: %s", describe(op).c_str());
  mine = this;
  ++group_->posted;
  if (dies_ == DiesAt::in_flight) choose_last_sends();
  if (!group_->agrees(*this)) return;

  for (std::size_t i = 0; i < pieces_.size() && group_ != nullptr; ++i) {
    PostedPiece& piece = at(i);
    if (piece.fate != Fate::open) continue;
    const int peer = piece.piece.peer;
    SimActivity* other = group_->at[std::size_t(held.shared->position(peer))];
    if (other == nullptr || other->native) continue;
    other->owner->touch_operations(Access::add);
    meet(piece, *static_cast<Exchange*>(other));
  }
  if (core.transport.any_dead() && group_ != nullptr) {
    for (const PostedPiece& piece : pieces_) {
      const bool same_node = core.network.node_of(op.rank) == core.network.node_of(piece.piece.peer);
      if (piece.fate == Fate::open && core.transport.known_dead(piece.piece.peer, same_node))
        owner->fail(comm, CommResult::remote_error, fmt::format("rank {} is gone", piece.piece.peer));
    }
  }
}

// The first open counterpart: pieces of one pair meet in order.
void Exchange::meet(PostedPiece& mine, Exchange& other) {
  const int me = op.rank;
  const Run run = other.run_of(me);
  for (std::size_t i = run.begin; i < run.end; ++i) {
    PostedPiece& theirs = other.at(i);
    if (theirs.fate != Fate::open || theirs.piece.peer != me || theirs.piece.send == mine.piece.send) continue;
    if (!agree_on(mine, other, theirs)) return;
    if (mine.piece.send)
      transfer(*this, mine, other, theirs);
    else
      transfer(other, theirs, *this, mine);
    return;
  }
}

bool Exchange::agree_on(const PostedPiece& mine, Exchange& other, const PostedPiece& theirs) {
  if (same_meaning(op, other.op) && mine.bytes() == theirs.bytes() && mine.piece.type == theirs.piece.type) [[likely]]
    return true;
  const auto more = [](const PostedPiece& piece, int peer) {
    return fmt::format(" with {} bytes of {} {} rank {}", piece.bytes(), name(piece.piece.type),
                       piece.piece.send ? "to" : "from", peer);
  };
  tell_mismatch(*this, &other, mismatch_text(op, more(mine, other.op.rank), other.op, more(theirs, op.rank)));
  return false;
}

void Exchange::transfer(Exchange& from, PostedPiece& sent, Exchange& to, PostedPiece& received) {
  const PieceFate* fate = sent.piece.fate != nullptr ? sent.piece.fate : received.piece.fate;
  if (fate != nullptr) return transfer_with_fate(from, sent, to, received, *fate);
  Core& core = from.owner->core();
  const std::size_t bytes = sent.bytes();
  const TimeNs when = from.takes_ns_ < 0 || to.takes_ns_ < 0
                          ? core.network.arrival(core.loop.now(), from.op.rank, to.op.rank, bytes)
                          : runtime::later(core.loop.now(), std::max(from.takes_ns_, to.takes_ns_));
  move_payload(sent.piece, received.piece);
  if (core.plan.stale_messages_taken) core.loop.touch(object(ObjectKind::network, 2), Access::write);
  if (core.transport.zombies_wait()) core.transport.land_on(from.op.rank, received.piece);
  draw(from, to, when);
  from.piece_over(sent, when);
  to.piece_over(received, when);
}

// For the picture: a message by itself, or a part of an operation that consists of messages.
void Exchange::draw(const Exchange& from, const Exchange& to, TimeNs received) {
  Core& core = from.owner->core();
  if (core.timeline == nullptr) return;
  core.timeline->message(*from.queue, from.op.rank, *to.queue, to.op.rank, core.loop.now(), received);
}

void Exchange::transfer_with_fate(Exchange& from, PostedPiece& sent, Exchange& to, PostedPiece& received,
                                  const PieceFate& fate) {
  Core& core = from.owner->core();
  const TimeNs now = core.loop.now();
  const int sender = from.op.rank, receiver = to.op.rank;
  const auto touched = [&] {
    if (fate.touched_ns < 0) fate.touched_ns = now;
    from.owner->rank().recorder.touched_by(from.record, fate.rule);
    to.owner->rank().recorder.touched_by(to.record, fate.rule);
  };
  TimeNs when = core.network.arrival(now, sender, receiver, sent.bytes(), fate.slow_factor, fate.delay_ns);
  if (fate.slow_factor != 1.0 || fate.delay_ns != 0) touched();

  if (fate.drop) {
    touched();
    core.story(receiver,
               fmt::format("the message of rank {} to rank {} in {} is lost", sender, receiver, describe(to.op)));
    received.fate = Fate::lost;
    from.piece_over(sent, when);
    return;
  }
  if (fate.down_from < when && fate.down_until > now) {
    touched();
    const LinkModel& link = core.network.link(sender, receiver);
    const bool short_enough =
        fate.down_until != kForever && fate.down_until - fate.down_from <= link.retransmit_hides_ns;
    if (!short_enough) {
      sent.fate = received.fate = Fate::lost;
      core.story(sender, fmt::format("the link from rank {} to rank {} is down: {} cannot pass", sender, receiver,
                                     describe(from.op)));
      if (link.notice_cut_ns < 0) return;
      const auto tell = [&core, a = from.owner, a_comm = from.comm, b = to.owner, b_comm = to.comm, sender, receiver] {
        const std::string why = fmt::format("the link from rank {} to rank {} is cut", sender, receiver);
        a->fail(a_comm, CommResult::remote_error, why);
        b->fail(b_comm, CommResult::remote_error, why);
      };
      core.loop.call_at(runtime::later(std::max(now, fate.down_from), link.notice_cut_ns),
                        arrival(Arrival::error, sender, from.record), tell);
      return;
    }
    when = runtime::later(fate.down_until, when - now);
  }
  move_payload(sent.piece, received.piece);
  if (core.transport.zombies_wait()) core.transport.land_on(sender, received.piece);
  if (fate.replay_ns > 0 && sent.piece.buffer->data != nullptr) {
    touched();
    std::vector<std::byte> bytes(sent.piece.hi - sent.piece.lo);
    kernels::copy_bytes(sent.piece.buffer->lane, sent.piece.buffer->data + sent.piece.lo, bytes.data(), bytes.size());
    TransportHub::Zombie zombie{sender, receiver, describe(from.op), std::move(bytes)};
    core.loop.call_at(runtime::later(when, fate.replay_ns), arrival(Arrival::zombie, receiver, to.record),
                      [&core, zombie = std::move(zombie)] { core.transport.rises(zombie); });
  }
  if (fate.corrupt) {
    touched();
    flip_bit(received.piece, fate.corrupt_bit);
    if (fate.checksum) {
      received.fate =
          Fate::lost;  // it arrives and is not accepted: the exchange cannot end, and knows for want of what
      from.piece_over(sent, when);
      core.loop.call_at(
          when, arrival(Arrival::error, receiver, to.record), [owner = to.owner, index = to.comm, sender] {
            owner->fail(index, CommResult::system, fmt::format("a message of rank {} fails its checksum", sender));
          });
      return;
    }
  }
  draw(from, to, when);
  from.piece_over(sent, when);
  to.piece_over(received, when);
}

void Exchange::piece_over(PostedPiece& piece, TimeNs when) {
  piece.fate = Fate::under_way;
  piece.over_ns = when;
  ready_ = std::max(ready_, when);
  if (dies_ == DiesAt::in_flight && piece.piece.send && --sends_until_death_ == 0) die(ready_);
  if (--unmatched_ != 0) return;
  group_->leave(owner->comm_at(comm).position);
  group_ = nullptr;
  owner->core().loop.at(ready_, *this, generation);
}

// ---- dying in the middle -----------------------------------------------------------------------------------------

// A drawn number of the sends gets through, never all.
void Exchange::choose_last_sends() {
  std::uint32_t sends = 0;
  for (const PostedPiece& piece : pieces_) sends += piece.piece.send ? 1 : 0;
  owner->core().loop.touch(object(ObjectKind::network, 1), Access::write);  // the next draw is another one
  sends_until_death_ = sends == 0 ? 0 : owner->core().transport.partial.below(sends);
  std::uint32_t seen = 0;
  for (PostedPiece& piece : pieces_)
    if (piece.piece.send && seen++ >= sends_until_death_) piece.fate = Fate::withheld;
  if (sends_until_death_ == 0) die(owner->core().loop.now() + owner->core().network.between().latency_ns);
}

void Exchange::die(TimeNs when) {
  Core& core = owner->core();
  core.loop.call_at(when, arrival(Arrival::dies, op.rank, record),
                    [&core, rank = op.rank, what = describe(op)] { core.kill(rank, "died in the middle of " + what); });
}

// ---- the end -----------------------------------------------------------------------------------------------------

void Exchange::fire(const Timer&) {
  owner->core().loop.touch(meets_at_, Access::after);
  if (dies_ == DiesAt::after) {
    const std::string what = describe(op);
    owner->core().kill(op.rank, "died right after " + what);  // drops this exchange too
    return;
  }
  end(RecordState::completed);
}

void Exchange::withdraw() {
  if (group_ != nullptr) owner->core().loop.touch(meets_at_, Access::write);
  if (group_ != nullptr) group_->leave(owner->comm_at(comm).position);
  group_ = nullptr;
  if (dies_ == DiesAt::in_flight) die(owner->core().loop.now());  // no peer came; it dies all the same
}

void Exchange::scribble() {
  for (const PostedPiece& posted : pieces_)
    if (!posted.piece.send) scribble_on(*posted.piece.buffer, posted.piece.lo, posted.piece.hi);
}

void Exchange::recycle() { owner->give_back(*this); }

bool Exchange::waits_on(int rank) const {
  if (state != State::started) return false;
  return std::any_of(pieces_.begin(), pieces_.end(), [&](const PostedPiece& posted) {
    return posted.piece.peer == rank && posted.fate != Fate::under_way;
  });
}

// A lost piece will never come; an open piece may still come; a late piece has not arrived yet.
runtime::Transport::Unmatched Exchange::unmatched() const {
  if (state != State::started) return {};
  const TimeNs now = owner->core().loop.now();
  const auto first = [this](auto is) { return std::find_if(pieces_.begin(), pieces_.end(), is); };
  auto missing = first([](const PostedPiece& p) { return p.fate == Fate::lost; });
  if (missing == pieces_.end()) missing = first([](const PostedPiece& p) { return p.fate == Fate::open; });
  if (missing == pieces_.end()) {
    missing = first([now](const PostedPiece& p) { return p.fate == Fate::under_way && p.over_ns > now; });
  }
  runtime::Transport::Unmatched out;
  out.pending = true;
  out.op = op;
  if (missing != pieces_.end()) {
    out.peer = missing->piece.peer;
    out.waits_for_send = !missing->piece.send;
  }
  return out;
}

std::string Exchange::waits_for() const {
  std::string text;
  int named = 0;
  for (const PostedPiece& posted : pieces_) {
    if (posted.fate == Fate::under_way || posted.fate == Fate::withheld) continue;
    if (named++ == 8) return text + ", ...";
    text += fmt::format("{}rank {} ({})", named == 1 ? "" : ", ", posted.piece.peer,
                        posted.fate == Fate::lost ? "lost"
                        : posted.piece.send       ? "to take it"
                                                  : "its message");
  }
  return text.empty() ? "the network" : text;
}

}  // namespace seeksim::sim
