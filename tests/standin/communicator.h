// The stand-in's communicators: NCCL's state machine over shared memory, written from NCCL's user guide and sources.
// What the documents leave open is chosen to hurt: work comes late, a death is not reported, an abort waits for the
// whole device.
//   SEEKSIM_STANDIN_NETWORK=1   a peer whose process has ended is an asynchronous ncclRemoteError, as over a network;
//                               else it is not reported, as over NVLink
//   SEEKSIM_STANDIN_NCCL=23003  the version that it stands for (that of nccl.h): 2.30 and newer take several ranks on
//                               one GPU where NCCL_MULTI_RANK_GPU_ENABLE=1
#pragma once

#include <nccl.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/standin/segment.h"
#include "tests/standin/stream.h"

namespace seeksim::standin {

int stood_for();  // NCCL's version
bool ranks_may_share_a_gpu();

// A part of an operation: bytes to or from a peer.
struct Transfer {
  bool send = false;
  int peer = 0;
  std::byte* at = nullptr;
  std::size_t bytes = 0;
  // ---- how far it is: first a head that says how long it is, then the bytes
  std::size_t moved = 0;
  std::uint64_t head[2] = {};
  std::size_t head_moved = 0;
};

enum class Collective { all_reduce, reduce, reduce_scatter };
struct Reduction {
  Collective kind = Collective::all_reduce;
  const float* from = nullptr;
  float* to = nullptr;
  std::size_t count = 0;  // of reduce_scatter: what each receives
  int root = 0;
};

// What one group launches on one communicator: a kernel.
struct Work {
  std::uint64_t ticket = 0;  // the communicator's launches are in this order, whatever their streams
  cudaStream_t stream = nullptr;
  std::vector<Transfer> transfers;
  std::vector<Reduction> reductions;
};

class Comm : public std::enable_shared_from_this<Comm> {
 public:
  Comm(std::string name, int ranks, int rank, bool blocking);
  ~Comm();
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  ncclResult_t connect();          // all members meet
  ncclResult_t usable() const;     // for an operation
  ncclResult_t launch(Work work);  // at a group's end
  ncclResult_t revoke();
  ncclResult_t finalize();
  // A child is made behind the caller's back; meanwhile this communicator is in progress. give: its handle, when it is
  // made, or when its making has failed. All the same they return success, as NCCL 2.30 does.
  using Give = std::function<void(const std::shared_ptr<Comm>& child)>;
  ncclResult_t split(int color, int key, Give give);
  ncclResult_t shrink(std::vector<int> exclude, bool abort, Give give);
  // Work in flight ends, however far it is. No peer hears of it.
  void stop();
  void join();          // of what goes on behind the caller's back
  ncclResult_t wait();  // until nothing is in progress; what a blocking communicator does

  ncclResult_t state() const { return ncclResult_t(state_.load()); }
  void fail(ncclResult_t error) { state_ = error; }
  bool blocking() const { return blocking_; }
  bool finalized() const { return finalized_; }
  int ranks() const { return ranks_; }
  int rank() const { return rank_; }

 private:
  ncclResult_t bear(const std::shared_ptr<Comm>& child, std::uint64_t ticket, const Give& give);
  class Alone;
  void in_background(std::function<ncclResult_t()> job);
  bool stopped(std::uint64_t ticket) const { return ticket <= stop_up_to_ || context_error() != cudaSuccess; }
  template <class Done>
  bool until(std::uint64_t ticket, const Done& done);  // false: it was stopped
  void look_for_deaths();
  std::set<std::pair<int, bool>> new_peers(const Work& work) const;
  bool meet(const std::set<std::pair<int, bool>>& peers, std::uint64_t ticket);
  void carry_out(Work& work);
  bool move(std::vector<Transfer>& transfers, std::uint64_t ticket);
  bool advance(Transfer& transfer);
  void say(const std::vector<Transfer>& transfers, std::uint64_t ticket) const;
  bool reduce(const Reduction& of, std::uint64_t ticket);
  std::vector<float> addend(const float* from, std::size_t n) const;
  bool pass_on(const float* out, float* in, std::size_t n, bool sends, bool receives, std::uint64_t ticket);
  void ended(std::uint64_t ticket);

  const std::string name_;
  const int ranks_, rank_;
  const bool blocking_;
  std::unique_ptr<Segment> segment_;
  std::atomic<int> state_{ncclSuccess};
  std::atomic<std::uint64_t> stop_up_to_{0};
  std::atomic<std::uint64_t> launched_{0}, ended_{0};
  bool revoked_ = false, finalized_ = false;
  std::uint32_t splits_ = 0, shrinks_ = 0;
  std::set<std::pair<int, bool>> connected_;  // peer, and whether to send
  std::thread job_;
  Draws draws_;
};

// The communicator of a handle. Null: an invalid handle, or one whose communicator is gone, which is a violation.
std::shared_ptr<Comm> comm_of(ncclComm_t handle);
ncclComm_t handle_of(std::shared_ptr<Comm> comm);
void forget(ncclComm_t handle);

}  // namespace seeksim::standin
