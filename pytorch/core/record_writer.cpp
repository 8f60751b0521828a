#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <system_error>
#include <unordered_map>

#include "pytorch/core/record_layout.h"

namespace seeksim::pytorch {
namespace {

constexpr std::size_t kGrowthBytes = std::size_t(1) << 20;  // by which the file grows

std::int64_t clock_ns(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return std::int64_t(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

[[noreturn]] void fail(const std::string& path, const char* what) {
  throw std::system_error(errno, std::generic_category(), path + ": " + what);
}

void copy_text(char* to, std::size_t size, const std::string& from) {
  const std::size_t n = std::min(from.size(), size - 1);
  std::memcpy(to, from.data(), n);
  to[n] = '\0';
}

// A reader of the file at this moment sees it whole.
template <class T>
void show(T& member, T value) {
  std::atomic_ref<T>(member).store(value, std::memory_order_release);
}

}  // namespace

std::int64_t monotonic_ns() { return clock_ns(CLOCK_MONOTONIC); }

struct RecordWriter::Impl {
  std::mutex mutex;
  std::atomic<bool> forgotten{false};
  int file = -1;
  char* base = nullptr;  // address space for the largest file; mapped chunk by chunk
  std::size_t reserved = 0;
  std::size_t mapped = 0;
  bool full = false;
  std::uint64_t entries = 0;
  std::uint32_t texts = 0;
  std::vector<std::int32_t> counts = std::vector<std::int32_t>(std::size_t(EntryKind::count_), 0);
  std::vector<std::uint64_t> call_at;  // entry of each call
  std::unordered_map<std::string, std::uint32_t> known;

  Head& head() { return *reinterpret_cast<Head*>(base); }
  char* at(std::uint64_t entry) { return base + kHeadBytes + entry * kEntryBytes; }

  // Maps the file up to `bytes`. Blocks are allocated first: a write to a page for which the disk has no room would
  // kill the process.
  bool grow_to(std::size_t bytes) {
    while (mapped < bytes && !full) {
      const std::size_t step = std::min(kGrowthBytes, reserved - mapped);
      full =
          step == 0 || posix_fallocate(file, off_t(mapped), off_t(step)) != 0 ||
          mmap(base + mapped, step, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, off_t(mapped)) == MAP_FAILED;
      if (!full) mapped += step;
    }
    return mapped >= bytes;
  }

  // Room for n more entries in a row; false, and they count as left out, where there is none.
  bool room(std::uint64_t n) {
    if (grow_to(kHeadBytes + (entries + n) * kEntryBytes)) return true;
    show(head().left_out, head().left_out + 1);
    return false;
  }

  void put(std::uint64_t entry, EntryKind kind, const void* payload, std::size_t bytes) {
    Entry e;
    e.kind = kind;
    std::memcpy(e.payload, payload, bytes);
    std::memcpy(at(entry), &e, sizeof e);
  }
  void publish(std::uint64_t n) {
    entries += n;
    show(head().entries, entries);
  }

  template <class T>
  std::int32_t add(const T& value) {
    if (forgotten) return -1;
    std::lock_guard lock(mutex);
    if (!room(1)) return -1;
    if (kKindOf<T> == EntryKind::call) call_at.push_back(entries);
    put(entries, kKindOf<T>, &value, sizeof value);
    publish(1);
    return counts[std::size_t(kKindOf<T>)]++;
  }

  GroupSlot* slot(std::int32_t group) {
    Head& h = head();
    for (std::uint32_t i = 0; i < h.groups; ++i) {
      if (h.slots[i].group == group) return &h.slots[i];
    }
    if (group < 0 || h.groups == kGroupsWatched) return nullptr;
    h.slots[h.groups] = {};
    h.slots[h.groups].group = group;
    show(h.groups, h.groups + 1);
    return &h.slots[h.groups - 1];
  }
};

RecordWriter::RecordWriter(const std::string& path, const Start& start) : impl_(std::make_unique<Impl>()) {
  Impl& i = *impl_;
  i.file = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (i.file < 0) fail(path, "cannot create the record");
  i.reserved = std::max<std::size_t>(start.max_bytes / kGrowthBytes, 1) * kGrowthBytes;
  void* space = mmap(nullptr, i.reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (space == MAP_FAILED) fail(path, "no address space for the record");
  i.base = static_cast<char*>(space);
  if (!i.grow_to(kHeadBytes)) fail(path, "no room on disk for the record");
  Head h{};
  h.version = kRecordVersion;
  h.head_bytes = kHeadBytes;
  h.entry_bytes = kEntryBytes;
  h.rank = start.rank;
  h.world = start.world;
  h.attempt = start.attempt;
  h.pid = getpid();
  h.started_ns = monotonic_ns();
  h.started_unix_ns = clock_ns(CLOCK_REALTIME);
  copy_text(h.torch, sizeof h.torch, start.torch);
  copy_text(h.backend, sizeof h.backend, start.backend);
  std::memcpy(i.base, &h, sizeof h);
  std::atomic_thread_fence(std::memory_order_release);
  std::memcpy(i.base, kMagic, sizeof kMagic);
}

RecordWriter::~RecordWriter() {
  if (impl_->base != nullptr) munmap(impl_->base, impl_->reserved);
  if (impl_->file >= 0) ::close(impl_->file);
}

std::uint32_t RecordWriter::text(std::string_view whole) {
  Impl& i = *impl_;
  if (i.forgotten) return kNoText;
  const std::string text(whole.substr(0, kMaxTextBytes));
  std::lock_guard lock(i.mutex);
  if (const auto found = i.known.find(text); found != i.known.end()) return found->second;
  const std::uint64_t parts = std::max<std::uint64_t>(1, (text.size() + kTextPart - 1) / kTextPart);
  if (!i.room(parts)) return kNoText;
  for (std::uint64_t part = 0; part < parts; ++part) {
    TextPart p;
    p.bytes = std::uint32_t(text.size());
    p.offset = std::uint32_t(part * kTextPart);
    std::memcpy(p.text, text.data() + p.offset, std::min(kTextPart, text.size() - p.offset));
    i.put(i.entries + part, EntryKind::text, &p, sizeof p);
  }
  i.publish(parts);
  i.known.emplace(text, i.texts);
  return i.texts++;
}

std::int32_t RecordWriter::add(const GroupEntry& entry) { return impl_->add(entry); }
std::int32_t RecordWriter::add(const CallEntry& entry) { return impl_->add(entry); }
std::int32_t RecordWriter::add(const StepEntry& entry) { return impl_->add(entry); }
std::int32_t RecordWriter::add(const LossEntry& entry) { return impl_->add(entry); }
std::int32_t RecordWriter::add(const TensorEntry& entry) { return impl_->add(entry); }
std::int32_t RecordWriter::add(const FaultEntry& entry) { return impl_->add(entry); }
std::int32_t RecordWriter::add(const VerdictEntry& entry) { return impl_->add(entry); }
std::int32_t RecordWriter::add(const NoteEntry& entry) { return impl_->add(entry); }
std::int32_t RecordWriter::add(const SightEntry& entry) { return impl_->add(entry); }
std::int32_t RecordWriter::add(const PhaseEntry& entry) { return impl_->add(entry); }

void RecordWriter::update(std::int32_t call, const CallEntry& entry) {
  Impl& i = *impl_;
  if (i.forgotten || call < 0) return;
  std::lock_guard lock(i.mutex);
  if (std::size_t(call) < i.call_at.size()) i.put(i.call_at[std::size_t(call)], EntryKind::call, &entry, sizeof entry);
}

void RecordWriter::now(std::int64_t step, std::int32_t micro_batch, StepPhase phase) {
  Impl& i = *impl_;
  if (i.forgotten) return;
  show(i.head().step, step);
  show(i.head().micro_batch, std::uint32_t(micro_batch));
  show(i.head().phase, std::uint32_t(phase));
}

void RecordWriter::joined(std::int32_t group, OpName op, std::uint64_t seq) {
  Impl& i = *impl_;
  if (i.forgotten) return;
  std::lock_guard lock(i.mutex);
  GroupSlot* slot = i.slot(group);
  if (slot == nullptr) return;
  show(slot->op, std::uint32_t(op));
  show(slot->since_ns, monotonic_ns());
  show(slot->joined, seq);
}

void RecordWriter::finished(std::int32_t group, std::uint64_t seq) {
  Impl& i = *impl_;
  if (i.forgotten) return;
  std::lock_guard lock(i.mutex);
  if (GroupSlot* slot = i.slot(group)) show(slot->finished, seq);
}

void RecordWriter::ended() {
  if (!impl_->forgotten) show(impl_->head().ended, std::uint32_t(1));
}

void RecordWriter::forget() { impl_->forgotten = true; }

}  // namespace seeksim::pytorch
