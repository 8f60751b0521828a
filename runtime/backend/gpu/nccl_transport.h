// NcclTransport: the Transport of ranks with a GPU each. An exchange is one group of sends and receives on the queue's
// stream. Communicators are non-blocking, and the ProgressLoop asks them for errors. The verbs behave as in NCCL
// (docs/simulator.md). A transport of messages beside it gives what NCCL lacks: all members are there before a
// communicator is made, its unique id is fresh, and no wait is without a deadline.
//
// Rules, each with its reason in the documents of NCCL 2.28: all communicators of an abort go in one group; a
// communicator with an error is aborted, never destroyed; a stream is not touched while its group is in progress; after
// an abort the stream completes over garbage, so its output is overwritten with poison.
#pragma once

#include "runtime/backend/gpu/nccl_api.h"

#ifdef SEEKSIM_NCCL

#include <array>
#include <deque>
#include <memory>
#include <vector>

#include "runtime/backend/gpu/cuda_device.h"
#include "runtime/backend/gpu/first_messages.h"
#include "runtime/backend/messages/message_transport.h"
#include "runtime/seams/recorder.h"

namespace seeksim::runtime {

// Our codes are NCCL's.
static_assert(int(CommResult::success) == ncclSuccess && int(CommResult::unhandled_cuda) == ncclUnhandledCudaError &&
              int(CommResult::system) == ncclSystemError && int(CommResult::internal) == ncclInternalError &&
              int(CommResult::invalid_argument) == ncclInvalidArgument &&
              int(CommResult::invalid_usage) == ncclInvalidUsage && int(CommResult::remote_error) == ncclRemoteError &&
              int(CommResult::in_progress) == ncclInProgress);
inline CommResult result_of(ncclResult_t result) { return CommResult(int(result)); }

class NcclTransport final : public Transport, public Poller {
 public:
  // side: carries what makes a communicator, never the payload of training.
  NcclTransport(ProgressLoop& loop, CudaDevice& device, MessageTransport& side, Signals& signals, Recorder& recorder,
                int rank);
  ~NcclTransport() override;

  Comm create(const Op& op, const CommSpec& spec, TimeNs deadline) override;
  CommResult exchange(Queue& queue, Comm comm, const Op& op, std::span<const Piece> pieces, DiesAt dies) override;
  bool has_native(Comm, const Op&) const override { return false; }
  CommResult tree_all_reduce(Queue&, Comm, const Op&, const TreeReduce&) override { return CommResult::invalid_usage; }
  LibrarySums library_sums() const override { return sums_; }
  CommResult library_all_reduce(Queue& queue, Comm comm, const Op& op, VecView<const float> values,
                                VecView<float> out) override;
  CommResult library_reduce(Queue& queue, Comm comm, const Op& op, VecView<const float> values,
                            std::span<const SumShare> shares) override;
  CommResult async_error(Comm comm) override;
  CommResult revoke(Comm comm) override;
  CommResult abort(std::span<const Comm> comms) override;
  CommResult finalize(Comm comm) override;
  CommResult destroy(Comm comm) override;
  Comm split(const Op& op, Comm parent, int color, int key, TimeNs deadline) override;
  Comm shrink(const Op& op, Comm parent, std::span<const int> exclude, TimeNs deadline) override;
  Unmatched unmatched(Comm comm) const override;

  // Whether NCCL is to add up gradients, from here on; the same on all ranks.
  void sum_by_nccl(LibrarySums sums) { sums_ = sums; }
  const std::array<MessageTransport::Use, std::size_t(OpKind::count_)>& use() const { return use_; }

  // ---- Poller
  bool poll() override;
  // As the side transport's.
  const std::vector<MessageTransport::Complaint>& complaints() const { return side_.complaints(); }

 private:
  // An operation of this rank: kept from the call until the stream is past it. Pieces, or a sum.
  struct Exchange final : Activity {
    void start() override { owner->start(*this); }

    NcclTransport* owner = nullptr;
    CudaQueue* queue = nullptr;
    std::size_t comm = 0;
    Op op;
    std::vector<Piece> pieces;
    VecView<const float> addend;   // n = 0: no sum
    VecView<float> sum;            // on every member; n = 0: by shares
    std::vector<SumShare> shares;  // of it
    std::uint64_t record = 0;
    Event over;             // the stream is past it
    bool started = false;   // its queue has come to it
    bool launched = false;  // NCCL has it, or it was given up before
    bool given_up = false;
  };

  struct Held {
    enum class State : std::uint8_t { ready, revoked, finalized, dead };
    ncclComm_t comm = nullptr;
    Comm side;
    std::uint32_t epoch = 0;
    std::vector<int> members;
    State state = State::ready;
    CommResult error = CommResult::success;
    std::deque<Exchange*> pending;   // oldest first
    Exchange* connecting = nullptr;  // whose group is in progress: the communicator takes no other call
    bool finalize_due = false;       // as soon as all that is pending has been launched
  };

  Held* find(Comm comm);
  const Held* find(Comm comm) const { return const_cast<NcclTransport*>(this)->find(comm); }
  void fail(Held& held, CommResult error);
  Comm keep(const Op& op, ncclComm_t comm, Comm side, std::uint32_t epoch, std::vector<int> members, ncclResult_t made,
            TimeNs deadline);
  void wait_for_child(const Op& op, const Held& parent, ncclResult_t made, TimeNs deadline);
  static ncclComm_t taken(ncclComm_t& child);
  void leave(Comm side);  // of a communicator that was not made
  void give_up_half_made(ncclComm_t comm);
  ncclUniqueId share_id(const Op& op, Comm side, const CommSpec& spec, TimeNs deadline);
  // Where the communicator can take one: a fresh one; null, and why.
  Exchange* begin(Queue& queue, Comm comm, const Op& op, CommResult& why);
  CommResult enqueue(Exchange& made, ElementType type, std::uint64_t bytes_sent);
  void start(Exchange& exchange);
  void launch_what_can(Held& held);
  void launch(Held& held, Exchange& exchange);
  void finalize_if_due(Held& held);
  void see_off();
  ncclResult_t send_and_receive(const Exchange& exchange, const Held& held) const;
  ncclResult_t add_up(const Exchange& exchange, const Held& held) const;
  bool progress(Held& held);
  void give_up(Held& held);
  static void scribble(const Exchange& exchange);
  void end(Exchange& exchange, RecordState how);

  ProgressLoop& loop_;
  CudaDevice& device_;
  MessageTransport& side_;
  Signals& signals_;
  Recorder& recorder_;
  const NcclApi& nccl_;
  const int rank_;
  FirstMessages first_messages_;
  LibrarySums sums_ = LibrarySums::none;
  std::deque<Held> comms_;             // by handle - 1
  std::vector<ncclComm_t> leaving_;    // destroyed here, and not by NCCL yet: that takes all members
  std::vector<ncclComm_t> half_made_;  // to be aborted with the others
  std::deque<ncclComm_t> children_;    // where NCCL writes the handles of children; null once they are taken
  std::vector<std::unique_ptr<Exchange>> exchanges_;
  std::vector<Exchange*> spare_;
  std::array<MessageTransport::Use, std::size_t(OpKind::count_)> use_{};
};

}  // namespace seeksim::runtime

#endif
