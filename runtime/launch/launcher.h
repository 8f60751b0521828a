// Launcher: a queue with the Op that describes where in the step its launches stand, so that a line of the model's code
// names only what is its own: tensor, call site, cost, kernel, views.
#pragma once

#include <span>
#include <string>

#include "kernels/check.h"
#include "runtime/launch/provenance.h"
#include "runtime/seams/queue.h"

#define SEEKSIM_SITE_TEXT2(line) #line
#define SEEKSIM_SITE_TEXT(line) SEEKSIM_SITE_TEXT2(line)
// "trainer.cpp:123", a literal: Op::site.
#define SEEKSIM_SITE __FILE_NAME__ ":" SEEKSIM_SITE_TEXT(__LINE__)

namespace seeksim::runtime {

// Kernels touch the memory of the processor that runs them: device kernels the device's, kernels of the host's
// processor and of files the host's. Only copies go between. A real device could not do otherwise.
inline void check_spaces(OpKind kind, const char* tensor, std::span<const Range> ranges) {
  if (kind == OpKind::copy) return;
  const bool on_host = kind == OpKind::host_compute || kind == OpKind::storage_read || kind == OpKind::storage_write;
  for (const Range& range : ranges) {
    SEEKSIM_CHECK(range.buffer == nullptr || (range.buffer->space != Space::device) == on_host,
                  "%s of '%s' touches '%s', which is in memory of the %s", std::string(name(kind)).c_str(), tensor,
                  range.buffer->name, std::string(name(range.buffer->space)).c_str());
  }
}

class Launcher {
 public:
  // launched: how many launches this queue's sequence already counts. kind: of launches that name none.
  Launcher(Queue& queue, int rank, std::uint64_t launched = 0, OpKind kind = OpKind::compute)
      : queue_(&queue), kind_(kind) {
    op_.rank = rank;
    op_.sequence = launched;
  }

  // For launches that stand where `op` does, and are of its kind.
  Launcher(Queue& queue, const Op& op) : queue_(&queue), kind_(op.kind), op_(op) {}

  // Where the following launches stand.
  void at(std::uint32_t epoch, std::int64_t step) {
    op_.epoch = epoch;
    op_.step = step;
    op_.micro_batch = -1;
    samples(-1, 0);
  }
  void phase(Phase phase, std::int32_t micro_batch = -1) {
    op_.phase = phase;
    op_.micro_batch = micro_batch;
    samples(-1, 0);
  }
  // What the following launches of this phase bring.
  void samples(std::int64_t first, std::int32_t count) {
    op_.sample = first;
    op_.samples = count;
  }

  void layer(std::int32_t layer) { op_.layer = layer; }  // -1: outside layers

  template <class Kernel, class... Views>
  void operator()(const char* tensor, const char* site, Cost cost, Kernel kernel, Views... views) {
    launch(kind_, tensor, site, cost, kernel, views...);
  }
  // Muted: launches do nothing. For a micro-step in which this rank has no samples, but takes part in what others need.
  void mute(bool on) { muted_ = on; }
  bool muted() const { return muted_; }
  // provenance scans what the following launches write; null: no scan.
  void watched_by(Provenance* provenance) { provenance_ = provenance; }

  template <class Kernel, class... Views>
  void launch(OpKind kind, const char* tensor, const char* site, Cost cost, Kernel kernel, Views... views) {
    if (muted_) return;
    op_.kind = kind;
    op_.tensor = tensor;
    op_.site = site;
    ++op_.sequence;
    const Range all[] = {views.range()..., Range{}};
    const std::span<const Range> ranges(all, sizeof...(Views));
    check_spaces(kind, tensor, ranges);
    queue_->launch(op_, cost, kernel, views...);
    if (provenance_ != nullptr) provenance_->watch(*queue_, op_, ranges);
  }

  // The last launch, for the wait that follows it.
  const Op& last() const { return op_; }
  OpKind kind() const { return kind_; }
  Queue& queue() { return *queue_; }

 private:
  Queue* queue_;
  OpKind kind_;
  Op op_;
  bool muted_ = false;
  Provenance* provenance_ = nullptr;
};

// What a launch costs that reads and writes `floats` floats and computes little.
inline Cost memory_cost(Index floats, double flops_each = 1) {
  return {flops_each * double(floats), 4.0 * double(floats)};
}
inline Cost gemm_cost(Index m, Index n, Index k) {
  return {2.0 * double(m) * double(n) * double(k),
          4.0 * (double(m) * double(k) + double(k) * double(n) + double(m) * double(n))};
}

}  // namespace seeksim::runtime
