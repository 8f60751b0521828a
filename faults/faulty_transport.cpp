// Where rules meet operations: each verb asks for its host first, then attaches fates to what it sends.
#include "faults/faulty_transport.h"

namespace seeksim::faults {

using runtime::Comm;
using runtime::CommResult;
using runtime::DiesAt;
using runtime::Op;
using runtime::OpKind;
using runtime::Piece;
using runtime::PieceFate;

CommResult FaultyTransport::exchange(runtime::Queue& queue, Comm comm, const Op& op, std::span<const Piece> pieces,
                                     DiesAt dies) {
  if (host_.gone()) return CommResult::internal;
  const DiesAt ours = host_.enter(op);
  return inner_.exchange(queue.underlying(), comm, op, with_fates(op, pieces), ours == DiesAt::never ? dies : ours);
}

std::span<const Piece> FaultyTransport::with_fates(const Op& op, std::span<const Piece> pieces) {
  if (rules_.messages.empty() && rules_.links.empty()) return pieces;
  const TimeNs now = clock_.now();
  pieces_.assign(pieces.begin(), pieces.end());
  for (Piece& piece : pieces_) {
    const bool travels = piece.hi > piece.lo || op.kind == OpKind::barrier;
    if (!piece.send || !travels || piece.peer == rank_) continue;
    Op one = op;
    one.rank = rank_;
    one.peer = piece.peer;
    one.bytes = piece.hi - piece.lo;
    if (const PieceFate* fate = fate_of(one, now)) piece.fate = fate;
  }
  return pieces_;
}

const PieceFate* FaultyTransport::fate_of(const Op& piece, TimeNs now) {
  fates_.clear();
  for (MessageFault* message : rules_.messages) {
    if (!message->state.asks(piece, now)) continue;
    message->state.record(now, rank_, &piece);
    fates_.push_back(&message->fate);
  }
  for (LinkFault* link : rules_.links) {
    if (!link->covers(rank_, piece.peer)) continue;
    if (const PieceFate* fate = link->fate(piece, now)) fates_.push_back(fate);
  }
  return combined_.combine(fates_);
}

bool FaultyTransport::has_native(Comm comm, const Op& op) const {
  if (host_.gone()) return false;
  Op gather = op;  // how the second half of an all-reduce travels when it is not native
  if (op.kind == OpKind::all_reduce) gather.kind = OpKind::all_gather;
  for (const RuleState* state : rules_.per_message) {
    const Rule& rule = state->rule();
    // A link stays as it is once a rule has touched it, so what comes later meets it too, whatever its step.
    if (is_link(rule.kind) || could_match_on_any_rank(rule, op) || could_match_on_any_rank(rule, gather)) return false;
  }
  return inner_.has_native(comm, op);
}

CommResult FaultyTransport::tree_all_reduce(runtime::Queue& queue, Comm comm, const Op& op,
                                            const runtime::TreeReduce& reduce) {
  if (host_.gone()) return CommResult::internal;
  const DiesAt dies = host_.enter(op);
  const CommResult result = inner_.tree_all_reduce(queue.underlying(), comm, op, reduce);
  if (dies != DiesAt::never) host_.die();  // only for callers that did not ask has_native
  return result;
}

CommResult FaultyTransport::tree_reduce_scatter(runtime::Queue& queue, Comm comm, const Op& op,
                                                const runtime::TreeScatter& scatter) {
  if (host_.gone()) return CommResult::internal;
  const DiesAt dies = scatter.pieces.empty() ? DiesAt::never : host_.enter(op);  // as an exchange: no pieces, no part
  const CommResult result = inner_.tree_reduce_scatter(queue, comm, op, scatter);
  if (dies != DiesAt::never) host_.die();  // only for callers that did not ask has_native
  return result;
}

// Building a communicator has no middle in which a rank could be gone: `during` is as if it had never come.
template <class Build>
Comm FaultyTransport::build(const Op& op, Build&& build) {
  const DiesAt dies = host_.enter(op);
  if (dies == DiesAt::in_flight) host_.die();
  memory_.before_communicator(op);
  const Comm comm = build();
  if (dies == DiesAt::after) host_.die();
  return comm;
}

Comm FaultyTransport::create(const Op& op, const runtime::CommSpec& spec, TimeNs deadline) {
  return build(op, [&] { return inner_.create(op, spec, deadline); });
}
Comm FaultyTransport::split(const Op& op, Comm parent, int color, int key, TimeNs deadline) {
  return build(op, [&] { return inner_.split(op, parent, color, key, deadline); });
}
Comm FaultyTransport::shrink(const Op& op, Comm parent, std::span<const int> exclude, TimeNs deadline) {
  return build(op, [&] { return inner_.shrink(op, parent, exclude, deadline); });
}

CommResult FaultyTransport::async_error(Comm comm) {
  return host_.gone() ? CommResult::success : inner_.async_error(comm);
}
CommResult FaultyTransport::revoke(Comm comm) { return host_.gone() ? CommResult::success : inner_.revoke(comm); }
CommResult FaultyTransport::abort(std::span<const Comm> comms) {
  return host_.gone() ? CommResult::success : inner_.abort(comms);
}
CommResult FaultyTransport::finalize(Comm comm) { return host_.gone() ? CommResult::success : inner_.finalize(comm); }
CommResult FaultyTransport::destroy(Comm comm) { return host_.gone() ? CommResult::success : inner_.destroy(comm); }
runtime::Transport::Unmatched FaultyTransport::unmatched(Comm comm) const {
  return host_.gone() ? Unmatched{} : inner_.unmatched(comm);
}

}  // namespace seeksim::faults
