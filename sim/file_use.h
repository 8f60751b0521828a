// FileUse: bytes written to files and read from them, by kind of content and by step. Counted from the launches of
// storage queues, so a run of shapes counts them too.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "runtime/seams/queue.h"

namespace seeksim::sim {

struct FileUse {
  struct Bytes {
    std::uint64_t read = 0;  // includes what is read back to verify a write
    std::uint64_t written = 0;
  };
  std::map<std::string, Bytes> by_kind;   // "adam m"
  std::map<std::int64_t, Bytes> by_step;  // -1: outside steps
  bool any() const { return !by_kind.empty(); }

  void add(const runtime::Op& op, const runtime::Cost& cost) {
    const std::uint64_t bytes = op.bytes > 0 ? std::uint64_t(cost.bytes) : 0;  // making durable moves none
    if (bytes == 0) return;
    for (Bytes* use : {&by_kind[op.tensor], &by_step[op.step]})
      (op.kind == runtime::OpKind::storage_read ? use->read : use->written) += bytes;
  }

  FileUse& operator+=(const FileUse& other) {
    const auto merge = [](auto& into, const auto& from) {
      for (const auto& [key, bytes] : from) {
        into[key].read += bytes.read;
        into[key].written += bytes.written;
      }
    };
    merge(by_kind, other.by_kind);
    merge(by_step, other.by_step);
    return *this;
  }
};

}  // namespace seeksim::sim
