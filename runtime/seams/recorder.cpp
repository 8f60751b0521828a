// The flight recorder's ring and the fingerprint. Both sit on the path of every communication, so a record is one write
// of a cache line or two and a fingerprint a handful of multiplications.
#include "runtime/seams/recorder.h"

#include <algorithm>
#include <cstddef>

namespace seeksim::runtime {
namespace {

// wyhash's mixing step: the two halves of a 128-bit product.
inline std::uint64_t mum(std::uint64_t a, std::uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = Wide(a) * b;
  return std::uint64_t(product) ^ std::uint64_t(product >> 64);
}

// All of an Op but its strings: their addresses differ between runs.
inline std::uint64_t hash(const Op& op, std::uint64_t value) {
  const std::uint64_t what = std::uint64_t(op.kind) << 56 | std::uint64_t(op.phase) << 48 |
                             std::uint64_t(op.axis) << 40 | std::uint64_t(op.epoch);
  const std::uint64_t who = std::uint64_t(std::uint32_t(op.rank)) << 32 | std::uint32_t(op.peer);
  const std::uint64_t when = std::uint64_t(op.step) << 20 ^ std::uint32_t(op.micro_batch);
  return mum(what ^ 0xa0761d6478bd642full, who ^ 0xe7037ed1a0b428dbull) ^
         mum(when ^ 0x8ebc6af09c88c6e3ull, op.sequence ^ 0x589965cc75374cc3ull) ^
         mum(op.bytes ^ 0x1d8e4e27c47d124full, value ^ 0xeb44accab455d165ull);
}

}  // namespace

void Recorder::limit(std::size_t records) { limit_ = std::clamp<std::size_t>(records, 1, kRingMax); }

Record* Recorder::find(std::uint64_t number) {
  if (number == 0 || number > count_ || count_ - number >= ring_.size()) return nullptr;  // unknown or overwritten
  return &ring_[(number - 1) % limit_];
}

std::uint64_t Recorder::enqueued(const Op& op, TimeNs now, std::uint32_t comm, const Payload& payload) {
  Record* record = nullptr;
  if (ring_.size() < limit_) {
    record = &ring_.emplace_back();
  } else {
    record = &ring_[count_ % limit_];
    *record = Record{};
  }
  record->op = op;
  record->payload = payload;
  record->comm = comm;
  record->enqueued_ns = now;
  return ++count_;
}

void Recorder::fetch(std::uint64_t number) const {
  if (number == 0 || number > count_ || count_ - number >= ring_.size()) return;
  const char* record = reinterpret_cast<const char*>(&ring_[(number - 1) % limit_]);
  __builtin_prefetch(record + offsetof(Record, started_ns), 1);
}

void Recorder::fetch_next() const {
  const char* record =
      reinterpret_cast<const char*>(ring_.data() + (ring_.size() < limit_ ? ring_.size() : count_ % limit_));
  __builtin_prefetch(record, 1);
  __builtin_prefetch(record + 64, 1);
  __builtin_prefetch(record + 128, 1);
}

void Recorder::started(std::uint64_t number, TimeNs now) {
  if (Record* record = find(number)) {
    record->started_ns = now;
    record->state = RecordState::started;
  }
}

void Recorder::ended(std::uint64_t number, TimeNs now, RecordState state, std::int32_t result) {
  if (Record* record = find(number)) {
    record->ended_ns = now;
    record->result = result;
    if (record->state != RecordState::timed_out) record->state = state;
  }
}

void Recorder::timed_out(const Op& op) {
  for (std::size_t i = ring_.size(); i-- > 0;) {
    Record& record = ring_[(count_ - ring_.size() + i) % ring_.size()];
    const bool same = record.op.sequence == op.sequence && record.op.axis == op.axis && record.op.epoch == op.epoch &&
                      record.op.kind == op.kind;
    if (!same || record.ended_ns >= 0) continue;
    record.state = RecordState::timed_out;
    return;
  }
}

void Recorder::communicator(CommHeader header) {
  if (comms_.size() == kCommsKept) comms_.erase(comms_.begin());
  if (header.members.size() > kMembersKept) header.members.clear();
  comms_.push_back(std::move(header));
}

void Recorder::touched_by(std::uint64_t number, std::uint32_t rule) {
  if (Record* record = find(number)) record->rule = rule;
}

void Recorder::mix(const Op& op, std::uint64_t value) {
  fingerprint_ = mum(fingerprint_ ^ 0x2d358dccaa6c78a5ull, hash(op, value) ^ 0x8bb84b93962eacc9ull);
  if (keep_log_) log_.push_back({op, value});
}

std::vector<Record> Recorder::records(std::size_t last) const {
  const std::size_t n = std::min(last, ring_.size());
  std::vector<Record> out;
  out.reserve(n);
  for (std::size_t i = 0; i < n; ++i) out.push_back(ring_[(count_ - n + i) % ring_.size()]);
  return out;
}

std::string_view name(RecordState state) {
  switch (state) {
    case RecordState::enqueued:
      return "queued";
    case RecordState::started:
      return "started";
    case RecordState::completed:
      return "completed";
    case RecordState::aborted:
      return "aborted";
    case RecordState::failed:
      return "error";
    case RecordState::timed_out:
      return "timed_out";
  }
  return "unknown";
}

}  // namespace seeksim::runtime
