#include "runtime/host/host_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <new>

#include "kernels/pointwise.h"

namespace seeksim::runtime {
namespace {

constexpr std::align_val_t kBufferAlignment{64};

std::size_t whole_words(std::size_t bytes) { return (bytes + 3) / 4 * 4; }

}  // namespace

HostMemory::HostMemory(Device& owner, int rank, const Capacities& capacities, bool holds_values,
                       DeviceMemory* on_device)
    : owner_(owner), rank_(rank), capacities_(capacities), holds_values_(holds_values), on_device_(on_device) {}

std::size_t HostMemory::capacity(Space space) const {
  switch (space) {
    case Space::device:
      return capacities_.device;
    case Space::host:
      return capacities_.host;
    default:
      return std::min(capacities_.pinned, capacities_.host);
  }
}

// What is pinned is the host's memory too.
std::size_t HostMemory::free_bytes(Space space) const {
  if (space == Space::device) return capacity(space) - ledger(space).total.now;
  const std::size_t pinned = ledger(Space::pinned).total.now;
  const std::size_t host = capacity(Space::host) - ledger(Space::host).total.now - pinned;
  return space == Space::host ? host : std::min(host, capacity(space) - pinned);
}

BufferPtr HostMemory::allocate(Space space, std::size_t bytes, MemoryTag tag, const char* name) {
  if (bytes > free_bytes(space)) {
    Op op;
    op.rank = rank_;
    op.bytes = bytes;
    op.tensor = name;
    throw SeamError(
        ErrorKind::out_of_memory, op,
        fmt::format("asked for {} bytes of '{}' ({}) of {} memory, free are {} of {}{}", bytes, name,
                    runtime::name(tag), runtime::name(space), free_bytes(space), capacity(space), map(space)));
  }
  auto* buffer = new Buffer;
  buffer->bytes = bytes;
  buffer->tag = tag;
  buffer->space = space;
  buffer->name = name;
  buffer->rank = rank_;
  buffer->id = ++allocations_;
  try {
    if (holds_values_) provide(*buffer);
  } catch (...) {
    delete buffer;
    throw;
  }
  ledger(space).add(tag, bytes);
  live_.push_back(buffer);
  if (watcher_ != nullptr) watcher_->allocated(*buffer);
  return BufferPtr(buffer, BufferDeleter{&owner_});
}

// Memory under a buffer, full of poison.
void HostMemory::provide(Buffer& buffer) {
  const std::size_t bytes = whole_words(buffer.bytes);
  const bool elsewhere = on_device_ != nullptr && buffer.space != Space::host;
  if (!elsewhere)
    buffer.data = static_cast<std::byte*>(::operator new(bytes, kBufferAlignment));
  else
    buffer.data = buffer.space == Space::device ? on_device_->allocate(bytes) : on_device_->allocate_pinned(bytes);
  if (buffer.data == nullptr) {  // within the budget, but others have the memory
    Op op;
    op.rank = rank_;
    op.bytes = buffer.bytes;
    op.tensor = buffer.name;
    throw SeamError(
        ErrorKind::out_of_memory, op,
        fmt::format("asked for {} bytes of '{}' ({}) of {} memory: {} has none left, though the budget of {} "
                    "bytes has {}{}",
                    buffer.bytes, buffer.name, runtime::name(buffer.tag), runtime::name(buffer.space),
                    on_device_->name(), capacity(buffer.space), free_bytes(buffer.space), map(buffer.space)));
  }
  if (elsewhere && buffer.space == Space::device) buffer.lane = on_device_->lane();
  kernels::fill_bits(buffer.lane, {reinterpret_cast<float*>(buffer.data), Index(bytes / 4)}, kPoisonFresh);
}

void HostMemory::Ledger::add(MemoryTag tag, std::size_t bytes) {
  const auto grow = [bytes](MemoryUse& use) {
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
std::string HostMemory::map(Space space) const {
  std::vector<std::pair<std::size_t, std::string_view>> tags;
  for (std::size_t tag = 0; tag < ledger(space).by_tag.size(); ++tag) {
    if (const std::size_t bytes = ledger(space).by_tag[tag].now; bytes > 0)
      tags.emplace_back(bytes, runtime::name(MemoryTag(tag)));
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

void HostMemory::release(Buffer* buffer, bool idle) {
  if (watcher_ != nullptr) watcher_->released(*buffer);
  ledger(buffer->space).by_tag[std::size_t(buffer->tag)].now -= buffer->bytes;
  ledger(buffer->space).total.now -= buffer->bytes;
  live_.erase(std::lower_bound(live_.begin(), live_.end(), buffer->id,
                               [](const Buffer* live, std::uint64_t id) { return live->id < id; }));
  if (idle)
    bury(buffer);
  else
    graveyard_.push_back(buffer);
}

void HostMemory::bury(Buffer* buffer) {
  const bool elsewhere = on_device_ != nullptr && buffer->space != Space::host;
  if (!elsewhere)
    ::operator delete(buffer->data, kBufferAlignment);  // null in a run of shapes
  else if (buffer->data != nullptr && buffer->space == Space::device)
    on_device_->release(buffer->data);
  else if (buffer->data != nullptr)
    on_device_->release_pinned(buffer->data);
  delete buffer;
}

void HostMemory::bury_all() {
  for (Buffer* buffer : graveyard_) bury(buffer);
  graveyard_.clear();
}

}  // namespace seeksim::runtime
