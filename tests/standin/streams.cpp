// Streams, events and errors of the CUDA runtime, by its documents.
#include "tests/standin/stream.h"

#include <pthread.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <exception>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace seeksim::standin {
namespace {

// Lives as long as the process: threads of streams outlive main.
struct Context {
  std::mutex mutex;
  std::set<CUstream_st*> streams;
  std::atomic<int> error{cudaSuccess};
  std::atomic<int> made{0};
};
Context& context() {
  static Context* const kContext = new Context;
  return *kContext;
}

thread_local cudaError_t last_error = cudaSuccess;

bool known(CUstream_st* stream, const char* what) {
  const std::lock_guard lock(context().mutex);
  if (context().streams.contains(stream)) return true;
  violation(std::string(what) + " on a stream that does not exist (the default stream is used by nobody)");
  return false;
}

}  // namespace

cudaError_t context_error() {
  // Once a process has used CUDA, the processes that it forks cannot: seen on an H200 with driver 580.
  static const int kWatched =
      ::pthread_atfork(nullptr, nullptr, [] { context().error = cudaErrorInitializationError; });
  if (kWatched != 0) violation("pthread_atfork failed");
  return cudaError_t(context().error.load());
}

void break_context(cudaError_t error, const char* why) {
  std::fprintf(stderr, "stand-in: the context is lost: %s\n", why);
  context().error = error;
}

cudaError_t told(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

void wait_for_the_device(const char* who) {
  std::vector<std::shared_ptr<Mark>> marks;
  {
    const std::lock_guard lock(context().mutex);
    for (CUstream_st* stream : context().streams) marks.push_back(stream->mark(who, true));
  }
  const auto begin = std::chrono::steady_clock::now();
  bool said = false;
  for (const auto& mark : marks) {
    while (mark->passed == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      if (said || std::chrono::steady_clock::now() - begin < std::chrono::seconds(10)) continue;
      said = true;
      std::fprintf(stderr, "stand-in: %s waits for a stream that hangs, as on a GPU\n", who);
    }
  }
}

}  // namespace seeksim::standin

using namespace seeksim::standin;

// ---- streams -------------------------------------------------------------------------------------------------------

CUstream_st::CUstream_st() : number_(context().made++), draws_(delay_seed() * 1000 + std::uint64_t(number_)) {
  std::thread([this] { run(); }).detach();
  const std::lock_guard lock(context().mutex);
  context().streams.insert(this);
}

void CUstream_st::push(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  items_.push_back(std::move(work));
  more_.notify_one();
}

void CUstream_st::enqueue(const char* what, std::function<void()> work) {
  if (connecting > 0)
    violation(
        std::string(what) + " on stream " + std::to_string(number_) +
        " while a group of NCCL is in progress there: it runs before the group's work or after it, as it happens");
  push(std::move(work));
}

void CUstream_st::enqueue_by_nccl(std::function<void()> work) { push(std::move(work)); }

std::shared_ptr<Mark> CUstream_st::mark(const char* what, bool allowed_while_connecting) {
  auto mark = std::make_shared<Mark>();
  auto pass = [mark] { mark->pass(); };
  if (allowed_while_connecting)
    push(pass);
  else
    enqueue(what, pass);
  return mark;
}

void CUstream_st::close() {
  const std::lock_guard lock(mutex_);
  closing_ = true;
  more_.notify_one();
}

void CUstream_st::run() {
  const bool late = dawdles();
  for (;;) {
    std::function<void()> work;
    {
      std::unique_lock lock(mutex_);
      more_.wait(lock, [this] { return closing_ || !items_.empty(); });
      if (items_.empty()) break;
      work = std::move(items_.front());
      items_.pop_front();
    }
    if (late) dawdle(draws_);
    try {
      work();
    } catch (const std::exception& error) {
      break_context(cudaErrorLaunchFailure, error.what());
    }
  }
  {
    const std::lock_guard lock(context().mutex);
    context().streams.erase(this);
  }
  for (const auto& late_mark : items_) late_mark();  // marks of waiters for all streams, which were quicker
  delete this;
}

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  if (const cudaError_t error = context_error(); error != cudaSuccess) return told(error);
  *stream = new CUstream_st;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (!known(stream, "cudaStreamDestroy")) return told(cudaErrorInvalidResourceHandle);
  stream->close();
  return context_error();
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (!known(stream, "cudaStreamSynchronize")) return told(cudaErrorInvalidResourceHandle);
  stream->mark("cudaStreamSynchronize", false)->wait();
  return told(context_error());
}

// Planted: SEEKSIM_STANDIN_FORGETS_WAITS=n forgets every n-th wait, as if our code had not asked for it.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (!known(stream, "cudaStreamWaitEvent")) return told(cudaErrorInvalidResourceHandle);
  if (const cudaError_t error = context_error(); error != cudaSuccess) return told(error);
  static const std::uint64_t kForgets = setting("SEEKSIM_STANDIN_FORGETS_WAITS", 0);
  static std::atomic<std::uint64_t> asked{0};
  if (kForgets > 0 && ++asked % kForgets == 0) return cudaSuccess;
  if (event->mark != nullptr) stream->enqueue("cudaStreamWaitEvent", [mark = event->mark] { mark->wait(); });
  return cudaSuccess;
}

// ---- events --------------------------------------------------------------------------------------------------------

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  if (const cudaError_t error = context_error(); error != cudaSuccess) return told(error);
  *event = new CUevent_st;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;  // a pending one goes when its stream has passed it
  return context_error();
}

// While a group is in progress the event would come before its work or behind it, as it happens.
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (!known(stream, "cudaEventRecord")) return told(cudaErrorInvalidResourceHandle);
  if (const cudaError_t error = context_error(); error != cudaSuccess) return told(error);
  event->mark = stream->mark("cudaEventRecord", false);
  return cudaSuccess;
}

// "Not ready" is left where cudaGetLastError finds it: the programming guide says that it is not, and programs that
// have run on many machines clear it all the same.
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (const cudaError_t error = context_error(); error != cudaSuccess) return told(error);
  if (event->mark == nullptr || event->mark->passed != 0) return cudaSuccess;
  return told(cudaErrorNotReady);
}

// ---- errors --------------------------------------------------------------------------------------------------------

// A sticky one stays.
cudaError_t cudaGetLastError() {
  if (const cudaError_t error = context_error(); error != cudaSuccess) return error;
  return std::exchange(last_error, cudaSuccess);
}

namespace {
struct Named {
  cudaError_t error;
  const char* name;
  const char* text;
};
constexpr std::array<Named, 9> kErrors = {{
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
}};
const Named* find(cudaError_t error) {
  for (const Named& row : kErrors) {
    if (row.error == error) return &row;
  }
  return nullptr;
}
}  // namespace

const char* cudaGetErrorName(cudaError_t error) {
  const Named* const row = find(error);
  return row != nullptr ? row->name : "cudaError?";
}
const char* cudaGetErrorString(cudaError_t error) {
  const Named* const row = find(error);
  return row != nullptr ? row->text : "an error that the stand-in does not make";
}

}  // extern "C"
