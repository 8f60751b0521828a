// The pretended accelerator's memory and waits.
#include "sim/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>

namespace seeksim::sim {

using runtime::Buffer;
using runtime::SeamError;
using runtime::SteppedQueue;
using runtime::WaitResult;

namespace {

constexpr std::align_val_t kBufferAlignment{64};

void poison(Buffer& buffer) {
  auto* words = reinterpret_cast<std::uint32_t*>(buffer.data);
  std::fill_n(words, (buffer.bytes + 3) / 4, runtime::kPoisonFresh);
}

}  // namespace

SimDevice::SimDevice(Loop& loop, Host& host, Network& network, const DeviceModel& model, RankSignals& signals)
    : loop_(loop),
      host_(host),
      network_(network),
      model_(model),
      signals_(signals),
      communication_(*this, "communication queue", host.rank()),
      compute_(*this, "compute queue", host.rank()),
      copy_(*this, "copy queue", host.rank()) {}

SimDevice::~SimDevice() {
  abandon();
  empty_graveyard();
}

void SimDevice::watch(runtime::AccessWatcher* watcher) {
  watcher_ = watcher;
  for (SteppedQueue* queue : {&compute_, &communication_, &copy_}) queue->watch(watcher);
}

void SimDevice::abandon() {
  compute_.abandon();
  communication_.abandon();
  copy_.abandon();
}

// ---- memory ------------------------------------------------------------------------------------------------------

runtime::BufferPtr SimDevice::allocate(std::size_t bytes, runtime::MemoryTag tag, const char* name) {
  empty_graveyard();
  if (bytes > model_.capacity_bytes - total_.now) {
    runtime::Op op;
    op.rank = host_.rank();
    op.bytes = bytes;
    op.tensor = name;
    throw SeamError(runtime::ErrorKind::out_of_memory, op,
                    fmt::format("asked for {} bytes of '{}' ({}), free are {} of {}", bytes, name, runtime::name(tag),
                                model_.capacity_bytes - total_.now, model_.capacity_bytes));
  }
  auto* buffer = new Buffer;
  buffer->bytes = bytes;
  buffer->data = static_cast<std::byte*>(::operator new((bytes + 3) / 4 * 4, kBufferAlignment));
  buffer->tag = tag;
  buffer->name = name;
  buffer->rank = host_.rank();
  buffer->id = ++allocations_;
  poison(*buffer);
  change(use_[std::size_t(tag)], bytes);
  change(total_, bytes);
  if (watcher_ != nullptr) watcher_->allocated(*buffer);
  return runtime::BufferPtr(buffer, runtime::BufferDeleter{this});
}

void SimDevice::change(runtime::MemoryUse& use, std::size_t bytes) {
  use.now += bytes;
  use.peak = std::max(use.peak, use.now);
}

// As with cudaFree, work that is pending may still touch the memory: it is handed back once the queues are empty.
void SimDevice::release(Buffer* buffer) {
  if (watcher_ != nullptr) watcher_->released(*buffer);
  use_[std::size_t(buffer->tag)].now -= buffer->bytes;
  total_.now -= buffer->bytes;
  empty_graveyard();
  if (idle())
    bury(buffer);
  else
    graveyard_.push_back(buffer);
}

void SimDevice::bury(Buffer* buffer) {
  ::operator delete(buffer->data, kBufferAlignment);
  delete buffer;
}

void SimDevice::empty_graveyard() {
  if (graveyard_.empty() || !idle()) return;
  for (Buffer* buffer : graveyard_) bury(buffer);
  graveyard_.clear();
}

// ---- time --------------------------------------------------------------------------------------------------------

TimeNs SimDevice::duration(const runtime::Op&, runtime::Cost cost) const {
  if (cost.flops <= 0 && cost.bytes <= 0) return 0;
  return model_.launch_ns + TimeNs(std::max(cost.flops / model_.flops_per_ns, cost.bytes / model_.bytes_per_ns));
}

TimeNs SimDevice::duration(const SteppedQueue&, const runtime::Op& op, runtime::Cost cost) {
  return TimeNs(double(outer_->duration(op, cost)) * network_.jitter());
}

void SimDevice::step_after(SteppedQueue& queue, TimeNs duration) {
  const std::uint64_t number = &queue == &compute_ ? 0 : &queue == &communication_ ? 1 : 2;
  if (&queue == &compute_) overlap_.compute_starts(loop_.now());
  loop_.at(runtime::later(loop_.now(), duration), *this, number | std::uint64_t(queue.generation()) << 2);
}

bool SimDevice::live(const Timer& timer) { return queue(timer.arg & 3).generation() == timer.arg >> 2; }
void SimDevice::fire(const Timer& timer) {
  SteppedQueue& due = queue(timer.arg & 3);
  if (&due == &compute_) overlap_.compute_ends(loop_.now());
  due.kernel_due();
}

// ---- the host ----------------------------------------------------------------------------------------------------

void SimDevice::host_place_reached(SteppedQueue&) { loop_.wake(host_); }

void SimDevice::kernel_failed(SteppedQueue&, const runtime::Op& op, std::string_view what) {
  if (failure_ == nullptr) failure_ = std::make_unique<SeamError>(runtime::ErrorKind::closure, op, std::string(what));
}

WaitResult SimDevice::wait(const runtime::Event& event, TimeNs deadline, std::uint32_t epoch) {
  auto* queue = static_cast<SteppedQueue*>(event.queue);
  for (;;) {
    if (host_.dying()) throw runtime::RankDied{host_.rank()};
    if (signals_.alarm || signals_.revoked >= std::int64_t(epoch)) {
      signals_.alarm = false;
      if (queue != nullptr) queue->forget_host();
      return WaitResult::revoked;
    }
    if (queue == nullptr || queue->done(event)) break;
    if (deadline <= loop_.now()) {
      queue->forget_host();
      return WaitResult::timed_out;
    }
    queue->wake_host_at(event.place);
    host_waits_for_ = event;
    host_.block(Blocked::event, deadline);
  }
  if (failure_ != nullptr) throw SeamError(*failure_);
  if (watcher_ != nullptr) watcher_->host_waited(event);
  return WaitResult::done;
}

void SimDevice::drain() {
  for (SteppedQueue* queue : {&compute_, &communication_, &copy_}) {
    while (!queue->idle() && !host_.dying()) {
      host_waits_for_ = queue->record();
      queue->wake_host_at(host_waits_for_.place);
      host_.block(Blocked::drain, runtime::kForever);
    }
  }
  if (watcher_ != nullptr) watcher_->host_drained();
  failure_.reset();
  empty_graveyard();
}

}  // namespace seeksim::sim
