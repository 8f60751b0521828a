#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "pytorch/core/record_layout.h"

namespace seeksim::pytorch {
namespace {

class File {
 public:
  explicit File(const std::string& path) : path_(path), file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (file_ < 0) bad(std::strerror(errno));
    struct stat about {};
    if (fstat(file_, &about) != 0) bad(std::strerror(errno));
    if (!S_ISREG(about.st_mode)) bad("is no file");
    size_ = std::uint64_t(about.st_size);
  }
  ~File() { ::close(file_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  [[noreturn]] void bad(const std::string& what) const { throw std::runtime_error(path_ + ": " + what); }
  std::uint64_t size() const { return size_; }
  void read(std::uint64_t at, void* to, std::size_t bytes) const {
    for (std::size_t done = 0; done < bytes;) {
      const ssize_t n = pread(file_, static_cast<char*>(to) + done, bytes - done, off_t(at + done));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) bad(n < 0 ? std::strerror(errno) : "is cut short");
      done += std::size_t(n);
    }
  }

 private:
  std::string path_;
  int file_;
  std::uint64_t size_ = 0;
};

template <class E>
bool known(E value) {
  return std::size_t(value) < std::size_t(E::count_);
}

Head read_head(const File& file) {
  if (file.size() < kHeadBytes) file.bad("is no record of a rank: too short");
  Head h;
  file.read(0, &h, sizeof h);
  if (std::memcmp(h.magic, kMagic, sizeof kMagic) != 0) file.bad("is no record of a rank");
  if (h.version != kRecordVersion) {
    file.bad(fmt::format("is a record of version {}; this program reads version {}: run the script again", h.version,
                         kRecordVersion));
  }
  if (h.head_bytes != kHeadBytes || h.entry_bytes != kEntryBytes) file.bad("has sizes that its version does not have");
  if (h.entries > (file.size() - kHeadBytes) / kEntryBytes) file.bad("is cut short");
  if (h.world < 1 || h.rank < 0 || h.rank >= h.world || h.attempt < 0) file.bad("names a rank that is not there");
  if (h.groups > kGroupsWatched || h.phase >= std::uint32_t(StepPhase::count_)) file.bad("has a damaged head");
  return h;
}

std::string text_of(const char* from, std::size_t size) { return std::string(from, strnlen(from, size)); }

RankNow now_of(const Head& h) {
  RankNow now;
  now.rank = h.rank;
  now.world = h.world;
  now.attempt = h.attempt;
  now.pid = h.pid;
  now.started_ns = h.started_ns;
  now.started_unix_ns = h.started_unix_ns;
  now.torch = text_of(h.torch, sizeof h.torch);
  now.backend = text_of(h.backend, sizeof h.backend);
  now.ended = h.ended != 0;
  now.step = h.step;
  now.micro_batch = std::int32_t(h.micro_batch);
  now.phase = StepPhase(h.phase);
  now.entries = h.entries;
  now.left_out = h.left_out;
  for (std::uint32_t i = 0; i < h.groups; ++i) {
    const GroupSlot& slot = h.slots[i];
    if (slot.op >= std::uint32_t(OpName::count_)) continue;  // just being written
    now.groups.push_back({slot.group, OpName(slot.op), slot.joined, slot.finished, slot.since_ns});
  }
  return now;
}

// Takes entries one after the other and checks each: enumerators, truth values, references to what came before.
class Decoder {
 public:
  Decoder(const File& file, RankRecord& record) : file_(file), to_(record) {}

  void take(const Entry& entry, std::uint64_t number) {
    number_ = number;
    if (text_left_ != 0 && entry.kind != EntryKind::text) bad("a text without its end");
    switch (entry.kind) {
      case EntryKind::text:
        return take_text(as<TextPart>(entry));
      case EntryKind::group:
        return keep(to_.groups, as<GroupEntry>(entry), entry.kind);
      case EntryKind::call:
        return take_call(entry);
      case EntryKind::step:
        return keep(to_.steps, as<StepEntry>(entry), entry.kind);
      case EntryKind::loss:
        return keep(to_.losses, as<LossEntry>(entry), entry.kind);
      case EntryKind::tensor:
        truth(entry, offsetof(TensorEntry, whole));
        return keep(to_.tensors, as<TensorEntry>(entry), entry.kind);
      case EntryKind::fault:
        return keep(to_.faults, as<FaultEntry>(entry), entry.kind);
      case EntryKind::verdict:
        return keep(to_.verdicts, as<VerdictEntry>(entry), entry.kind);
      case EntryKind::note:
        return keep(to_.notes, as<NoteEntry>(entry), entry.kind);
      case EntryKind::sight:
        return keep(to_.sights, as<SightEntry>(entry), entry.kind);
      case EntryKind::phase:
        return keep(to_.phases, as<PhaseEntry>(entry), entry.kind);
      case EntryKind::none:
      case EntryKind::count_:
        break;
    }
    bad("an unknown kind");
  }

 private:
  [[noreturn]] void bad(const char* what) const { file_.bad(fmt::format("entry {}: {}", number_, what)); }

  template <class T>
  static T as(const Entry& entry) {
    T value;
    std::memcpy(&value, entry.payload, sizeof value);
    return value;
  }
  void truth(const Entry& entry, std::size_t at) const {
    if (entry.payload[at] > 1) bad("a truth value that is neither true nor false");
  }
  void reference(std::uint32_t text) const {
    if (text != kNoText && text >= to_.texts.size()) bad("a text that is not there");
  }
  template <class... E>
  void names(E... values) const {
    if (!(known(values) && ...)) bad("a name that is not there");
  }
  void group(std::int32_t index) const {
    if (index < -1 || index >= std::int32_t(to_.groups.size())) bad("a group that is not there");
  }
  void call(std::int32_t index) const {
    if (index < -1 || index >= std::int32_t(to_.calls.size())) bad("a collective that is not there");
  }
  void launch_rank(std::int32_t rank) const {
    if (rank < -1 || rank >= to_.now.world) bad("a rank that is not there");
  }

  void check(const GroupEntry& e) const {
    reference(e.name), reference(e.ranks);
    if (e.size < 1 || e.size > to_.now.world) bad("a group of an impossible size");
  }
  void check(const CallEntry& e) const {
    names(e.op, e.reduce, e.dtype, e.phase, e.state), group(e.group), launch_rank(e.root), launch_rank(e.peer);
    reference(e.stack), reference(e.shape);
    if (e.numel < 0 || e.bytes < 0) bad("a negative size");
  }
  void check(const StepEntry&) const {}
  void check(const LossEntry& e) const { names(e.dtype); }
  void check(const TensorEntry& e) const {
    names(e.use, e.phase, e.dtype), reference(e.name), reference(e.module), reference(e.shape);
  }
  void check(const FaultEntry& e) const { call(e.call), reference(e.text); }
  void check(const VerdictEntry& e) const {
    names(e.blame, e.op), group(e.group), launch_rank(e.rank), call(e.call), reference(e.text);
  }
  void check(const NoteEntry& e) const { reference(e.text); }
  void check(const SightEntry& e) const { names(e.kind, e.phase), reference(e.name), reference(e.text); }
  void check(const PhaseEntry& e) const { names(e.phase); }

  template <class T>
  void keep(std::vector<T>& list, const T& value, EntryKind kind) {
    check(value);
    to_.order.push_back({kind, std::uint32_t(list.size())});
    list.push_back(value);
  }

  void take_call(const Entry& entry) {
    truth(entry, offsetof(CallEntry, async));
    truth(entry, offsetof(CallEntry, nonfinite_in));
    truth(entry, offsetof(CallEntry, nonfinite_out));
    keep(to_.calls, as<CallEntry>(entry), entry.kind);
  }

  void take_text(const TextPart& part) {
    if (part.bytes > kMaxTextBytes) bad("a text that is too long");
    if (text_left_ == 0) {
      if (part.offset != 0) bad("a text without its beginning");
      to_.texts.emplace_back();
      text_left_ = part.bytes;
      text_bytes_ = part.bytes;
    } else if (part.bytes != text_bytes_ || part.offset != text_bytes_ - text_left_) {
      bad("parts of a text that do not belong together");
    }
    const std::size_t n = std::min<std::size_t>(kTextPart, text_left_);
    to_.texts.back().append(part.text, n);
    text_left_ -= std::uint32_t(n);
  }

  const File& file_;
  RankRecord& to_;
  std::uint64_t number_ = 0;
  std::uint32_t text_left_ = 0;
  std::uint32_t text_bytes_ = 0;
};

}  // namespace

const std::string& RankRecord::text(std::uint32_t reference) const {
  static const std::string none;
  return reference < texts.size() ? texts[reference] : none;
}

RankNow read_now(const std::string& path) { return now_of(read_head(File(path))); }

RankRecord read_record(const std::string& path) {
  const File file(path);
  const Head head = read_head(file);
  RankRecord record;
  record.now = now_of(head);
  Decoder decoder(file, record);
  std::vector<Entry> some(4096);
  for (std::uint64_t at = 0; at < head.entries; at += some.size()) {
    const std::uint64_t n = std::min<std::uint64_t>(some.size(), head.entries - at);
    file.read(kHeadBytes + at * kEntryBytes, some.data(), n * kEntryBytes);
    for (std::uint64_t i = 0; i < n; ++i) decoder.take(some[i], at + i);
  }
  return record;
}

}  // namespace seeksim::pytorch
