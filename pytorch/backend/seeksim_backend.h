// The backend that torch.distributed sees: collectives over shared memory between the processes of a machine, and by a
// relay between machines, summed in the canonical order, watched, recorded, and struck by faults. This header and its
// sources are the only files of the project that include torch; they are compiled on the user's machine, against the
// user's torch.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "pytorch/backend/device.h"
#include "pytorch/core/collectives.h"
#include "pytorch/core/digest.h"
#include "pytorch/core/session.h"

namespace seeksim::pytorch {

using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// The session of this process; null before configure().
Session*& session();

DType dtype_of(at::ScalarType type);
// A fault in the numbers of a tensor, wherever it lies. Returns what strike() says.
std::string strike_tensor(const faults::Rule& rule, const at::Tensor& tensor);
// What reduces these, one from each rank, as pytorch/core/sums.h does: the same bits, with torch's operations, on the
// tensors' own device. Throws c10::ValueError for an order that it does not have (two_parts, three_parts).
at::Tensor fold(const Tensors& from_ranks, const Reduction& how);
// What a tensor was; it may lie anywhere and have any strides.
Digest digest_of(const at::Tensor& tensor, bool measured);
// The Python frames of this thread, as a text of the session's record; kNoText where there are none.
std::uint32_t python_stack(RecordWriter& record);

// The first rank of each host makes its memory, the others there find it through the store; when all have mapped it,
// nobody needs its address any more. Of a group on several hosts, each rank enters its host's relay.
std::unique_ptr<Group> meet_through(c10d::Store& store, int rank, int size, Group::Settings settings);

class SeekWork : public c10d::Work {
 public:
  // devices: where the outputs lie, except for the host.
  SeekWork(int rank, c10d::OpType op, Tensors outputs, std::vector<c10::Device> devices);
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  std::vector<at::Tensor> result() override { return outputs_; }
  int sourceRank() const override { return source_; }
  void came_from(int place) { source_ = place; }
  void done(std::exception_ptr error);

 private:
  Tensors outputs_;
  int source_ = -1;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// From here on no worker lets go of a tensor. Whoever does may have to take Python's lock; and a thread that waits for
// the lock while Python shuts down is ended on the spot, inside a destructor, which aborts the process. Waits until
// nobody does: to be called without the lock.
void leave();

// Runs what it is given, in order, in a thread of its own.
class Worker {
 public:
  Worker() : thread_([this] { loop(); }) {}
  ~Worker();
  void push(std::function<void()> task);
  void settle();  // returns when all that was pushed has been run

 private:
  void loop();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> queue_;
  bool stop_ = false;
  std::thread thread_;
};

class SeekBackend : public c10d::Backend {
 public:
  struct Start {
    std::string name;        // of the group
    std::vector<int> ranks;  // launch ranks
    double timeout_s = 1800;
    std::string backend;                           // the name that the script knows
    c10::intrusive_ptr<c10d::Backend> inner = {};  // carries the data and adds it up; null: this one does, on the host
    bool folds = false;                            // `inner` carries only: sums are canonical, with fold()
  };
  SeekBackend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, Start start);
  ~SeekBackend() override;

  const std::string getBackendName() const override { return start_.backend; }
  std::uint64_t getSequenceNumberForGroup() override { return seq_; }
  void setSequenceNumberForGroup() override {}
  // Virtual in newer releases only, so without `override`.
  c10::intrusive_ptr<Options> getBackendOptions();
  void setTimeout(std::chrono::milliseconds timeout);
  void shutdown();
  void abort();
  bool supportsCoalescing() const { return true; }
  void setBoundDeviceId(std::optional<at::Device> device);

  void startCoalescing() override;
  WorkPtr endCoalescing() override;

  WorkPtr allreduce(Tensors& t, const c10d::AllreduceOptions& o) override;
  WorkPtr allreduce_coalesced(Tensors& t, const c10d::AllreduceCoalescedOptions& o) override;
  WorkPtr reduce(Tensors& t, const c10d::ReduceOptions& o) override;
  WorkPtr broadcast(Tensors& t, const c10d::BroadcastOptions& o) override;
  WorkPtr allgather(std::vector<Tensors>& out, Tensors& in, const c10d::AllgatherOptions& o) override;
  WorkPtr allgather_coalesced(std::vector<Tensors>& out, Tensors& in, const c10d::AllgatherOptions& o) override;
  WorkPtr _allgather_base(at::Tensor& out, at::Tensor& in, const c10d::AllgatherOptions& o) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& out, Tensors& in, const c10d::AllgatherOptions& o) override;
  WorkPtr gather(std::vector<Tensors>& out, Tensors& in, const c10d::GatherOptions& o) override;
  WorkPtr gather_into_tensor(at::Tensor& out, at::Tensor& in, const c10d::GatherOptions& o);
  WorkPtr scatter(Tensors& out, std::vector<Tensors>& in, const c10d::ScatterOptions& o) override;
  WorkPtr reduce_scatter(Tensors& out, std::vector<Tensors>& in, const c10d::ReduceScatterOptions& o) override;
  WorkPtr _reduce_scatter_base(at::Tensor& out, at::Tensor& in, const c10d::ReduceScatterOptions& o) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& out, Tensors& in, const c10d::ReduceScatterOptions& o) override;
  WorkPtr alltoall_base(at::Tensor& out, at::Tensor& in, std::vector<int64_t>& out_split,
                        std::vector<int64_t>& in_split, const c10d::AllToAllOptions& o) override;
  WorkPtr alltoall(Tensors& out, Tensors& in, const c10d::AllToAllOptions& o) override;
  WorkPtr barrier(const c10d::BarrierOptions& o) override;
  void monitoredBarrier(const c10d::BarrierOptions& o, bool wait_all) override;
  WorkPtr send(Tensors& t, int to, int tag) override;
  WorkPtr recv(Tensors& t, int from, int tag) override;
  WorkPtr recvAnysource(Tensors& t, int tag) override;

 private:
  // One operation on its way through this backend. `in` and `out` are contiguous CPU tensors while it runs.
  struct Job {
    OpName op = OpName::barrier;
    c10d::OpType type = c10d::OpType::UNKNOWN;
    Tensors in, out;
    Reduction how;
    int root = -1;  // place
    int peer = -1;  // place
    std::function<void(Job&)> body;
    bool reduces = false;
    // Starts it in the inner backend, with tensors that stand for `in` and `out`.
    std::function<WorkPtr(Job&, c10d::Backend& inner, Tensors& in, Tensors& out)> carry = {};
    std::shared_ptr<Lane> lane = {};  // of tensors on a device
    Worker* worker = nullptr;         // of its peer; null: the collectives'
    std::unique_ptr<Digester> gave = {}, got = {};
    Tensors user_out = {};
    at::Tensor sparse = {};  // gets what `out` has in the end: all its values, and which of its rows are there
    Call call = {};
    CallEntry entry = {};
    std::int32_t number = -1;  // of its entry
    std::vector<Rules::Hit> hits = {};
    c10::intrusive_ptr<SeekWork> work = {};
  };

  using JobPtr = std::shared_ptr<Job>;

  static Job job(OpName op, c10d::OpType type, Tensors in, Tensors out);
  static Reduction reduction(OpName op, const c10d::ReduceOp& how, const Tensors& tensors);
  // The way in: numbers it, writes it down, lets faults have their say and hands it to a worker.
  WorkPtr enqueue(Job job);
  void write_down(Job& job);
  // False where the rank leaves the operation out.
  bool strike_before(Job& job);
  void run(Job& job);
  bool digests_on_the_way(const Job& job) const;
  void start(
      Job& job);  // takes its digests, strikes it; the ranks meet, and without an inner backend exchange the data
  void end(Job& job);
  void ended(Job& job, const std::exception_ptr& error);
  void run_together(const std::vector<JobPtr>& jobs);
  // The inner backend does what ranks that have met mean.
  void carry(Job& job);
  WorkPtr begin_carrying(Job& job, Tensors& in, Tensors& out);
  void await(Job& job, const WorkPtr& work);
  void carry_and_fold(Job& job, Tensors& in, Tensors& out);
  Tensors struck(Job& job) const;
  void take_back(Job& job, const Tensors& given) const;
  bool spoil(Job& job, faults::Site site, Tensors& tensors);
  void blame(const Job& job, const std::string& text, const std::vector<Culprit>& culprits);
  std::exception_ptr failed(Job& job);
  Job all_reduction(const Tensors& tensors, const c10d::ReduceOp& how);
  Job sparse_reduction(const at::Tensor& tensor, const c10d::ReduceOp& how);
  WorkPtr message(Job job, int from, int to, int tag);
  WorkPtr gather_flat(Tensors out, Tensors in, const c10d::AllgatherOptions& o);
  WorkPtr scatter_flat(Tensors out, Tensors in, const c10d::ReduceScatterOptions& o);
  Worker& peer_worker(int from, int to);
  Worker& worker_of(const Job& job);
  bool goes_together(const Job& job) const;

  Start start_;
  std::unique_ptr<Group> group_;
  std::int32_t group_number_ = -1;
  std::uint64_t seq_ = 0;
  bool coalescing_ = false;
  std::vector<c10::intrusive_ptr<SeekWork>> coalesced_;
  std::vector<JobPtr> together_;  // of coalesced_, what the inner backend gets in one group
  std::mutex inner_mutex_;        // backends take calls from one thread at a time
  std::map<std::pair<int, int>, std::unique_ptr<Worker>> peers_;
  Worker worker_;  // last: it stops first
};

}  // namespace seeksim::pytorch
