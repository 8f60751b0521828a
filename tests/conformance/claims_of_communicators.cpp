// NCCL's communicator state machine (C1 to C15), written against the seams only. C16, a kernel that hangs ahead of an
// abort, is a scenario: scenarios/faults/f10_kernel_hang.json.
#include "tests/conformance/claims.h"

namespace seeksim::conformance {
namespace {

using runtime::Transport;

CommResult any_exchange(Rank& rank, Comm comm, const BufferPtr& b, int peer = 0) {
  const Piece piece = send_to(peer, b, 0, 1);
  return rank.transport.exchange(rank.device.communication_queue(), comm, op_of(rank, OpKind::send, 99), {&piece, 1});
}
CommResult abort(Rank& rank, const std::vector<Comm>& comms) { return rank.transport.abort(comms); }

void null_dead_and_revoked(Rank& rank, const Site& site) {
  BufferPtr b = floats(rank, 1);
  EXPECT_EQ(any_exchange(rank, Comm{}, b), CommResult::invalid_argument);
  EXPECT_EQ(any_exchange(rank, Comm{77}, b), CommResult::invalid_argument);
  EXPECT_EQ(rank.transport.async_error(Comm{}), CommResult::invalid_argument);
  for (const auto verb : {&Transport::revoke, &Transport::finalize, &Transport::destroy})
    EXPECT_EQ((rank.transport.*verb)(Comm{}), CommResult::success);
  EXPECT_EQ(abort(rank, {Comm{}}), CommResult::success);
  const Comm comm = comm_of(rank, site);
  EXPECT_EQ(rank.transport.async_error(comm), CommResult::success);
  EXPECT_EQ(rank.transport.revoke(comm), CommResult::success);
  EXPECT_EQ(any_exchange(rank, comm, b), CommResult::invalid_usage);
  EXPECT_EQ(rank.transport.async_error(comm), CommResult::success);  // though revoked
  EXPECT_EQ(abort(rank, {comm}), CommResult::success);
  EXPECT_EQ(any_exchange(rank, comm, b), CommResult::invalid_argument);
  EXPECT_EQ(rank.transport.async_error(comm), CommResult::invalid_argument);
}

void revoke_and_finalize_twice(Rank& rank, const Site& site) {
  const Comm revoked = comm_of(rank, site, {0}, 0), finalized = comm_of(rank, site, {0}, 1);
  EXPECT_EQ(rank.transport.revoke(revoked), CommResult::success);
  EXPECT_EQ(rank.transport.revoke(revoked), CommResult::invalid_argument);
  EXPECT_EQ(rank.transport.finalize(revoked), CommResult::invalid_argument);
  EXPECT_EQ(rank.transport.finalize(finalized), CommResult::success);
  EXPECT_EQ(rank.transport.finalize(finalized), CommResult::invalid_argument);
  EXPECT_EQ(rank.transport.revoke(finalized), CommResult::invalid_argument);
  BufferPtr b = floats(rank, 1);
  EXPECT_EQ(any_exchange(rank, finalized, b), CommResult::invalid_usage);
  EXPECT_EQ(rank.transport.destroy(finalized), CommResult::success);
  EXPECT_EQ(rank.transport.destroy(revoked), CommResult::success);
}

void bad_piece(Rank& rank, const Site& site) {
  const Comm comm = comm_of(rank, site);
  BufferPtr b = floats(rank, 2);
  if (rank.id == 0) {
    const Piece group[] = {send_to(1, b, 0, 1), send_to(1, b, 1, 5)};  // past the buffer's end
    runtime::Queue& queue = rank.device.communication_queue();
    EXPECT_EQ(rank.transport.exchange(queue, comm, op_of(rank, OpKind::send, 1), group), CommResult::invalid_argument);
    EXPECT_EQ(rank.device.wait(queue.record(), soon(rank), 0), runtime::WaitResult::done);  // nothing enqueued
  } else {
    const Op op = op_of(rank, OpKind::send, 1);
    const Event done = exchange(rank, comm, op, {receive_from(0, b, 0, 1)});
    EXPECT_EQ(failure_of([&] { rank.wait(done, op, kImpatience, comm); }), ErrorKind::timeout);
  }
  abort(rank, {comm});
}

void invalid_argument_poisons(Rank& rank, const Site& site) {
  const Comm comm = comm_of(rank, site);
  BufferPtr b = floats(rank, 1);
  EXPECT_EQ(any_exchange(rank, comm, b, 5), CommResult::invalid_argument);  // no such member
  EXPECT_EQ(rank.transport.async_error(comm), CommResult::invalid_argument);
  EXPECT_EQ(any_exchange(rank, comm, b, 0), CommResult::invalid_argument);
  EXPECT_EQ(rank.transport.finalize(comm), CommResult::invalid_argument);
  abort(rank, {comm});
}

void killed_inside_a_node(Rank& rank, const Site& site) {
  const Comm comm = comm_of(rank, site);
  BufferPtr b = floats(rank, 1);
  rank.clock.sleep_until(2 * kSecond);
  const Op op = op_of(rank, OpKind::send, 1);
  const Event done = exchange(rank, comm, op, {receive_from(1, b, 0, 1)});
  EXPECT_EQ(failure_of([&] { rank.wait(done, op, 3600 * kSecond, comm); }), ErrorKind::timeout);
  EXPECT_EQ(rank.transport.async_error(comm), CommResult::success);  // hung, and reports success
  EXPECT_TRUE(rank.transport.unmatched(comm).pending);
  EXPECT_EQ(rank.transport.unmatched(comm).peer, 1);
  EXPECT_TRUE(rank.transport.unmatched(comm).waits_for_send);
  abort(rank, {comm});
}

// A receive that no rank answers, in flight on a queue.
Event hang(Rank& rank, Comm comm, runtime::Queue& queue, const BufferPtr& b, std::size_t place) {
  const Piece piece = receive_from(1, b, place, 1);
  EXPECT_EQ(rank.transport.exchange(queue, comm, op_of(rank, OpKind::recv, 1), {&piece, 1}), CommResult::success);
  rank.clock.sleep_until(rank.clock.now() + kMillisecond);  // so that it starts
  return queue.record();
}

void freed_and_poisoned(Rank& rank, const Site& site, bool revoke) {
  const Comm comm = comm_of(rank, site);
  if (rank.id == 1) return;
  BufferPtr b = floats(rank, 1);
  const Event done = hang(rank, comm, rank.device.communication_queue(), b, 0);
  if (revoke)
    EXPECT_EQ(rank.transport.revoke(comm), CommResult::success);
  else
    EXPECT_EQ(abort(rank, {comm}), CommResult::success);
  EXPECT_EQ(rank.device.wait(done, soon(rank), 0), runtime::WaitResult::done);
  EXPECT_EQ(word(b, 0), runtime::kPoisonAborted);
  if (revoke) abort(rank, {comm});
}
void abort_frees(Rank& rank, const Site& site) { freed_and_poisoned(rank, site, false); }
void revoke_frees(Rank& rank, const Site& site) { freed_and_poisoned(rank, site, true); }

// Two communicators that hang on two queues of one device.
void two_hung(Rank& rank, const Site& site, bool grouped) {
  const Comm one = comm_of(rank, site, {0, 1}, 0), two = comm_of(rank, site, {0, 1}, 1);
  if (rank.id == 1) return;
  BufferPtr b = floats(rank, 2);
  hang(rank, one, rank.device.communication_queue(), b, 0);
  hang(rank, two, rank.device.copy_queue(), b, 1);
  if (grouped) {
    abort(rank, {one, two});
  } else {
    abort(rank, {one});  // waits for the device, and so for `two`
    abort(rank, {two});
  }
}
void grouped_abort(Rank& rank, const Site& site) { two_hung(rank, site, true); }
void serial_abort(Rank& rank, const Site& site) { two_hung(rank, site, false); }

void shrink_after_a_death(Rank& rank, const Site& site) {
  const Comm comm = comm_of(rank, site);
  BufferPtr b = floats(rank, 2, float(rank.id));
  rank.clock.sleep_until(2 * kSecond);
  const Op op = op_of(rank, OpKind::all_gather, 1);
  if (rank.id == 2) {  // it waits for the dead rank, and gets an error
    const Event done = exchange(rank, comm, op, {receive_from(3, b, 1, 1)});
    EXPECT_EQ(failure_of([&] { rank.wait(done, op, kPatience, comm); }), ErrorKind::remote_error);
    const int gone[] = {3};
    EXPECT_EQ(failure_of([&] { rank.transport.shrink(op, comm, gone, at_last(rank)); }), ErrorKind::remote_error);
    abort(rank, {comm});
  } else {  // the others shrink without it
    const int gone[] = {2, 3};
    const Comm child = rank.transport.shrink(op_of(rank, OpKind::comm_create, 2), comm, gone, at_last(rank));
    const Op next = op_of(rank, OpKind::all_gather, 1);
    const int peer = 1 - rank.id;
    rank.wait(exchange(rank, child, next, {send_to(peer, b, 0, 1), receive_from(peer, b, 1, 1)}), next, kPatience,
              child);
    EXPECT_EQ(at(b, 1), float(peer));
    EXPECT_EQ(any_exchange(rank, child, b, 2), CommResult::invalid_argument);  // no member any more
    abort(rank, {comm, child});
  }
}

void different_exclude_lists(Rank& rank, const Site& site) {
  const Comm comm = comm_of(rank, site);
  if (rank.id == 3) return;
  const std::vector<int> gone = rank.id == 2 ? std::vector<int>{1, 3} : std::vector<int>{3};
  EXPECT_EQ(failure_of([&] { rank.transport.shrink(op_of(rank, OpKind::comm_create, 2), comm, gone, soon(rank)); }),
            ErrorKind::timeout);
  abort(rank, {comm});
}

// The receiver's checksum is what fails.
void destroy_after_an_error(Rank& rank, const Site& site) {
  PieceFate fate;
  fate.corrupt = true;
  const Comm comm = comm_of(rank, site);
  BufferPtr b = floats(rank, 1);
  const Op op = op_of(rank, OpKind::send, 1);
  const Event done = exchange(rank, comm, op, {rank.id == 0 ? send_to(1, b, 0, 1, &fate) : receive_from(0, b, 0, 1)});
  const ErrorKind failure = failure_of([&] { rank.wait(done, op, kPatience, comm); });
  if (rank.id == 1) {
    EXPECT_EQ(failure, ErrorKind::corrupt);
    EXPECT_EQ(rank.transport.destroy(comm), CommResult::system);
    EXPECT_EQ(rank.transport.async_error(comm), CommResult::system);  // still there
    EXPECT_EQ(abort(rank, {comm}), CommResult::success);
  } else {
    EXPECT_EQ(failure, ErrorKind::count_);
    EXPECT_EQ(rank.transport.destroy(comm), CommResult::success);
  }
}

void destroy_of_a_hung_one(Rank& rank, const Site& site) {
  const Comm comm = comm_of(rank, site);
  if (rank.id == 1) return;
  BufferPtr b = floats(rank, 1);
  hang(rank, comm, rank.device.communication_queue(), b, 0);
  rank.transport.destroy(comm);
}

void message_of_an_earlier_child(Rank& rank, const Site& site) {
  const Comm comm = comm_of(rank, site);
  if (rank.id == 2) return;
  const int gone[] = {2};
  const Comm first = rank.transport.shrink(op_of(rank, OpKind::comm_create, 2), comm, gone, at_last(rank));
  const Comm second = rank.transport.shrink(op_of(rank, OpKind::comm_create, 3), comm, gone, at_last(rank));
  BufferPtr b = floats(rank, 1, float(rank.id));
  const Op op = op_of(rank, OpKind::send, 1);
  if (rank.id == 0) {
    exchange(rank, first, op, {send_to(1, b, 0, 1)});
    rank.clock.sleep_until(rank.clock.now() + 2 * kImpatience);
  } else {
    const Event done = exchange(rank, second, op, {receive_from(0, b, 0, 1)});
    EXPECT_EQ(failure_of([&] { rank.wait(done, op, kImpatience, second); }), ErrorKind::timeout);
    EXPECT_EQ(at(b, 0), 1.0f);
  }
  abort(rank, {comm, first, second});
}

void nothing_to_sum(Rank& rank, const Site& site) {
  const Comm comm = comm_of(rank, site);
  BufferPtr b = floats(rank, 4), out = floats(rank, 4);
  const kernels::Index n = rank.id == 0 ? 0 : 4;
  const runtime::TreeReduceSlice part{{0, rank.id}, vec<float>(*b, 0, n)};
  const Op op = op_of(rank, OpKind::all_reduce, 1);
  EXPECT_EQ(rank.transport.tree_all_reduce(rank.device.communication_queue(), comm, op,
                                           {{&part, 1}, 2, 1.0f, vec<float>(*out, 0, n)}),
            CommResult::success);
  const Event done = rank.device.communication_queue().record();
  const ErrorKind failure = failure_of([&] { rank.wait(done, op, kSecond, comm); });
  EXPECT_EQ(failure, rank.id == 0 ? ErrorKind::count_ : ErrorKind::timeout);
  abort(rank, {comm});
}

void opposite_order(Rank& rank, const Site& site) {
  const Comm one = comm_of(rank, site, {0, 1}, 0), two = comm_of(rank, site, {0, 1}, 1);
  BufferPtr b = floats(rank, 4);
  const int peer = 1 - rank.id;
  const Op op = op_of(rank, OpKind::all_gather, 1);
  Event last;
  for (const Comm comm : rank.id == 0 ? std::vector{one, two} : std::vector{two, one})
    last = exchange(rank, comm, op, {send_to(peer, b, 0, 1), receive_from(peer, b, 1, 1)});
  EXPECT_EQ(failure_of([&] { rank.wait(last, op, kImpatience, two); }), ErrorKind::timeout);
  // An abort lets what stands behind send what it has, so the peer has to have seen the hang by then.
  rank.clock.sleep_until(rank.clock.now() + 2 * kImpatience);
  abort(rank, {one, two});
}

void excluded_rank_shrinks(Rank& rank, const Site& site) {
  const Comm comm = comm_of(rank, site);
  const int gone[] = {1};
  const Op op = op_of(rank, OpKind::comm_create, 2);
  if (rank.id == 1) {
    EXPECT_EQ(failure_of([&] { rank.transport.shrink(op, comm, gone, soon(rank)); }), ErrorKind::mismatch);
    EXPECT_EQ(failure_of([&] { rank.transport.shrink(op, comm, {}, soon(rank)); }), ErrorKind::mismatch);
    EXPECT_EQ(failure_of([&] { rank.transport.shrink(op, Comm{}, gone, soon(rank)); }), ErrorKind::mismatch);
  } else {
    EXPECT_TRUE(bool(rank.transport.shrink(op, comm, gone, at_last(rank))));
  }
}

void building_ends_at_its_deadline(Rank& rank, const Site& site) {
  if (rank.id == 2) return;
  std::string text;
  const runtime::TimeNs deadline = soon(rank);
  EXPECT_EQ(failure_of([&] { make_comm(rank, everybody(rank), site.first_id, 0, deadline); }, &text),
            ErrorKind::timeout);
  EXPECT_GE(rank.clock.now(), deadline);
  if (rank.id == 0) {
    EXPECT_NE(text.find("missing: rank 2"), std::string::npos) << text;
  }
  EXPECT_TRUE(bool(comm_of(rank, site, {0, 1}, 1)));  // and leaves nothing behind
}

void building_ends_by_a_revoke(Rank& rank, const Site& site) {
  if (rank.id == 2) {
    rank.clock.sleep_until(soon(rank));
    rank.control.revoke(0, op_of(rank, OpKind::comm_create, 1), ErrorKind::timeout);
    return;
  }
  EXPECT_EQ(failure_of([&] { comm_of(rank, site); }), ErrorKind::revoked);
}

void hang_ahead_of_an_exchange(Rank& rank, const Site& site) {
  const Comm comm = comm_of(rank, site);
  if (rank.id == 1) return;
  BufferPtr b = floats(rank, 2);
  runtime::Queue& queue = rank.device.communication_queue();
  hang(rank, comm, queue, b, 0);
  const Piece behind = receive_from(1, b, 1, 1);
  EXPECT_EQ(rank.transport.exchange(queue, comm, op_of(rank, OpKind::recv, 2), {&behind, 1}), CommResult::success);
  const Event last = queue.record();
  rank.clock.sleep_until(soon(rank));
  EXPECT_FALSE(queue.done(last));
  EXPECT_EQ(rank.transport.unmatched(comm).op.sequence, 1u);  // the first is to blame, not the one behind it
  EXPECT_EQ(abort(rank, {comm}), CommResult::success);
  EXPECT_EQ(rank.device.wait(last, at_last(rank), 0), runtime::WaitResult::done);
  EXPECT_EQ(word(b, 1), runtime::kPoisonAborted);
}

void split_orders_by_key(Rank& rank, const Site& site) {
  const Comm comm = comm_of(rank, site);
  const int color = rank.id == 4 ? -1 : rank.id % 2;
  const Comm child = rank.transport.split(op_of(rank, OpKind::comm_create, 2), comm, color, -rank.id, at_last(rank));
  EXPECT_EQ(bool(child), rank.id != 4);
  if (!child) return;
  BufferPtr b = floats(rank, 2, float(rank.id));
  const int peer = (rank.id + 2) % 4;
  const Op op = op_of(rank, OpKind::all_gather, 1);
  rank.wait(exchange(rank, child, op, {send_to(peer, b, 0, 1), receive_from(peer, b, 1, 1)}), op, kPatience, child);
  EXPECT_EQ(at(b, 1), float(peer));
  EXPECT_EQ(any_exchange(rank, child, b, (rank.id + 1) % 4), CommResult::invalid_argument);
}

void finalize_is_in_progress(Rank& rank, const Site& site) {
  const Comm comm = comm_of(rank, site);
  BufferPtr b = floats(rank, 2);
  const int peer = 1 - rank.id;
  const Event done =
      exchange(rank, comm, op_of(rank, OpKind::all_gather, 1), {send_to(peer, b, 0, 1), receive_from(peer, b, 1, 1)});
  EXPECT_EQ(rank.transport.finalize(comm), CommResult::in_progress);
  EXPECT_EQ(rank.device.wait(done, at_last(rank), 0), runtime::WaitResult::done);
  // Where it takes all members, the others have yet to come.
  for (const runtime::TimeNs end = at_last(rank);
       rank.transport.async_error(comm) == CommResult::in_progress && rank.clock.now() < end;)
    rank.clock.sleep_until(rank.clock.now() + kMillisecond);
  EXPECT_EQ(rank.transport.async_error(comm), CommResult::success);
  EXPECT_EQ(rank.transport.destroy(comm), CommResult::success);
}

// Planted: what rank 0 received is not what it claims.
void lie(Rank& rank, const Site& site) {
  const Comm comm = comm_of(rank, site);
  BufferPtr b = floats(rank, 2, float(rank.id));
  const int peer = 1 - rank.id;
  const Op op = op_of(rank, OpKind::all_gather, 1);
  rank.wait(exchange(rank, comm, op, {send_to(peer, b, 0, 1), receive_from(peer, b, 1, 1)}), op, kPatience, comm);
  if (rank.id == 0) {
    EXPECT_EQ(at(b, 1), float(rank.id)) << "planted";
  }
}

}  // namespace

std::vector<Claim> claims_of_communicators() {
  constexpr const char* kEndsAll = "Open MPI without ULFM ends all processes when one is killed";
  constexpr const char* kNoWaitForTheDevice =
      "host devices have no stream that an abort has to wait for: giving up one communicator never waits for another";
  constexpr const char* kHangsForEver = "it hangs for ever, and only the simulator can tell for ever from long";
  constexpr const char* kNoChecksum = "NCCL has no checksum of ours that a message could fail";
  constexpr const char* kNoNativeSum = "processes have no native sum; our own is over exchanges";
  return {
      {"C1_OperationsOnNullDeadAndRevoked", 1, null_dead_and_revoked},
      {"C2_RevokeTwiceFinalizeTwiceFinalizeAfterRevoke", 1, revoke_and_finalize_twice},
      {"C3_ABadPieceDropsTheWholeGroup", 2, bad_piece},
      {"C4_AnInvalidArgumentPoisonsTheCommunicator", 1, invalid_argument_poisons},
      {.name = "C5_InsideANodeAKilledPeerIsNeverReported",
       .ranks = 2,
       .body = killed_inside_a_node,
       .only_simulated = kEndsAll,
       .one_node = true,
       .killed = 1},
      {"C6_AbortFreesTheStreamAndLeavesPoison", 2, abort_frees},
      {"C6_RevokeFreesTheStreamAndLeavesPoison", 2, revoke_frees},
      {"C7_GroupedAbortOfTwoHungCommunicatorsReturns", 2, grouped_abort},
      {.name = "C7_SerialAbortOfTwoHungCommunicatorsHangs",
       .ranks = 2,
       .body = serial_abort,
       .only_simulated = kNoWaitForTheDevice,
       .ends = Ends::in_a_deadlock},
      {.name = "C8_ShrinkAfterAHangAndAfterAnError",
       .ranks = 4,
       .body = shrink_after_a_death,
       .only_simulated = kEndsAll,
       .killed = 3},
      {"C9_DifferentExcludeListsNeverMeet", 4, different_exclude_lists},
      {.name = "C10_DestroyAfterAnErrorReturnsItAndFreesNothing",
       .ranks = 2,
       .body = destroy_after_an_error,
       .not_over_nccl = kNoChecksum},
      {.name = "C10_DestroyOfAHungCommunicatorHangs",
       .ranks = 2,
       .body = destroy_of_a_hung_one,
       .only_simulated = kHangsForEver,
       .ends = Ends::in_a_deadlock},
      {"C11_AMessageOfAnEarlierChildReachesNoLaterOne", 3, message_of_an_earlier_child},
      {.name = "C12_NothingToSumIsSuccessWithoutTakingPart",
       .ranks = 2,
       .body = nothing_to_sum,
       .only_simulated = kNoNativeSum},
      {"C13_TwoCommunicatorsInOppositeOrderHang", 2, opposite_order},
      {"C14_AnExcludedRankThatShrinksIsRefused", 2, excluded_rank_shrinks},
      {"C15_BuildingACommunicatorEndsAtItsDeadline", 3, building_ends_at_its_deadline},
      {"C15_BuildingACommunicatorEndsByARevoke", 3, building_ends_by_a_revoke},
      {"AbortFreesWhatHangsAheadAndWhatIsBehind", 2, hang_ahead_of_an_exchange},
      {"SplitOrdersByKeyAndLeavesOutWhoWantsNone", 5, split_orders_by_key},
      {"FinalizeIsInProgressWhileWorkIsPending", 2, finalize_is_in_progress},
      {.name = "Planted", .ranks = 2, .body = lie, .is_false = true},
  };
}

}  // namespace seeksim::conformance
