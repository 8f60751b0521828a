#include "harness/simulate/value_watch.h"

namespace seeksim::harness {

void ValueWatch::enqueued(const runtime::Event& through, const runtime::Op& op,
                          std::span<const runtime::Range> ranges) {
  pending_[through.queue].push_back({through.place, op, {ranges.begin(), ranges.end()}});
}

void ValueWatch::completed(const runtime::Event& through) {
  std::deque<Pending>& pending = pending_[through.queue];
  while (!pending.empty() && pending.front().place <= through.place) {
    const Pending one = std::move(pending.front());
    pending.pop_front();
    sink_.completed(rank_, one.op, clock_.now(), one.ranges);
  }
}

// A mistake may give memory back while operations on it are pending.
void ValueWatch::released(const runtime::Buffer& buffer) {
  for (auto& [queue, pending] : pending_) {
    for (Pending& one : pending)
      std::erase_if(one.ranges, [&](const runtime::Range& range) { return range.buffer == &buffer; });
  }
}

}  // namespace seeksim::harness
