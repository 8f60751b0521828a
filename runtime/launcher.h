// Launcher: a queue with the Op that describes where in the step its launches stand, so that a line of the model's code
// names only what is its own: tensor, call site, cost, kernel, views.
#pragma once

#include "runtime/provenance.h"
#include "runtime/queue.h"

#define SEEKSIM_SITE_TEXT2(line) #line
#define SEEKSIM_SITE_TEXT(line) SEEKSIM_SITE_TEXT2(line)
// "trainer.cpp:123", a literal: Op::site.
#define SEEKSIM_SITE __FILE_NAME__ ":" SEEKSIM_SITE_TEXT(__LINE__)

namespace seeksim::runtime {

class Launcher {
 public:
  // launched: how many launches this queue's sequence already counts.
  Launcher(Queue& queue, int rank, std::uint64_t launched = 0) : queue_(&queue) {
    op_.rank = rank;
    op_.sequence = launched;
  }

  // Where the following launches stand.
  void at(std::uint32_t epoch, std::int64_t step) {
    op_.epoch = epoch;
    op_.step = step;
    op_.micro_batch = -1;
  }
  void phase(Phase phase, std::int32_t micro_batch = -1) {
    op_.phase = phase;
    op_.micro_batch = micro_batch;
  }

  void layer(std::int32_t layer) { op_.layer = layer; }  // -1: outside layers

  template <class Kernel, class... Views>
  void operator()(const char* tensor, const char* site, Cost cost, Kernel kernel, Views... views) {
    launch(OpKind::compute, tensor, site, cost, kernel, views...);
  }
  // Muted: launches do nothing. For a micro-step in which this rank has no samples, but takes part in what others need.
  void mute(bool on) { muted_ = on; }
  // Who looks at what the following launches write; null: nobody.
  void watched_by(Provenance* provenance) { provenance_ = provenance; }

  template <class Kernel, class... Views>
  void launch(OpKind kind, const char* tensor, const char* site, Cost cost, Kernel kernel, Views... views) {
    if (muted_) return;
    op_.kind = kind;
    op_.tensor = tensor;
    op_.site = site;
    ++op_.sequence;
    queue_->launch(op_, cost, kernel, views...);
    if (provenance_ != nullptr) {
      const Range ranges[] = {views.range()..., Range{}};
      provenance_->watch(*queue_, op_, std::span<const Range>(ranges, sizeof...(Views)));
    }
  }

  // The last launch, for the wait that follows it.
  const Op& last() const { return op_; }
  Queue& queue() { return *queue_; }

 private:
  Queue* queue_;
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
