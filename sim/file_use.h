// FileUse: bytes that went to files and came from them, by what they hold and by step. Asked of the launches of storage
// queues, so that a run of shapes knows it too.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "runtime/seams/queue.h"

namespace seeksim::sim {

struct FileUse {
  struct Bytes {
    std::uint64_t read = 0;  // what is read back to see what a disk holds is in it
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
