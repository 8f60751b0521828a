// The pretended accelerator's times and waits.
#include "sim/device.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/seams/bounded.h"
#include "runtime/seams/queue_names.h"

namespace seeksim::sim {

namespace queue_names = runtime::queue_names;
using runtime::Buffer;
using runtime::SeamError;
using runtime::SteppedQueue;
using runtime::WaitResult;

namespace {
kernels::Lane lane_with(const runtime::DeviceMemory* memory, kernels::Arithmetic* arithmetic) {
  kernels::Lane lane = memory != nullptr ? memory->lane() : kernels::Lane{};
  lane.arithmetic = arithmetic;
  return lane;
}
}  // namespace

SimDevice::SimDevice(Loop& loop, Host& host, Network& network, const DeviceModel& model, const StorageModel& storage,
                     RankSignals& signals, bool shapes, runtime::DeviceMemory* memory, kernels::Arithmetic* arithmetic,
                     runtime::LaunchListener* listener)
    : loop_(loop),
      host_(host),
      network_(network),
      model_(model),
      storage_(storage),
      signals_(signals),
      shapes_(shapes),
      communication_(*this, queue_names::kCommunication, host.rank()),
      compute_(*this, queue_names::kCompute, host.rank()),
      copy_(*this, queue_names::kCopy, host.rank()),
      on_host_(*this, queue_names::kHost, host.rank()),
      on_storage_(*this, queue_names::kStorage, host.rank()),
      queues_{&compute_, &communication_, &copy_, &on_host_, &on_storage_},
      memory_(*this, host.rank(), {model.capacity_bytes, model.host_capacity_bytes, model.pinned_capacity_bytes},
              !shapes, memory),
      lane_(lane_with(memory, arithmetic)),
      listener_(listener) {
  for (SteppedQueue* queue : {&compute_, &communication_, &copy_}) queue->compute_on(lane_);
  for (SteppedQueue* queue : queues_) queue->announce_to(listener_);
  if (!shapes_) return;
  for (SteppedQueue* queue : queues_) queue->skip_kernels();
}

// Most ranks never ask for one, and a large world has many ranks.
runtime::Queue& SimDevice::message_queue(runtime::MessageQueue which) {
  std::unique_ptr<SteppedQueue>& queue = messages_[std::size_t(which)];
  if (queue == nullptr) {
    queue = std::make_unique<SteppedQueue>(*this, queue_names::kMessages.of(which), host_.rank());
    queue->watch(watcher_);
    queue->compute_on(lane_);
    queue->announce_to(listener_);
    if (shapes_) queue->skip_kernels();
    queues_.push_back(queue.get());
  }
  return *queue;
}

SimDevice::~SimDevice() { abandon(); }

void SimDevice::watch(runtime::AccessWatcher* watcher) {
  watcher_ = watcher;
  memory_.watch(watcher);
  for (SteppedQueue* queue : queues_) queue->watch(watcher);
}

void SimDevice::abandon() {
  for (SteppedQueue* queue : queues_) queue->abandon();
}

// ---- memory ------------------------------------------------------------------------------------------------------

runtime::BufferPtr SimDevice::allocate_in(runtime::Space space, std::size_t bytes, runtime::MemoryTag tag,
                                          const char* name) {
  empty_graveyard();
  runtime::BufferPtr buffer = memory_.allocate(space, bytes, tag, name);
  draw_memory();
  return buffer;
}

void SimDevice::release(Buffer* buffer) {
  empty_graveyard();
  memory_.release(buffer, idle());
  draw_memory();
}

void SimDevice::draw_memory() {
  if (timeline_ == nullptr || meters_.training.resting()) return;
  runtime::BytesByTag bytes{};
  for (std::size_t tag = 0; tag < bytes.size(); ++tag)
    bytes[tag] = memory_.use(runtime::MemoryTag(tag), runtime::Space::device).now;
  timeline_->holds(host_.rank(), loop_.now(), bytes);
}

void SimDevice::empty_graveyard() {
  if (memory_.has_graves() && idle()) memory_.bury_all();
}

// ---- time --------------------------------------------------------------------------------------------------------

TimeNs SimDevice::duration(const runtime::Op& op, runtime::Cost cost) const {
  using runtime::later;
  using runtime::to_time_ns;
  if ((cost.flops <= 0 && cost.bytes <= 0) || loop_.untimed()) return 0;
  switch (op.kind) {
    case runtime::OpKind::copy:
      return later(model_.launch_ns, to_time_ns(cost.bytes / model_.copy_bytes_per_ns));
    case runtime::OpKind::host_compute:
      return to_time_ns(std::max(cost.flops / model_.host_flops_per_ns, cost.bytes / model_.host_bytes_per_ns));
    case runtime::OpKind::storage_read:
      return later(storage_.latency_ns, to_time_ns(cost.bytes / storage_.read_bytes_per_ns));
    case runtime::OpKind::storage_write:
      return later(storage_.latency_ns, to_time_ns(cost.bytes / storage_.write_bytes_per_ns));
    case runtime::OpKind::storage_sync:
    case runtime::OpKind::storage_rename:
      return storage_.latency_ns;
    default:
      return later(model_.launch_ns,
                   to_time_ns(std::max(cost.flops / model_.flops_per_ns, cost.bytes / model_.bytes_per_ns)));
  }
}

TimeNs SimDevice::with_noise(const runtime::Op& op, runtime::Cost cost) {
  return runtime::to_time_ns(double(outer_->duration(op, cost)) * network_.jitter());
}

// Asked once a launch, when it starts.
TimeNs SimDevice::duration(const SteppedQueue& queue, const runtime::Op& op, runtime::Cost cost) {
  TimeNs duration = with_noise(op, cost);
  if (network_.any_slow()) {  // queues_ begins with those that a schedule can name, in its order
    if (const std::uint64_t which = number(queue); which < std::uint64_t(SlowQueue::Which::count_))
      duration = runtime::to_time_ns(double(duration) * network_.slowness(host_.rank(), SlowQueue::Which(which)));
  }
  if (op.kind == runtime::OpKind::storage_read || op.kind == runtime::OpKind::storage_write)
    meters_.files.add(op, cost);
  if (&queue == &compute_) {
    meters_.passes.runs(op, loop_.now(), duration);
    meters_.busy_ns = runtime::later(meters_.busy_ns, duration);
  }
  const TimeNs end = runtime::later(loop_.now(), duration);
  if (network_.steady()) meters_.course.did(op, loop_.now(), end);
  meters_.training.did(op, end);
  if (timeline_ != nullptr && meters_.training.counts(op)) {
    timeline_->ran(queue, host_.rank(), op, loop_.now(), end);
    timeline_->depth(queue, host_.rank(), loop_.now(), end, queue.depth());
  }
  return duration;
}

// Whether the launch at the front of a queue is a copy of a step.
static bool copies_in_a_step(const SteppedQueue& queue) {
  const runtime::Op* op = queue.front_kernel();
  return op != nullptr && op->kind == runtime::OpKind::copy && OverlapMeter::counts(*op);
}

std::uint64_t SimDevice::number(const SteppedQueue& queue) {
  return std::uint64_t(std::find(queues_.begin(), queues_.end(), &queue) - queues_.begin());
}

bool SimDevice::idle() const {
  return std::all_of(queues_.begin(), queues_.end(), [](const SteppedQueue* queue) { return queue->idle(); });
}

void SimDevice::step_after(SteppedQueue& queue, TimeNs duration) {
  if (&queue == &compute_) meters_.overlap.compute_starts(loop_.now());
  if (&queue == &compute_ || &queue == &on_host_) meters_.copies.compute_starts(loop_.now());
  if (copies_in_a_step(queue)) meters_.copies.transfer_starts(loop_.now());
  loop_.at(runtime::later(loop_.now(), duration), *this, number(queue) | std::uint64_t(queue.generation()) << 4);
}

bool SimDevice::live(const Timer& timer) { return queues_[timer.arg & 15]->generation() == timer.arg >> 4; }
void SimDevice::fire(const Timer& timer) {
  SteppedQueue& due = *queues_[timer.arg & 15];
  if (&due == &compute_) meters_.overlap.compute_ends(loop_.now());
  if (&due == &compute_ || &due == &on_host_) meters_.copies.compute_ends(loop_.now());
  if (copies_in_a_step(due)) meters_.copies.transfer_ends(loop_.now());
  due.kernel_due();
}

// ---- the host ----------------------------------------------------------------------------------------------------

void SimDevice::host_place_reached(SteppedQueue&) { loop_.wake(host_); }

void SimDevice::kernel_failed(SteppedQueue&, const runtime::Op& op, std::string_view what) {
  if (failure_ == nullptr) failure_ = std::make_unique<SeamError>(runtime::ErrorKind::closure, op, std::string(what));
}

WaitResult SimDevice::wait(const runtime::Event& event, TimeNs deadline, std::uint32_t epoch) {
  auto* queue = static_cast<SteppedQueue*>(event.queue);
  const Object signals = object(ObjectKind::signals, std::uint64_t(host_.rank()));
  if (queue != nullptr && queue->done(event)) host_.let_others();
  for (;;) {
    if (host_.dying()) throw runtime::RankDied{host_.rank()};
    loop_.touch(signals, Access::read);
    if (signals_.alarm || signals_.revoked >= std::int64_t(epoch)) {
      signals_.alarm = false;
      if (queue != nullptr) queue->forget_host();
      return WaitResult::revoked;
    }
    // By now the deadline might have come first, or what it waits for: only then it matters which.
    if (queue != nullptr && (deadline <= loop_.now() || queue->done(event)))
      loop_.touch(Loop::object_of(*queue), deadline <= loop_.now() ? Access::read : Access::after);
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

bool SimDevice::drain_by(TimeNs deadline, bool files_too) {
  bool answers = true;
  for (SteppedQueue* queue : queues_) {
    if (queue == &on_storage_ && !files_too) continue;
    host_waits_for_ = queue->record();
    while (!queue->idle() && !host_.dying() && loop_.now() < deadline) {
      queue->wake_host_at(host_waits_for_.place);
      host_.block(Blocked::drain, deadline);
    }
    const bool idle = queue->idle() || host_.dying();
    loop_.touch(Loop::object_of(*queue), deadline <= loop_.now() ? Access::read : Access::after);
    if (!idle) queue->forget_host();
    if (idle && !files_too && watcher_ != nullptr) watcher_->host_waited(host_waits_for_);
    answers = answers && idle;
  }
  if (answers && files_too && watcher_ != nullptr) watcher_->host_drained();
  if (!answers) {  // the process ends, and its memory goes with it
    watcher_ = nullptr;
    memory_.watch(nullptr);
  }
  failure_.reset();
  empty_graveyard();
  return answers;
}

}  // namespace seeksim::sim
