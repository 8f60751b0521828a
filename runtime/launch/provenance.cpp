// A scan is one launch more on the queue of the launch that it is about, so it sees what that one wrote and nothing
// later. Until the first find it reads the outputs only.
#include "runtime/launch/provenance.h"

#include <algorithm>

#include "runtime/launch/any_vec.h"

namespace seeksim::runtime {

using kernels::Lane;
using kernels::TensorRange;

namespace {

bool is_float(ElementType type) { return type == ElementType::f32 || is_16_bit(type); }

// The host looks: what an operation touched, brought to it where it lies elsewhere, as a matrix of one row.
template <class T>
kernels::OnHost<T> values_of(Lane lane, const std::byte* data, Index n) {
  return {lane, {reinterpret_cast<const T*>(data), n}};
}

TensorRange range_of(Lane lane, const std::byte* data, Index n, ElementType type) {
  return with_float_type(type, [&](auto like) {
    using T = decltype(like);
    const kernels::OnHost<T> values = values_of<T>(lane, data, n);
    TensorRange range;
    kernels::range<T>(Lane{}, {values.get().data, 1, n, n}, {&range, 1});
    return range;
  });
}

Index first_nonfinite_of(Lane lane, const std::byte* data, Index n, ElementType type) {
  return with_float_type(type, [&](auto like) {
    using T = decltype(like);
    const kernels::OnHost<T> values = values_of<T>(lane, data, n);
    std::int64_t element = -1;
    kernels::first_nonfinite<T>(Lane{}, {values.get().data, 1, n, n}, {&element, 1});
    return Index(element);
  });
}

// A look at `op` is no computation of the step: no fault of values strikes it.
Op inspection(Op op) {
  op.kind = OpKind::inspect;
  return op;
}

// What of an operation's ranges can be looked at: numbers, not too many, and no working space, which may hold anything.
std::vector<Range> numbers_among(std::span<const Range> ranges, std::size_t limit) {
  std::vector<Range> numbers;
  for (const Range& range : ranges) {
    const bool looked_at = range.buffer != nullptr && range.lo < range.hi && is_float(range.type);
    if (looked_at && range.buffer->tag != MemoryTag::scratch && numbers.size() < limit) numbers.push_back(range);
  }
  return numbers;
}

}  // namespace

Provenance::Provenance(Device& device, const ProvenancePlan& plan) : device_(device), plan_(plan) {
  if (plan_.on) found_ = device_.allocate(sizeof(Found), MemoryTag::scratch, "provenance");
  if (plan_.log_step >= 0)
    log_ranges_ = device_.allocate(kLogMax * sizeof(TensorRange), MemoryTag::scratch, "range log");
}

void Provenance::begin_step(Queue& queue, std::int64_t step) {
  launches_.clear();
  log_.clear();
  dropped_ = 0;
  logging_ = step >= 0 && step == plan_.log_step;
  if (!plan_.on) return;
  Op op;
  op.step = step;
  op.kind = OpKind::inspect;
  op.tensor = "provenance";
  queue.launch(
      op, Cost{},
      [](Lane lane, kernels::Vec<Found> found) {
        const Found none;
        kernels::write_values(lane, &none, found);
      },
      vec<Found>(*found_));
}

void Provenance::scan(Lane lane, const Operands& operands, std::int64_t launch, Found& found) {
  if (found.launch >= 0) return;
  for (int i = 0; i < operands.count; ++i) {
    const Operand& o = operands.all[std::size_t(i)];
    if (!o.written) continue;
    const Index element = first_nonfinite_of(lane, o.data, o.n, o.type);
    if (element < 0) continue;
    found.launch = launch;
    found.operand = i;
    found.element = element;
    for (int k = 0; k < operands.count; ++k) {
      const Operand& seen = operands.all[std::size_t(k)];
      found.ranges[std::size_t(k)] = range_of(lane, seen.data, seen.n, seen.type);
    }
    return;
  }
}

void Provenance::watch(Queue& queue, const Op& op, std::span<const Range> ranges) {
  if (!plan_.on && !logging_) return;
  const std::vector<Range> numbers = numbers_among(ranges, kOperandsMax);
  if (std::none_of(numbers.begin(), numbers.end(), [](const Range& range) { return range.write; })) return;
  if (logging_) log_outputs(queue, op, numbers);
  if (!plan_.on) return;
  Operands operands;
  for (const Range& range : numbers) {
    operands.all[std::size_t(operands.count++)] = {
        range.buffer->data + range.lo, Index((range.hi - range.lo) / size_of(range.type)), range.type, range.write};
  }
  look(queue, op, operands, numbers);
}

void Provenance::look(Queue& queue, const Op& op, const Operands& operands, std::span<const Range> ranges) {
  Launch launch;
  launch.op = op;
  launch.count = int(ranges.size());
  std::copy(ranges.begin(), ranges.end(), launch.ranges.begin());
  const auto number = std::int64_t(launches_.size());
  launches_.push_back(launch);
  // The scan reads all of them, and writes down what it found.
  std::vector<Range> touched(ranges.begin(), ranges.end());
  for (Range& range : touched) range.write = false;
  touched.push_back(vec<Found>(*found_).range());
  const kernels::Vec<Found> found = vec<Found>(*found_).get();
  const auto look = [operands, number, found](Lane lane) {
    kernels::change_on_host(lane, found, [&](kernels::Vec<Found> held) { scan(lane, operands, number, held[0]); });
  };
  queue.enqueue_kernel(inspection(op), Cost{}, Closure(look), touched);
}

void Provenance::log_outputs(Queue& queue, const Op& op, std::span<const Range> ranges) {
  for (const Range& range : ranges) {
    if (!range.write) continue;
    if (log_.size() == kLogMax) {
      ++dropped_;
      continue;
    }
    const VecView<TensorRange> to = vec<TensorRange>(*log_ranges_, Index(log_.size()), 1);
    Range read = range;
    read.write = false;
    const Range touched[] = {read, to.range()};
    const Operand of{range.buffer->data + range.lo, Index((range.hi - range.lo) / size_of(range.type)), range.type,
                     true};
    const auto look = [of, out = to.get()](Lane lane) {
      const TensorRange held = range_of(lane, of.data, of.n, of.type);
      kernels::write_values(lane, &held, out);
    };
    queue.enqueue_kernel(inspection(op), Cost{}, Closure(look), touched);
    log_.push_back({op, range});
  }
}

TensorSight Provenance::sight(const Range& range, const TensorRange& held) {
  return {range.buffer->name, range.buffer->tag, range.type, range.write, held};
}

std::optional<NonFiniteBirth> Provenance::first(const Op& op) {
  if (!plan_.on) return std::nullopt;
  const VecView<const Found> view = vec<const Found>(*found_);
  device_.host_touches(op, view.range());
  const Found found = on_host(view)[0];
  if (found.launch < 0) return std::nullopt;
  const Launch& launch = launches_[std::size_t(found.launch)];
  NonFiniteBirth birth;
  birth.op = launch.op;
  birth.buffer = launch.ranges[std::size_t(found.operand)].buffer->name;
  birth.element = found.element;
  for (const bool written : {false, true}) {
    for (int i = 0; i < launch.count; ++i) {
      const Range& range = launch.ranges[std::size_t(i)];
      if (range.write == written) birth.operands.push_back(sight(range, found.ranges[std::size_t(i)]));
    }
  }
  return birth;
}

std::vector<RangeLogEntry> Provenance::logged(const Op& op) {
  std::vector<RangeLogEntry> entries;
  if (log_.empty()) return entries;
  const VecView<const TensorRange> view = vec<const TensorRange>(*log_ranges_, 0, Index(log_.size()));
  device_.host_touches(op, view.range());
  const kernels::OnHost<TensorRange> held = on_host(view);
  for (std::size_t i = 0; i < log_.size(); ++i)
    entries.push_back({log_[i].first, sight(log_[i].second, held[Index(i)])});
  return entries;
}

}  // namespace seeksim::runtime
