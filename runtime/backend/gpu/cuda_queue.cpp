#ifdef SEEKSIM_HAVE_CUDA

#include "runtime/backend/gpu/cuda_queue.h"

#include <algorithm>
#include <exception>
#include <string>

#include "kernels/check.h"
#include "kernels/cuda/cuda_device.h"
#include "runtime/seams/error.h"

namespace seeksim::runtime {

void check_cuda(cudaError_t error, const char* what, const Op& op) {
  if (error == cudaSuccess) return;
  const ErrorKind kind = error == cudaErrorMemoryAllocation ? ErrorKind::out_of_memory : ErrorKind::device_lost;
  throw SeamError(kind, op, std::string(what) + ": " + cudaGetErrorName(error) + ", " + cudaGetErrorString(error));
}

CudaQueue::CudaQueue(Owner& owner, const char* name, int rank) : owner_(owner), name_(name), rank_(rank) {
  check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "a stream");
  lane_ = {stream_, &kernels::cuda_device()};
}

// No caller is left to handle errors here.
CudaQueue::~CudaQueue() {
  for (const Mark& mark : marks_) static_cast<void>(cudaEventDestroy(mark.event));
  for (const cudaEvent_t event : spare_) static_cast<void>(cudaEventDestroy(event));
  static_cast<void>(cudaStreamDestroy(stream_));
}

// ---- the host's side ---------------------------------------------------------------------------------------------

void CudaQueue::push(Item item) {
  items_.push_back(item);
  ++enqueued_;
  pump();
}

void CudaQueue::enqueue_kernel(const Op& op, Cost, const Closure& closure, std::span<const Range>) {
  closures_.push_back(closure);
  Item item;
  item.op = op;
  item.closure = &closures_.back();  // a deque: it stays where it is until it is popped
  push(item);
}

void CudaQueue::enqueue_activity(const Op& op, Activity& activity, std::span<const Range>) {
  Item item;
  item.op = op;
  item.activity = &activity;
  push(item);
}

Event CudaQueue::record() {
  if (recorded_.empty() || recorded_.back() != enqueued_) recorded_.push_back(enqueued_);
  return {this, enqueued_};
}

void CudaQueue::wait(const Event& event) {
  if (event.queue == nullptr || event.queue == this || event.queue->done(event)) return;
  Item item;
  item.event = event;
  push(item);
}

// ---- giving the stream its work ----------------------------------------------------------------------------------

bool CudaQueue::pump() {
  if (pumping_) return false;  // an activity that is over at once, or a closure, asks while we are at it
  pumping_ = true;
  bool moved = false;
  while (!items_.empty()) {
    if (!started_) mark_what_was_recorded();
    if (!give(items_.front())) break;
    if (items_.front().closure != nullptr) closures_.pop_front();
    items_.pop_front();
    ++given_;
    moved = true;
  }
  pumping_ = false;
  return moved;
}

bool CudaQueue::give(Item& item) {
  if (item.activity != nullptr) {
    if (!started_) {
      started_ = true;
      item.activity->start();
    }
    return item.activity == nullptr;  // activity_done has been said
  }
  if (item.closure != nullptr) {
    try {
      Closure closure = *item.closure;
      if (listener_ != nullptr) listener_->at(item.op);
      closure(lane_);
    } catch (const std::exception& why) {
      owner_.launch_failed(item.op, why);
    }
    return true;
  }
  if (item.event.queue == nullptr) return true;
  auto* const stream = dynamic_cast<CudaQueue*>(item.event.queue);
  if (stream == nullptr) return item.event.queue->done(item.event);  // a host queue's: no stream can wait for it
  if (stream->given_ < item.event.place) return false;
  if (stream->completed_ >= item.event.place) return true;
  cudaEvent_t const there = stream->event_at(item.event.place);
  const cudaError_t error = there == nullptr ? stream->failure_ : cudaStreamWaitEvent(stream_, there, 0);
  if (error != cudaSuccess) failure_ = error;
  return true;
}

void CudaQueue::activity_done(Activity& activity) {
  SEEKSIM_CHECK(started_ && !items_.empty() && items_.front().activity == &activity,
                "queue '%s' of rank %d: an activity ended that is not at the front", name_, rank_);
  started_ = false;
  items_.front().activity = nullptr;
  if (pumping_) return;  // give() sees it
  items_.pop_front();
  ++given_;
  pump();
}

// ---- what is over ------------------------------------------------------------------------------------------------

// The stream is about to be given more.
void CudaQueue::mark_what_was_recorded() {
  constexpr std::size_t kMany = 64;
  while (!recorded_.empty() && recorded_.front() < given_) recorded_.pop_front();
  if (recorded_.empty() || recorded_.front() > given_ || completed_ >= given_) return;
  recorded_.pop_front();
  if (marks_.size() > kMany) look();
  event_at(given_);
}

// The CUDA event at a place that record() returned. A place without one is the last that the stream was given.
cudaEvent_t CudaQueue::event_at(std::uint64_t place) {
  const auto found = std::lower_bound(marks_.begin(), marks_.end(), place,
                                      [](const Mark& mark, std::uint64_t at) { return mark.place < at; });
  if (found != marks_.end()) return found->event;
  SEEKSIM_CHECK(place == given_, "queue '%s' of rank %d: place %llu was not recorded", name_, rank_,
                static_cast<unsigned long long>(place));
  cudaEvent_t event = nullptr;
  if (!spare_.empty()) {
    event = spare_.back();
    spare_.pop_back();
  } else {
    const cudaError_t made = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    if (made != cudaSuccess) {  // not thrown: the caller may be a destructor; the device's next wait reports it
      failure_ = made;
      return nullptr;
    }
  }
  const cudaError_t error = cudaEventRecord(event, stream_);
  if (error != cudaSuccess) failure_ = error;
  marks_.push_back({given_, event});
  return event;
}

void CudaQueue::put_off(const Event& event) {
  for (const Mark& mark : marks_) {
    if (mark.place < event.place) continue;
    if (const cudaError_t error = cudaEventRecord(mark.event, stream_); error != cudaSuccess) failure_ = error;
  }
}

void CudaQueue::look() const {
  while (!marks_.empty()) {
    const cudaError_t state = cudaEventQuery(marks_.front().event);
    if (state == cudaErrorNotReady) {
      static_cast<void>(cudaGetLastError());  // no error: the next launch must not report it
      return;
    }
    if (state != cudaSuccess) {
      failure_ = state;
      return;
    }
    completed_ = marks_.front().place;
    spare_.push_back(marks_.front().event);
    marks_.pop_front();
  }
}

bool CudaQueue::done(const Event& event) const {
  if (completed_ >= event.place) return true;
  if (given_ < event.place) return false;
  const_cast<CudaQueue*>(this)->event_at(event.place);
  look();
  return completed_ >= event.place;
}

// Where the context is lost nothing runs any more, though nothing is done either.
bool CudaQueue::idle() const {
  if (failure_ != cudaSuccess) return true;
  const bool over = items_.empty() && done({const_cast<CudaQueue*>(this), enqueued_});
  return over || failure_ != cudaSuccess;
}

}  // namespace seeksim::runtime

#endif
