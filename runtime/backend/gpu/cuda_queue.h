// CudaQueue: a Queue over a CUDA stream. A launch's closure runs at once and enqueues its kernels on the stream; an
// event is a place in the queue. It becomes a CUDA event where a caller asks for it, before the stream gets the items
// behind that place: an event further on would also wait for those, and they may wait for the caller. Items that cannot
// go to the stream yet are kept, in order: they wait for a host queue, or stand behind an operation whose communicator
// is still connecting.
#pragma once

#ifdef SEEKSIM_HAVE_CUDA

#include <cuda_runtime_api.h>

#include <deque>
#include <vector>

#include "runtime/host/stepped_queue.h"
#include "runtime/seams/queue.h"

namespace seeksim::runtime {

// Throws SeamError{device_lost}, or out_of_memory, unless the call went well.
void check_cuda(cudaError_t error, const char* what, const Op& op = {});

class CudaQueue final : public Queue {
 public:
  // Hears of a kernel that could not be launched.
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void launch_failed(const Op& op, const std::exception& why) = 0;
  };

  CudaQueue(Owner& owner, const char* name, int rank);
  CudaQueue(const CudaQueue&) = delete;
  CudaQueue& operator=(const CudaQueue&) = delete;
  ~CudaQueue() override;

  void enqueue_kernel(const Op& op, Cost cost, const Closure& closure, std::span<const Range> ranges) override;
  // The activity enqueues on stream() when it is started, and says activity_done when all of it is there.
  void enqueue_activity(const Op& op, Activity& activity, std::span<const Range> ranges) override;
  void activity_done(Activity& activity) override;
  Event record() override;
  void wait(const Event& event) override;
  bool done(const Event& event) const override;
  const char* name() const override { return name_; }

  // What has been put on the stream since, behind the queue's back, belongs to the item before event too: the event,
  // and those after it, are over when that is.
  void put_off(const Event& event);

  cudaStream_t stream() const { return stream_; }
  kernels::Lane lane() const { return lane_; }
  void compute_by(kernels::Arithmetic* arithmetic, LaunchListener* listener) {
    lane_.arithmetic = arithmetic;
    listener_ = listener;
  }
  // ---- for the device
  bool pump();                                      // gives the stream what can be given; true: something was
  bool idle() const;                                // all that was enqueued is over
  cudaError_t failure() const { return failure_; }  // what the stream reported; sticky

 private:
  struct Item {
    Op op;
    const Closure* closure = nullptr;  // one of closures_
    Activity* activity = nullptr;
    Event event;  // to wait for, where there is neither
  };
  struct Mark {  // the stream has this event after the item of this place
    std::uint64_t place;
    cudaEvent_t event;
  };

  void push(Item item);
  bool give(Item& item);  // false: not yet
  void mark_what_was_recorded();
  cudaEvent_t event_at(std::uint64_t place);
  void look() const;

  Owner& owner_;
  const char* name_;
  int rank_;
  cudaStream_t stream_ = nullptr;
  kernels::Lane lane_;
  LaunchListener* listener_ = nullptr;
  std::deque<Item> items_;        // not given to the stream yet
  std::deque<Closure> closures_;  // of those that are kernels
  bool started_ = false;          // the front is an activity that has been started
  bool pumping_ = false;
  std::uint64_t enqueued_ = 0;
  std::uint64_t given_ = 0;
  mutable std::uint64_t completed_ = 0;
  std::deque<std::uint64_t> recorded_;  // places that record() returned and that have no mark yet, ascending
  mutable std::deque<Mark> marks_;      // in the order of places
  mutable std::vector<cudaEvent_t> spare_;
  mutable cudaError_t failure_ = cudaSuccess;
};

}  // namespace seeksim::runtime

#endif
