// The pretended accelerator's memory and waits.
#include "sim/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
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

SimDevice::SimDevice(Loop& loop, Host& host, Network& network, const DeviceModel& model, const StorageModel& storage,
                     RankSignals& signals, bool shapes)
    : loop_(loop),
      host_(host),
      network_(network),
      model_(model),
      storage_(storage),
      signals_(signals),
      shapes_(shapes),
      communication_(*this, "communication queue", host.rank()),
      compute_(*this, "compute queue", host.rank()),
      copy_(*this, "copy queue", host.rank()),
      on_host_(*this, "host queue", host.rank()),
      on_storage_(*this, "storage queue", host.rank()),
      queues_{&compute_, &communication_, &copy_, &on_host_, &on_storage_} {
  if (!shapes_) return;
  for (SteppedQueue* queue : queues_) queue->skip_kernels();
}

// Most ranks never ask for one, and a large world has many ranks.
runtime::Queue& SimDevice::message_queue(runtime::MessageQueue which) {
  static constexpr std::array<const char*, std::size_t(runtime::MessageQueue::count_)> kNames = {
      "queue of sent activations", "queue of received activations", "queue of sent gradients",
      "queue of received gradients", "queue of tensor ways"};
  std::unique_ptr<SteppedQueue>& queue = messages_[std::size_t(which)];
  if (queue == nullptr) {
    queue = std::make_unique<SteppedQueue>(*this, kNames[std::size_t(which)], host_.rank());
    queue->watch(watcher_);
    if (shapes_) queue->skip_kernels();
    queues_.push_back(queue.get());
  }
  return *queue;
}

SimDevice::~SimDevice() {
  abandon();
  empty_graveyard();
}

void SimDevice::watch(runtime::AccessWatcher* watcher) {
  watcher_ = watcher;
  for (SteppedQueue* queue : queues_) queue->watch(watcher);
}

void SimDevice::abandon() {
  for (SteppedQueue* queue : queues_) queue->abandon();
}

// ---- memory ------------------------------------------------------------------------------------------------------

std::size_t SimDevice::capacity(runtime::Space space) const {
  switch (space) {
    case runtime::Space::device:
      return model_.capacity_bytes;
    case runtime::Space::host:
      return model_.host_capacity_bytes;
    default:
      return std::min(model_.pinned_capacity_bytes, model_.host_capacity_bytes);
  }
}

// What is pinned is the host's memory too.
std::size_t SimDevice::free_bytes(runtime::Space space) const {
  using runtime::Space;
  if (space == Space::device) return capacity(space) - ledger(space).total.now;
  const std::size_t pinned = ledger(Space::pinned).total.now;
  const std::size_t host = capacity(Space::host) - ledger(Space::host).total.now - pinned;
  return space == Space::host ? host : std::min(host, capacity(space) - pinned);
}

runtime::BufferPtr SimDevice::allocate_in(runtime::Space space, std::size_t bytes, runtime::MemoryTag tag,
                                          const char* name) {
  empty_graveyard();
  if (bytes > free_bytes(space)) {
    runtime::Op op;
    op.rank = host_.rank();
    op.bytes = bytes;
    op.tensor = name;
    throw SeamError(
        runtime::ErrorKind::out_of_memory, op,
        fmt::format("asked for {} bytes of '{}' ({}) of {} memory, free are {} of {}{}", bytes, name,
                    runtime::name(tag), runtime::name(space), free_bytes(space), capacity(space), memory_map(space)));
  }
  auto* buffer = new Buffer;
  buffer->bytes = bytes;
  buffer->tag = tag;
  buffer->space = space;
  buffer->name = name;
  buffer->rank = host_.rank();
  buffer->id = ++allocations_;
  if (!shapes_) {
    buffer->data = static_cast<std::byte*>(::operator new((bytes + 3) / 4 * 4, kBufferAlignment));
    poison(*buffer);
  }
  ledger(space).add(tag, bytes);
  live_.push_back(buffer);
  if (watcher_ != nullptr) watcher_->allocated(*buffer);
  return runtime::BufferPtr(buffer, runtime::BufferDeleter{this});
}

void SimDevice::Ledger::add(runtime::MemoryTag tag, std::size_t bytes) {
  const auto grow = [bytes](runtime::MemoryUse& use) {
    use.now += bytes;
    use.peak = std::max(use.peak, use.now);
  };
  grow(by_tag[std::size_t(tag)]);
  const std::size_t before = total.peak;
  grow(total);
  if (total.peak == before) return;
  for (std::size_t i = 0; i < at_peak.size(); ++i) at_peak[i] = by_tag[i].now;
}

// Two lines: what is in use by tag, most first, and the three largest blocks.
std::string SimDevice::memory_map(runtime::Space space) const {
  std::vector<std::pair<std::size_t, std::string_view>> tags;
  for (std::size_t tag = 0; tag < ledger(space).by_tag.size(); ++tag) {
    if (const std::size_t bytes = ledger(space).by_tag[tag].now; bytes > 0)
      tags.emplace_back(bytes, runtime::name(runtime::MemoryTag(tag)));
  }
  std::stable_sort(tags.begin(), tags.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<const Buffer*> largest;
  std::copy_if(live_.begin(), live_.end(), std::back_inserter(largest),
               [space](const Buffer* buffer) { return buffer->space == space; });
  const std::size_t shown = std::min<std::size_t>(3, largest.size());
  std::partial_sort(
      largest.begin(), largest.begin() + std::ptrdiff_t(shown), largest.end(),
      [](const Buffer* a, const Buffer* b) { return a->bytes != b->bytes ? a->bytes > b->bytes : a->id < b->id; });
  std::string text = "\nin use:";
  for (const auto& [bytes, tag] : tags) text += fmt::format(" {} {},", tag, bytes);
  if (tags.empty()) text += " nothing,";
  text.back() = '\n';
  text += "largest:";
  for (std::size_t i = 0; i < shown; ++i) {
    const Buffer& block = *largest[i];
    text += fmt::format(" '{}' {} ({}),", block.name, block.bytes, runtime::name(block.tag));
  }
  if (shown == 0) text += " none,";
  text.pop_back();
  return text;
}

// As with cudaFree, work that is pending may still touch the memory: it is handed back once the queues are empty.
void SimDevice::release(Buffer* buffer) {
  if (watcher_ != nullptr) watcher_->released(*buffer);
  ledger(buffer->space).by_tag[std::size_t(buffer->tag)].now -= buffer->bytes;
  ledger(buffer->space).total.now -= buffer->bytes;
  live_.erase(std::lower_bound(live_.begin(), live_.end(), buffer->id,
                               [](const Buffer* live, std::uint64_t id) { return live->id < id; }));
  empty_graveyard();
  if (idle())
    bury(buffer);
  else
    graveyard_.push_back(buffer);
}

void SimDevice::bury(Buffer* buffer) {
  ::operator delete(buffer->data, kBufferAlignment);  // null in a run of shapes
  delete buffer;
}

void SimDevice::empty_graveyard() {
  if (graveyard_.empty() || !idle()) return;
  for (Buffer* buffer : graveyard_) bury(buffer);
  graveyard_.clear();
}

// ---- time --------------------------------------------------------------------------------------------------------

TimeNs SimDevice::duration(const runtime::Op& op, runtime::Cost cost) const {
  if (cost.flops <= 0 && cost.bytes <= 0) return 0;
  switch (op.kind) {
    case runtime::OpKind::copy:
      return model_.launch_ns + TimeNs(cost.bytes / model_.copy_bytes_per_ns);
    case runtime::OpKind::host_compute:
      return TimeNs(std::max(cost.flops / model_.host_flops_per_ns, cost.bytes / model_.host_bytes_per_ns));
    case runtime::OpKind::storage_read:
      return storage_.latency_ns + TimeNs(cost.bytes / storage_.read_bytes_per_ns);
    case runtime::OpKind::storage_write:
      return storage_.latency_ns + TimeNs(cost.bytes / storage_.write_bytes_per_ns);
    case runtime::OpKind::storage_sync:
    case runtime::OpKind::storage_rename:
      return storage_.latency_ns;
    default:
      return model_.launch_ns + TimeNs(std::max(cost.flops / model_.flops_per_ns, cost.bytes / model_.bytes_per_ns));
  }
}

TimeNs SimDevice::with_noise(const runtime::Op& op, runtime::Cost cost) {
  return TimeNs(double(outer_->duration(op, cost)) * network_.jitter());
}

// Asked once a launch, when it starts.
TimeNs SimDevice::duration(const SteppedQueue& queue, const runtime::Op& op, runtime::Cost cost) {
  const TimeNs duration = with_noise(op, cost);
  if (op.kind == runtime::OpKind::storage_read || op.kind == runtime::OpKind::storage_write) files_.add(op, cost);
  if (&queue == &compute_) {
    passes_.runs(op, loop_.now(), duration);
    busy_ns_ += duration;
  }
  if (timeline_ != nullptr) timeline_->ran(queue, host_.rank(), op, loop_.now(), loop_.now() + duration);
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
  if (&queue == &compute_) overlap_.compute_starts(loop_.now());
  if (&queue == &compute_ || &queue == &on_host_) copies_.compute_starts(loop_.now());
  if (copies_in_a_step(queue)) copies_.transfer_starts(loop_.now());
  loop_.at(runtime::later(loop_.now(), duration), *this, number(queue) | std::uint64_t(queue.generation()) << 4);
}

bool SimDevice::live(const Timer& timer) { return queues_[timer.arg & 15]->generation() == timer.arg >> 4; }
void SimDevice::fire(const Timer& timer) {
  SteppedQueue& due = *queues_[timer.arg & 15];
  if (&due == &compute_) overlap_.compute_ends(loop_.now());
  if (&due == &compute_ || &due == &on_host_) copies_.compute_ends(loop_.now());
  if (copies_in_a_step(due)) copies_.transfer_ends(loop_.now());
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
    if (!idle) queue->forget_host();
    if (idle && !files_too && watcher_ != nullptr) watcher_->host_waited(host_waits_for_);
    answers = answers && idle;
  }
  if (answers && files_too && watcher_ != nullptr) watcher_->host_drained();
  if (!answers) watcher_ = nullptr;  // the process ends, and its memory goes with it
  failure_.reset();
  empty_graveyard();
  return answers;
}

}  // namespace seeksim::sim
