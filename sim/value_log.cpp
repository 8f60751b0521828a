#include "sim/value_log.h"

#include <algorithm>

#include "kernels/digest.h"

namespace seeksim::sim {

using runtime::ElementType;
using runtime::Range;

namespace {

// Every NaN is one NaN, as in all digests. What has no type of numbers goes as words.
std::uint64_t digest_of(const Range& range) {
  const std::byte* data = range.buffer->data + range.lo;
  const std::size_t bytes = range.hi - range.lo;
  const auto of = [&]<class T>(T) {
    const kernels::OnHost<T> values(range.buffer->lane,
                                    {reinterpret_cast<const T*>(data), kernels::Index(bytes / sizeof(T))});
    return kernels::digest<T>(values.get());
  };
  switch (range.type) {
    case ElementType::bf16:
      return of(kernels::bf16{});
    case ElementType::f16:
      return of(kernels::fp16{});
    default:
      return of(float{});
  }
}

}  // namespace

void ValueLog::enqueued(const runtime::Event& through, const runtime::Op& op, std::span<const Range> ranges) {
  if (next_ != nullptr) next_->enqueued(through, op, ranges);
  if (op.step >= plan_.first_step)
    pending_[through.queue].push_back({through.place, op, {ranges.begin(), ranges.end()}});
}

void ValueLog::completed(const runtime::Event& through) {
  if (next_ != nullptr) next_->completed(through);
  std::deque<Pending>& pending = pending_[through.queue];
  while (!pending.empty() && pending.front().place <= through.place) {
    const Pending one = std::move(pending.front());
    pending.pop_front();
    // Inputs first: where one of them differs already, what the operation wrote is a consequence.
    for (const bool written : {false, true}) {
      for (const Range& range : one.ranges) {
        if (range.write == written) log(one.op, range);
      }
    }
  }
}

void ValueLog::host_touches(const runtime::Op& op, const Range& range) {
  if (next_ != nullptr) next_->host_touches(op, range);
}

void ValueLog::released(const runtime::Buffer& buffer) {
  if (next_ != nullptr) next_->released(buffer);
}

void ValueLog::log(const runtime::Op& op, const Range& range) {
  if (range.buffer == nullptr || range.buffer->data == nullptr || range.hi <= range.lo) return;
  if (rank_ == plan_.keep_rank && entries_.size() == plan_.keep_entry) {
    kept_.resize(range.hi - range.lo);
    kernels::copy_bytes(range.buffer->lane, range.buffer->data + range.lo, kept_.data(), kept_.size());
  }
  entries_.push_back({op, range.buffer->name, range.buffer->tag, range.type, range.lo, range.hi, digest_of(range),
                      clock_.now(), !range.write});
}

}  // namespace seeksim::sim
