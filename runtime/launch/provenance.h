// Provenance: where the first value that is not finite was born. After each launch that it hears of, it scans what the
// launch wrote, on the same queue, before anything else can read it and long before a reduction spreads it to other
// ranks. It keeps the first find of a step, with what the operation's inputs held at that moment. The same scans serve
// the range log: minimum, maximum, mean, zeros, subnormals and overflows of what each operation wrote.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/range.h"
#include "runtime/plan/provenance_plan.h"
#include "runtime/seams/op.h"
#include "runtime/seams/queue.h"
#include "runtime/seams/seams.h"

namespace seeksim::runtime {

// One thing that an operation read or wrote, and what it held.
struct TensorSight {
  const char* buffer = "";
  MemoryTag tag = MemoryTag::scratch;
  ElementType type = ElementType::f32;
  bool written = false;
  kernels::TensorRange range;
};

// The operation that first wrote a value that is not finite.
struct NonFiniteBirth {
  Op op;
  const char* buffer = "";            // where it was written
  Index element = 0;                  // in what the operation wrote there
  std::vector<TensorSight> operands;  // inputs first
};

// An operation's outputs, for the range log.
struct RangeLogEntry {
  Op op;
  TensorSight sight;
};

class Provenance {
 public:
  static constexpr std::size_t kOperandsMax = 8;
  static constexpr std::size_t kLogMax = 8192;  // entries of a step

  Provenance(Device& device, const ProvenancePlan& plan);

  void begin_step(Queue& queue, std::int64_t step);
  // The launch of `op` on `ranges` has just been enqueued on `queue`.
  void watch(Queue& queue, const Op& op, std::span<const Range> ranges);
  // To be asked when all that was enqueued is done; `op` says who asks.
  std::optional<NonFiniteBirth> first(const Op& op);
  std::vector<RangeLogEntry> logged(const Op& op);
  std::uint64_t dropped() const { return dropped_; }

 private:
  // What a scan leaves on the device: plain numbers.
  struct Found {
    std::int64_t launch = -1;  // number of the launch in the step; -1: nothing found
    std::int64_t operand = 0;
    std::int64_t element = 0;
    std::array<kernels::TensorRange, kOperandsMax> ranges;
  };
  struct Operand {
    const std::byte* data = nullptr;  // of the device
    Index n = 0;
    ElementType type = ElementType::f32;
    bool written = false;
  };
  struct Operands {
    std::array<Operand, kOperandsMax> all;
    int count = 0;
  };
  struct Launch {
    Op op;
    std::array<Range, kOperandsMax> ranges;
    int count = 0;
  };

  static void scan(kernels::Lane lane, const Operands& operands, std::int64_t launch, Found& found);
  void look(Queue& queue, const Op& op, const Operands& operands, std::span<const Range> ranges);
  void log_outputs(Queue& queue, const Op& op, std::span<const Range> ranges);
  static TensorSight sight(const Range& range, const kernels::TensorRange& held);

  Device& device_;
  ProvenancePlan plan_;
  bool logging_ = false;
  BufferPtr found_;               // (1) Found
  BufferPtr log_ranges_;          // (kLogMax) TensorRange
  std::vector<Launch> launches_;  // of the step
  std::vector<std::pair<Op, Range>> log_;
  std::uint64_t dropped_ = 0;
};

}  // namespace seeksim::runtime
