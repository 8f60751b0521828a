// Where rules meet operations: each verb first applies the faults of its host, then attaches fates to what it sends.
#include "faults/faulty_transport.h"

#include <algorithm>

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
  host_.check_device();
  const DiesAt ours = host_.enter(op);
  std::span<const Piece> brought = with_fates(op, pieces);
  Op as = moved(comm, op);
  const Rule* rule = pieces.empty() ? nullptr : mismatched(op);
  if (rule != nullptr) {
    if (brought.data() == pieces.data()) brought = pieces_ = {pieces.begin(), pieces.end()};
    if (!change(*rule, comm, as)) return CommResult::success;  // as NCCL does with no elements
  }
  return inner_.exchange(queue.underlying(), comm, as, brought, ours == DiesAt::never ? dies : ours);
}

// ---- bringing something else -------------------------------------------------------------------------------------

const Rule* FaultyTransport::mismatched(const Op& op) {
  if (rules_.mismatches.empty()) return nullptr;
  Op ours = op;
  ours.rank = rank_;
  for (RuleState* state : rules_.mismatches) {
    if (!state->asks(ours, clock_.now())) continue;
    state->record(clock_.now(), rank_, &ours);
    return &state->rule();
  }
  return nullptr;
}

// NCCL has no sequence numbers: the n-th operation of a rank meets the n-th of the others.
Op FaultyTransport::moved(Comm comm, Op op) {
  if (rules_.mismatches.empty()) return op;
  if (const auto left_out = shift_.find(comm.handle); left_out != shift_.end())
    op.sequence -= std::uint64_t(left_out->second);
  if (const auto free = swapped_.find(comm.handle); free != swapped_.end() && op.sequence == free->second + 1) {
    op.sequence = free->second;
    swapped_.erase(free);
  }
  return op;
}

// False: this rank takes no part in it.
bool FaultyTransport::change(const Rule& rule, Comm comm, Op& op) {
  switch (rule.mode) {
    case Mode::op:
      op.kind = op.kind == OpKind::all_gather ? OpKind::reduce_scatter : OpKind::all_gather;
      return true;
    case Mode::count:
      for (Piece& piece : pieces_) piece.hi = piece.lo + (piece.hi - piece.lo) / 8 * 4;
      op.bytes = op.bytes / 8 * 4;  // so that flight recorders show what was brought
      return true;
    case Mode::dtype:
      for (Piece& piece : pieces_)
        piece.type = piece.type == runtime::ElementType::f32 ? runtime::ElementType::i32 : runtime::ElementType::f32;
      return true;
    case Mode::swap_order:
      swapped_[comm.handle] = op.sequence;
      ++op.sequence;
      return true;
    case Mode::skip:
      ++shift_[comm.handle];
      return false;
    default:  // count0
      return false;
  }
}

// ---- fates -------------------------------------------------------------------------------------------------------

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
    // A link stays broken once a rule has touched it, so later messages meet it too, whatever their step.
    const bool lasts = is_link(rule.kind) || rule.kind == FaultKind::zombie_message;
    if (lasts || could_match_on_any_rank(rule, op) || could_match_on_any_rank(rule, gather)) return false;
  }
  return inner_.has_native(comm, op);
}

// A sum that the wrapped transport makes itself: no single message of it can be disturbed.
template <class Sum>
CommResult FaultyTransport::as_one(Comm comm, const Op& op, bool takes_part, Sum&& sum) {
  if (host_.gone()) return CommResult::internal;
  host_.check_device();
  const DiesAt dies = takes_part ? host_.enter(op) : DiesAt::never;
  const CommResult result = sum(moved(comm, op));
  if (dies != DiesAt::never) host_.die();
  return result;
}

CommResult FaultyTransport::tree_all_reduce(runtime::Queue& queue, Comm comm, const Op& op,
                                            const runtime::TreeReduce& reduce) {
  return as_one(comm, op, true,
                [&](const Op& one) { return inner_.tree_all_reduce(queue.underlying(), comm, one, reduce); });
}

CommResult FaultyTransport::tree_reduce_scatter(runtime::Queue& queue, Comm comm, const Op& op,
                                                const runtime::TreeScatter& scatter) {
  const bool takes_part = !scatter.pieces.empty();  // as in an exchange: without pieces it takes no part
  return as_one(comm, op, takes_part,
                [&](const Op& one) { return inner_.tree_reduce_scatter(queue.underlying(), comm, one, scatter); });
}

CommResult FaultyTransport::library_all_reduce(runtime::Queue& queue, Comm comm, const Op& op,
                                               runtime::VecView<const float> values, runtime::VecView<float> out) {
  return as_one(comm, op, true,
                [&](const Op& one) { return inner_.library_all_reduce(queue.underlying(), comm, one, values, out); });
}

CommResult FaultyTransport::library_reduce(runtime::Queue& queue, Comm comm, const Op& op,
                                           runtime::VecView<const float> values,
                                           std::span<const runtime::SumShare> shares) {
  return as_one(comm, op, true,
                [&](const Op& one) { return inner_.library_reduce(queue.underlying(), comm, one, values, shares); });
}

// Building a communicator has no middle in which a rank could die: `during` is as if it had never come.
template <class Build>
Comm FaultyTransport::build(const Op& op, Build&& build) {
  const DiesAt dies = host_.enter(op);
  if (dies == DiesAt::in_flight) host_.die();
  memory_.before_communicator(op);
  const Comm comm = build();
  if (dies == DiesAt::after) host_.die();
  return comm;
}

runtime::CommSpec FaultyTransport::misbuilt(const Op& op, runtime::CommSpec spec) {
  Op ours = op;
  ours.rank = rank_;
  for (RuleState* state : rules_.inits) {
    if (spec.members.size() < 2 || !state->asks(ours, clock_.now())) continue;
    state->record(clock_.now(), rank_, &ours);
    const auto me = std::find(spec.members.begin(), spec.members.end(), rank_);
    const auto other = me == spec.members.begin() ? me + 1 : spec.members.begin();
    if (state->rule().mode == Mode::dup_rank)
      *me = *other;
    else
      spec.members.erase(other);
  }
  return spec;
}

Comm FaultyTransport::create(const Op& op, const runtime::CommSpec& spec, TimeNs deadline) {
  const TimeNs end = shown_.true_time(deadline);
  if (rules_.inits.empty()) return build(op, [&] { return inner_.create(op, spec, end); });
  return build(op, [&] { return inner_.create(op, misbuilt(op, spec), end); });
}
Comm FaultyTransport::split(const Op& op, Comm parent, int color, int key, TimeNs deadline) {
  return build(op, [&] { return inner_.split(op, parent, color, key, shown_.true_time(deadline)); });
}
Comm FaultyTransport::shrink(const Op& op, Comm parent, std::span<const int> exclude, TimeNs deadline) {
  return build(op, [&] { return inner_.shrink(op, parent, exclude, shown_.true_time(deadline)); });
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
