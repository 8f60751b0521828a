// The stand-in's streams: a thread each, with a FIFO of items. They run concurrently with the host and with each other,
// as on a GPU; only events order them.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "tests/standin/loud.h"

namespace seeksim::standin {

// A place in a stream.
struct Mark {
  std::atomic<std::uint32_t> passed{0};
  void pass() {
    passed = 1;
    passed.notify_all();
  }
  void wait() const { passed.wait(0); }
};

// A kernel's error belongs to the context: every later call returns it, and no kernel runs any more.
cudaError_t context_error();
void break_context(cudaError_t error, const char* why);

// Every API function ends with this: cudaGetLastError then finds a result that is not success.
cudaError_t told(cudaError_t error);

// Waits until everything enqueued so far, on all streams, is over, as freeing memory of a GPU does.
void wait_for_the_device(const char* who);

}  // namespace seeksim::standin

struct CUstream_st {
 public:
  CUstream_st();
  CUstream_st(const CUstream_st&) = delete;
  CUstream_st& operator=(const CUstream_st&) = delete;

  // For users of the stream. what: for the message, where a group of NCCL that touches this stream is in progress.
  void enqueue(const char* what, std::function<void()> work);
  // By NCCL, whose work may come when it has connected.
  void enqueue_by_nccl(std::function<void()> work);
  std::shared_ptr<seeksim::standin::Mark> mark(const char* what, bool allowed_while_connecting);
  void close();  // ends when all is done; the object goes then

  std::atomic<int> connecting{0};  // groups of NCCL whose work is still to come

 private:
  void push(std::function<void()> work);
  void run();

  std::mutex mutex_;
  std::condition_variable more_;
  std::deque<std::function<void()>> items_;
  bool closing_ = false;
  const int number_;
  seeksim::standin::Draws draws_;
};

struct CUevent_st {
  std::shared_ptr<seeksim::standin::Mark> mark;  // of the last record; null: never recorded
};
