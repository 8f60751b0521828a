// What a caller holds of an operation, and the thread that runs it.
#include <future>

#include "pytorch/backend/seeksim_backend.h"

#include <shared_mutex>

namespace seeksim::pytorch {

DType dtype_of(at::ScalarType type) {
  switch (type) {
    case at::ScalarType::Float:
      return DType::fp32;
    case at::ScalarType::Double:
      return DType::fp64;
    case at::ScalarType::Half:
      return DType::fp16;
    case at::ScalarType::BFloat16:
      return DType::bf16;
    case at::ScalarType::Float8_e4m3fn:
      return DType::fp8_e4m3;
    case at::ScalarType::Float8_e5m2:
      return DType::fp8_e5m2;
    case at::ScalarType::Char:
      return DType::int8;
    case at::ScalarType::Short:
      return DType::int16;
    case at::ScalarType::Int:
      return DType::int32;
    case at::ScalarType::Long:
      return DType::int64;
    case at::ScalarType::Byte:
      return DType::uint8;
    case at::ScalarType::Bool:
      return DType::boolean;
    case at::ScalarType::ComplexFloat:
      return DType::complex64;
    case at::ScalarType::ComplexDouble:
      return DType::complex128;
    default:
      return DType::other;
  }
}

SeekWork::SeekWork(int rank, c10d::OpType op, Tensors outputs, std::vector<c10::Device> devices)
    : Work(rank, op),
      outputs_(std::move(outputs)),
      future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                       std::move(devices))) {}

namespace {

// The end of the process, and who has to be waited for. It lives to the very end: workers use it.
struct Leaving {
  std::shared_mutex held;
  bool now = false;
};

Leaving& leaving() {
  static auto* one = new Leaving;
  return *one;
}

void let_go(std::function<void()>& task) {
  const std::shared_lock hold(leaving().held);
  if (leaving().now) new std::function<void()>(std::move(task));  // for ever
  task = nullptr;
}

}  // namespace

void leave() {
  const std::unique_lock hold(leaving().held);
  leaving().now = true;
}

void SeekWork::done(std::exception_ptr error) {
  if (error) {
    future_->setError(error);
  } else {
    future_->markCompleted(c10::IValue(outputs_));
  }
  finish(error);
}

Worker::~Worker() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Worker::push(std::function<void()> task) {
  {
    std::lock_guard lock(mutex_);
    queue_.push_back(std::move(task));
  }
  wake_.notify_one();
}

void Worker::settle() {
  std::promise<void> reached;
  push([&reached] { reached.set_value(); });
  reached.get_future().wait();
}

void Worker::loop() {
  for (;;) {
    std::function<void()> task;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stop_ || !queue_.empty(); });
      if (queue_.empty()) return;
      task = std::move(queue_.front());
      queue_.pop_front();
    }
    task();
    let_go(task);
  }
}

}  // namespace seeksim::pytorch
