// What the script asks of a group that is no operation: options, the end, several operations as one; and which thread
// runs what.
#include "pytorch/backend/seeksim_backend.h"

namespace seeksim::pytorch {
namespace {

// Operations of backends on devices run one after the other in the whole process, in the order of the script, as the
// script's stream would have begun them: communicators that ranks begin in different orders can wait for each other.
Worker& shared_worker() {
  static auto* one = new Worker;  // for the life of the process
  return *one;
}

// Whether a backend takes several operations as one. Older releases do not say.
template <class B>
bool coalesces(B& backend) {
  if constexpr (requires { backend.supportsCoalescing(); }) {
    return backend.supportsCoalescing();
  } else {
    return backend.getBackendName() == "nccl";
  }
}

// What older releases' backends cannot be asked for is left out.
template <class B>
void limit(B& backend, std::chrono::milliseconds timeout) {
  if constexpr (requires { backend.setTimeout(timeout); }) backend.setTimeout(timeout);
}
template <class B>
void shut_down(B& backend) {
  if constexpr (requires { backend.shutdown(); }) backend.shutdown();
}
template <class B>
void abort_all(B& backend) {
  if constexpr (requires { backend.abort(); }) backend.abort();
}

}  // namespace

c10::intrusive_ptr<c10d::Backend::Options> SeekBackend::getBackendOptions() {
  return c10::make_intrusive<Options>(start_.backend, std::chrono::milliseconds(std::int64_t(group_->timeout() * 1e3)));
}

void SeekBackend::setTimeout(std::chrono::milliseconds timeout) {
  if (session()->settings().timeout_s > 0) return;  // the run's own
  group_->timeout(double(timeout.count()) * 1e-3);
  if (start_.inner) limit(*start_.inner, timeout);
}

void SeekBackend::shutdown() {
  if (start_.inner) shut_down(*start_.inner);
}
void SeekBackend::abort() {
  if (start_.inner) abort_all(*start_.inner);
}
void SeekBackend::setBoundDeviceId(std::optional<at::Device> device) {
  Backend::setBoundDeviceId(device);
  if (start_.inner) start_.inner->setBoundDeviceId(device);
}

void SeekBackend::startCoalescing() {
  coalescing_ = true;
  coalesced_.clear();
  together_.clear();
}

// All that was begun in between, as one.
WorkPtr SeekBackend::endCoalescing() {
  coalescing_ = false;
  auto all = c10::make_intrusive<SeekWork>(getRank(), c10d::OpType::COALESCED, Tensors{}, std::vector<c10::Device>{});
  struct Rest {
    std::atomic<std::size_t> left;
    std::mutex mutex;
    std::exception_ptr error;
  };
  auto rest = std::make_shared<Rest>();
  rest->left = coalesced_.size();
  if (coalesced_.empty()) all->done(nullptr);
  for (auto& work : coalesced_) {
    work->getFuture()->addCallback([all, rest](c10::ivalue::Future& future) {
      if (future.hasError()) {
        std::lock_guard lock(rest->mutex);
        rest->error = future.exception_ptr();
      }
      if (--rest->left == 0) all->done(rest->error);
    });
  }
  coalesced_.clear();
  if (!together_.empty()) worker_of({}).push([this, jobs = std::move(together_)] { run_together(jobs); });
  together_.clear();
  return all;
}

Worker& SeekBackend::peer_worker(int from, int to) {
  auto& worker = peers_[{from, to}];
  if (!worker) worker = std::make_unique<Worker>();
  return *worker;
}

Worker& SeekBackend::worker_of(const Job& j) {
  if (j.worker != nullptr) return *j.worker;
  return start_.inner && start_.backend != "gloo" ? shared_worker() : worker_;
}

bool SeekBackend::goes_together(const Job& j) const {
  return start_.inner && coalesces(*start_.inner) && !(start_.folds && j.reduces);
}

}  // namespace seeksim::pytorch
