// NCCL's communicator state machine, by the numbers of the conformance suite in the project's reference notes (C1 ...).
// Each case is written against runtime::Transport only, so that it can run over NCCL too.
#include "tests/sim/sim_test.h"

namespace seeksim::sim {
namespace {

using runtime::Transport;

void run_world(int ranks, const std::function<void(Rank&)>& body, WorldEnd end = WorldEnd::finished) {
  World world(spread_world(ranks));
  const WorldResult result = world.run(body);
  EXPECT_EQ(result.end, end) << result.wait_for_graph;
  for (const RankEnd& rank : result.ranks) EXPECT_NE(rank.how, RankEnd::How::threw) << rank.what;
}

CommResult any_exchange(Rank& rank, Comm comm, const BufferPtr& b, int peer = 0) {
  const Piece piece = send_to(peer, b, 0, 1);
  return rank.transport.exchange(rank.device.communication_queue(), comm, op_of(rank, OpKind::send, 99), {&piece, 1});
}
CommResult abort(Rank& rank, const std::vector<Comm>& comms) { return rank.transport.abort(comms); }

TEST(Conformance, C1_OperationsOnNullDeadAndRevoked) {
  run_world(1, [](Rank& rank) {
    BufferPtr b = floats(rank, 1);
    EXPECT_EQ(any_exchange(rank, Comm{}, b), CommResult::invalid_argument);
    EXPECT_EQ(any_exchange(rank, Comm{77}, b), CommResult::invalid_argument);
    EXPECT_EQ(rank.transport.async_error(Comm{}), CommResult::invalid_argument);
    for (const auto verb : {&Transport::revoke, &Transport::finalize, &Transport::destroy})
      EXPECT_EQ((rank.transport.*verb)(Comm{}), CommResult::success);
    EXPECT_EQ(abort(rank, {Comm{}}), CommResult::success);
    const Comm comm = make_comm(rank);
    EXPECT_EQ(rank.transport.async_error(comm), CommResult::success);
    EXPECT_EQ(rank.transport.revoke(comm), CommResult::success);
    EXPECT_EQ(any_exchange(rank, comm, b), CommResult::invalid_usage);
    EXPECT_EQ(rank.transport.async_error(comm), CommResult::success);  // though revoked
    EXPECT_EQ(abort(rank, {comm}), CommResult::success);
    EXPECT_EQ(any_exchange(rank, comm, b), CommResult::invalid_argument);
    EXPECT_EQ(rank.transport.async_error(comm), CommResult::invalid_argument);
  });
}

TEST(Conformance, C2_RevokeTwiceFinalizeTwiceFinalizeAfterRevoke) {
  run_world(1, [](Rank& rank) {
    const Comm revoked = make_comm(rank, {0}, 1), finalized = make_comm(rank, {0}, 2);
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
  });
}

TEST(Conformance, C3_ABadPieceDropsTheWholeGroup) {
  run_world(2, [](Rank& rank) {
    const Comm comm = make_comm(rank);
    BufferPtr b = floats(rank, 2);
    if (rank.id == 0) {
      const Piece group[] = {send_to(1, b, 0, 1), send_to(1, b, 1, 5)};  // past the buffer's end
      EXPECT_EQ(rank.transport.exchange(rank.device.communication_queue(), comm, op_of(rank, OpKind::send, 1), group),
                CommResult::invalid_argument);
      EXPECT_TRUE(
          rank.device.communication_queue().done(rank.device.communication_queue().record()));  // nothing enqueued
    } else {
      const Op op = op_of(rank, OpKind::send, 1);
      const Event done = exchange(rank, comm, op, {receive_from(0, b, 0, 1)});
      EXPECT_EQ(failure_of([&] { rank.wait(done, op, kSecond, comm); }), ErrorKind::timeout);
    }
    abort(rank, {comm});
  });
}

TEST(Conformance, C4_AnInvalidArgumentPoisonsTheCommunicator) {
  run_world(1, [](Rank& rank) {
    const Comm comm = make_comm(rank);
    BufferPtr b = floats(rank, 1);
    EXPECT_EQ(any_exchange(rank, comm, b, 5), CommResult::invalid_argument);  // no such member
    EXPECT_EQ(rank.transport.async_error(comm), CommResult::invalid_argument);
    EXPECT_EQ(any_exchange(rank, comm, b, 0), CommResult::invalid_argument);
    EXPECT_EQ(rank.transport.finalize(comm), CommResult::invalid_argument);
    abort(rank, {comm});
  });
}

TEST(Conformance, C5_InsideANodeAKilledPeerIsNeverReported) {
  World world(small_world(2));  // nvlink
  world.kill_at(1, kSecond, nullptr);
  const WorldResult result = world.run([](Rank& rank) {
    const Comm comm = make_comm(rank);
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
  });
  EXPECT_EQ(result.end, WorldEnd::finished);
}

// A receive that nobody answers, in flight on a queue.
Event hang(Rank& rank, Comm comm, runtime::Queue& queue, const BufferPtr& b, std::size_t place,
           std::uint64_t sequence = 1) {
  const Piece piece = receive_from(1, b, place, 1);
  EXPECT_EQ(rank.transport.exchange(queue, comm, op_of(rank, OpKind::recv, sequence), {&piece, 1}),
            CommResult::success);
  rank.clock.sleep_until(rank.clock.now() + kMillisecond);  // so that it starts
  return queue.record();
}

TEST(Conformance, C6_AbortAndRevokeFreeTheStreamAndLeavePoison) {
  for (const bool revoke : {false, true}) {
    run_world(2, [&](Rank& rank) {
      const Comm comm = make_comm(rank);
      if (rank.id == 1) return;
      BufferPtr b = floats(rank, 1);
      const Event done = hang(rank, comm, rank.device.communication_queue(), b, 0);
      if (revoke)
        EXPECT_EQ(rank.transport.revoke(comm), CommResult::success);
      else
        EXPECT_EQ(abort(rank, {comm}), CommResult::success);
      EXPECT_TRUE(rank.device.communication_queue().done(done));
      EXPECT_EQ(word(b, 0), runtime::kPoisonAborted);
    });
  }
}

// Two communicators that hang on two queues of one device.
void two_hung(Rank& rank, bool grouped) {
  const Comm one = make_comm(rank, {0, 1}, 1), two = make_comm(rank, {0, 1}, 2);
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
TEST(Conformance, C7_GroupedAbortOfTwoHungCommunicatorsReturns) {
  run_world(2, [](Rank& rank) { two_hung(rank, true); });
}
TEST(Conformance, C7_SerialAbortOfTwoHungCommunicatorsHangs) {
  run_world(
      2, [](Rank& rank) { two_hung(rank, false); }, WorldEnd::deadlock);
}

TEST(Conformance, C8_ShrinkAfterAHangAndAfterAnError) {
  World world(spread_world(4, 1, "tcp"));
  world.kill_at(3, kSecond, nullptr);
  const WorldResult result = world.run([](Rank& rank) {
    const Comm comm = make_comm(rank);
    BufferPtr b = floats(rank, 2, float(rank.id));
    rank.clock.sleep_until(2 * kSecond);
    const Op op = op_of(rank, OpKind::all_gather, 1);
    if (rank.id == 2) {  // the dead rank's neighbour is told
      const Event done = exchange(rank, comm, op, {receive_from(3, b, 1, 1)});
      EXPECT_EQ(failure_of([&] { rank.wait(done, op, 60 * kSecond, comm); }), ErrorKind::remote_error);
      const int gone[] = {3};
      EXPECT_EQ(failure_of([&] { rank.transport.shrink(op, comm, gone, rank.clock.now() + kSecond); }),
                ErrorKind::remote_error);
      abort(rank, {comm});
    } else {  // the others shrink without it
      const int gone[] = {2, 3};
      const Comm child =
          rank.transport.shrink(op_of(rank, OpKind::comm_create, 2), comm, gone, rank.clock.now() + kSecond);
      const Op next = op_of(rank, OpKind::all_gather, 1);
      const int peer = 1 - rank.id;
      rank.wait(exchange(rank, child, next, {send_to(peer, b, 0, 1), receive_from(peer, b, 1, 1)}), next, kSecond,
                child);
      EXPECT_EQ(at(b, 1), float(peer));
      EXPECT_EQ(any_exchange(rank, child, b, 2), CommResult::invalid_argument);  // no member any more
      abort(rank, {comm, child});
    }
  });
  EXPECT_EQ(result.end, WorldEnd::finished) << result.wait_for_graph;
  for (const RankEnd& rank : result.ranks) EXPECT_NE(rank.how, RankEnd::How::threw) << rank.what;
}

TEST(Conformance, C9_DifferentExcludeListsNeverMeet) {
  run_world(4, [](Rank& rank) {
    const Comm comm = make_comm(rank);
    if (rank.id == 3) return;
    const std::vector<int> gone = rank.id == 2 ? std::vector<int>{1, 3} : std::vector<int>{3};
    EXPECT_EQ(failure_of([&] { rank.transport.shrink(op_of(rank, OpKind::comm_create, 2), comm, gone, kSecond); }),
              ErrorKind::timeout);
    abort(rank, {comm});
  });
}

TEST(Conformance, C10_DestroyAfterAnErrorReturnsItAndFreesNothing) {
  PieceFate fate;
  fate.corrupt = true;
  run_world(2, [&](Rank& rank) {
    const Comm comm = make_comm(rank);
    BufferPtr b = floats(rank, 1);
    const Op op = op_of(rank, OpKind::send, 1);
    const Event done = exchange(rank, comm, op, {rank.id == 0 ? send_to(1, b, 0, 1, &fate) : receive_from(0, b, 0, 1)});
    const ErrorKind failure = failure_of([&] { rank.wait(done, op, kSecond, comm); });
    if (rank.id == 1) {
      EXPECT_EQ(failure, ErrorKind::corrupt);
      EXPECT_EQ(rank.transport.destroy(comm), CommResult::system);
      EXPECT_EQ(rank.transport.async_error(comm), CommResult::system);  // still there
      EXPECT_EQ(abort(rank, {comm}), CommResult::success);
    } else {
      EXPECT_EQ(rank.transport.destroy(comm), CommResult::success);
    }
  });
}

TEST(Conformance, C10_DestroyOfAHungCommunicatorHangs) {
  run_world(
      2,
      [](Rank& rank) {
        const Comm comm = make_comm(rank);
        if (rank.id == 1) return;
        BufferPtr b = floats(rank, 1);
        hang(rank, comm, rank.device.communication_queue(), b, 0);
        rank.transport.destroy(comm);
      },
      WorldEnd::deadlock);
}

TEST(Conformance, C11_AMessageOfAnEarlierChildReachesNoLaterOne) {
  run_world(3, [](Rank& rank) {
    const Comm comm = make_comm(rank);
    if (rank.id == 2) return;
    const int gone[] = {2};
    const Comm first = rank.transport.shrink(op_of(rank, OpKind::comm_create, 2), comm, gone, kSecond);
    const Comm second = rank.transport.shrink(op_of(rank, OpKind::comm_create, 3), comm, gone, 2 * kSecond);
    BufferPtr b = floats(rank, 1, float(rank.id));
    const Op op = op_of(rank, OpKind::send, 1);
    if (rank.id == 0) {
      exchange(rank, first, op, {send_to(1, b, 0, 1)});
      rank.clock.sleep_until(20 * kSecond);
    } else {
      const Event done = exchange(rank, second, op, {receive_from(0, b, 0, 1)});
      EXPECT_EQ(failure_of([&] { rank.wait(done, op, 10 * kSecond, second); }), ErrorKind::timeout);
      EXPECT_EQ(at(b, 0), 1.0f);
    }
    abort(rank, {comm, first, second});
  });
}

TEST(Conformance, C12_NothingToSumIsSuccessWithoutTakingPart) {
  run_world(2, [](Rank& rank) {
    const Comm comm = make_comm(rank);
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
  });
}

TEST(Conformance, C13_TwoCommunicatorsInOppositeOrderHang) {
  run_world(2, [](Rank& rank) {
    const Comm one = make_comm(rank, {0, 1}, 1), two = make_comm(rank, {0, 1}, 2);
    BufferPtr b = floats(rank, 4);
    const int peer = 1 - rank.id;
    const Op op = op_of(rank, OpKind::all_gather, 1);
    Event last;
    for (const Comm comm : rank.id == 0 ? std::vector{one, two} : std::vector{two, one})
      last = exchange(rank, comm, op, {send_to(peer, b, 0, 1), receive_from(peer, b, 1, 1)});
    EXPECT_EQ(failure_of([&] { rank.wait(last, op, kSecond, two); }), ErrorKind::timeout);
    abort(rank, {one, two});
  });
}

TEST(Conformance, C14_AnExcludedRankThatShrinksIsRefused) {
  run_world(2, [](Rank& rank) {
    const Comm comm = make_comm(rank);
    const int gone[] = {1};
    const Op op = op_of(rank, OpKind::comm_create, 2);
    if (rank.id == 1) {
      EXPECT_EQ(failure_of([&] { rank.transport.shrink(op, comm, gone, kSecond); }), ErrorKind::mismatch);
      EXPECT_EQ(failure_of([&] { rank.transport.shrink(op, comm, {}, kSecond); }), ErrorKind::mismatch);
      EXPECT_EQ(failure_of([&] { rank.transport.shrink(op, Comm{}, gone, kSecond); }), ErrorKind::mismatch);
    } else {
      EXPECT_TRUE(bool(rank.transport.shrink(op, comm, gone, kSecond)));
    }
  });
}

TEST(Conformance, C15_BuildingACommunicatorEndsAtItsDeadlineOrByARevoke) {
  for (const bool revoke : {false, true}) {
    run_world(3, [&](Rank& rank) {
      if (rank.id == 2) {
        rank.clock.sleep_until(kSecond / 2);
        if (revoke) rank.control.revoke(0, op_of(rank, OpKind::comm_create, 1), ErrorKind::timeout);
        return;
      }
      std::string text;
      EXPECT_EQ(failure_of([&] { make_comm(rank, everybody(rank), 1, 0, kSecond); }, &text),
                revoke ? ErrorKind::revoked : ErrorKind::timeout);
      if (!revoke) {
        EXPECT_EQ(rank.clock.now(), kSecond);
        EXPECT_NE(text.find("missing: rank 2"), std::string::npos) << text;
        EXPECT_TRUE(bool(make_comm(rank, {0, 1}, 2, 0, 3 * kSecond)));  // and leaves nothing behind
      }
    });
  }
}

TEST(Conformance, SplitOrdersByKeyAndLeavesOutWhoWantsNone) {
  run_world(5, [](Rank& rank) {
    const Comm comm = make_comm(rank);
    const int color = rank.id == 4 ? -1 : rank.id % 2;
    const Comm child = rank.transport.split(op_of(rank, OpKind::comm_create, 2), comm, color, -rank.id, kSecond);
    EXPECT_EQ(bool(child), rank.id != 4);
    if (!child) return;
    BufferPtr b = floats(rank, 2, float(rank.id));
    const int peer = (rank.id + 2) % 4;
    const Op op = op_of(rank, OpKind::all_gather, 1);
    rank.wait(exchange(rank, child, op, {send_to(peer, b, 0, 1), receive_from(peer, b, 1, 1)}), op, kSecond, child);
    EXPECT_EQ(at(b, 1), float(peer));
    EXPECT_EQ(any_exchange(rank, child, b, (rank.id + 1) % 4), CommResult::invalid_argument);
  });
}

TEST(Conformance, FinalizeIsInProgressWhileWorkIsPending) {
  run_world(2, [](Rank& rank) {
    const Comm comm = make_comm(rank);
    BufferPtr b = floats(rank, 2);
    const int peer = 1 - rank.id;
    const Event done =
        exchange(rank, comm, op_of(rank, OpKind::all_gather, 1), {send_to(peer, b, 0, 1), receive_from(peer, b, 1, 1)});
    EXPECT_EQ(rank.transport.finalize(comm), CommResult::in_progress);
    EXPECT_EQ(rank.device.wait(done, kSecond, 0), runtime::WaitResult::done);
    EXPECT_EQ(rank.transport.async_error(comm), CommResult::success);
    EXPECT_EQ(rank.transport.destroy(comm), CommResult::success);
  });
}

}  // namespace
}  // namespace seeksim::sim
