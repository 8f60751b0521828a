// Which memory a rule hits, and what it writes there.
#include "faults/value_fault.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "kernels/cast.h"

namespace seeksim::faults {

using runtime::ElementType;
using runtime::MemoryTag;
using runtime::Op;
using runtime::OpKind;
using runtime::Phase;
using runtime::Range;

namespace {

bool is_float(ElementType type) {
  return type == ElementType::f32 || type == ElementType::f16 || type == ElementType::bf16;
}

using Tags = std::initializer_list<MemoryTag>;

std::optional<Range> first(std::span<const Range> ranges, bool write, Tags tags) {
  for (const Range& range : ranges) {
    if (range.buffer == nullptr || range.write != write || range.lo >= range.hi || !is_float(range.type)) continue;
    if (std::find(tags.begin(), tags.end(), range.buffer->tag) != tags.end()) return range;
  }
  return std::nullopt;
}

std::optional<Target> as_target(std::optional<Range> range, bool before) {
  return range ? std::optional<Target>({*range, before}) : std::nullopt;
}

// The targets, which a data load writes last.
std::optional<Target> targets_of(std::span<const Range> ranges) {
  for (auto range = ranges.rbegin(); range != ranges.rend(); ++range) {
    if (range->write && range->type == ElementType::i32 && range->lo < range->hi) return Target{*range, false};
  }
  return std::nullopt;
}

// The tokens that go in, which it writes first.
std::optional<Target> inputs_of(std::span<const Range> ranges) {
  const auto range =
      std::ranges::find_if(ranges, [](const Range& one) { return one.write && one.type == ElementType::i32; });
  if (range == ranges.end() || range->lo == range->hi) return std::nullopt;
  return Target{*range, false};
}

// The arguments of the strike's kernel, all by value.
struct Change {
  FaultKind kind;
  ElementType type;
  float value;
  std::uint64_t bit;
  std::int32_t token;
};

void write_value(std::uint8_t* at, ElementType type, float value) {
  const kernels::Lane here;
  const kernels::Vec<const float> from{&value, 1};
  if (type == ElementType::f32) {
    std::memcpy(at, &value, sizeof value);
  } else if (type == ElementType::f16) {
    kernels::fp16 half;
    kernels::narrow<kernels::fp16>(here, from, {&half, 1});
    std::memcpy(at, &half, sizeof half);
  } else {
    kernels::bf16 half;
    kernels::narrow<kernels::bf16>(here, from, {&half, 1});
    std::memcpy(at, &half, sizeof half);
  }
}

void apply(const Change& change, kernels::Vec<std::uint8_t> memory) {
  const std::size_t bytes = runtime::size_of(change.type);
  if (change.kind == FaultKind::zero_tile) {
    std::memset(memory.data, 0, std::size_t(memory.n));
  } else if (change.kind == FaultKind::bit_flip) {
    const std::uint64_t bit = change.bit % (8 * bytes);
    memory.data[bit / 8] = std::uint8_t(memory.data[bit / 8] ^ (1u << (bit % 8)));
  } else if (change.kind == FaultKind::loss_spike || change.kind == FaultKind::token_imbalance) {
    for (kernels::Index at = 0; at + 4 <= memory.n; at += 4) std::memcpy(memory.data + at, &change.token, 4);
  } else {
    write_value(memory.data, change.type, change.value);
  }
}

void twice(kernels::Vec<std::uint8_t> memory, ElementType type) {
  if (type != ElementType::f32) return;
  for (kernels::Index at = 0; at + 4 <= memory.n; at += 4) {
    float value;
    std::memcpy(&value, memory.data + at, sizeof value);
    value *= 2.0f;
    std::memcpy(memory.data + at, &value, sizeof value);
  }
}

float value_of(const Rule& rule) {
  const float sign = rule.negative ? -1.0f : 1.0f;
  if (rule.kind == FaultKind::nan_inject) return std::numeric_limits<float>::quiet_NaN();
  if (rule.kind == FaultKind::inf_inject) return sign * std::numeric_limits<float>::infinity();
  return sign * float(rule.value);
}

}  // namespace

std::optional<Target> target_of(const Rule& rule, const Op& op, std::span<const Range> ranges) {
  if (rule.kind == FaultKind::loss_spike) return op.kind == OpKind::data_load ? targets_of(ranges) : std::nullopt;
  if (rule.kind == FaultKind::token_imbalance) return op.kind == OpKind::data_load ? inputs_of(ranges) : std::nullopt;
  if (op.kind != OpKind::compute) return std::nullopt;
  switch (rule.site) {
    case Site::activation:
      if (op.phase != Phase::forward) return std::nullopt;
      return as_target(first(ranges, true, {MemoryTag::activations}), false);
    case Site::activation_gradient:
      if (op.phase != Phase::backward) return std::nullopt;
      return as_target(first(ranges, true, {MemoryTag::activations}), false);
    case Site::loss:
      if (op.phase != Phase::forward || std::string_view(op.tensor) != "losses") return std::nullopt;
      return as_target(first(ranges, true, {MemoryTag::activations}), false);
    case Site::parameter:
      if (op.phase != Phase::forward) return std::nullopt;
      return as_target(first(ranges, false, {MemoryTag::parameters, MemoryTag::gathered}), true);
    case Site::gradient:
      if (op.phase != Phase::backward) return std::nullopt;
      return as_target(first(ranges, true, {MemoryTag::partial_sums, MemoryTag::gradients, MemoryTag::communication}),
                       false);
    case Site::reduced_gradient:
      if (op.phase != Phase::grad_reduce || std::string_view(op.tensor) != "gradients") return std::nullopt;
      return as_target(first(ranges, false, {MemoryTag::gradients}), true);
    case Site::optimizer_state:
      if (op.phase != Phase::optimizer) return std::nullopt;
      return as_target(first(ranges, true, {MemoryTag::optimizer}), true);
    default:
      return std::nullopt;
  }
}

void strike(runtime::Queue& queue, const Op& op, const Rule& rule, const Range& target) {
  const std::size_t bytes = runtime::size_of(target.type);
  const std::size_t elements = (target.hi - target.lo) / bytes;
  std::size_t from = std::size_t(rule.element % elements), count = 1;
  if (rule.kind == FaultKind::zero_tile) count = std::min<std::size_t>(std::size_t(rule.elements), elements - from);
  if (rule.kind == FaultKind::loss_spike || rule.kind == FaultKind::token_imbalance) from = 0, count = elements;
  Op ours = op;
  ours.site = "fault";
  const Change change{rule.kind, target.type, value_of(rule), rule.bit, rule.token};
  const kernels::Vec<std::uint8_t> memory =
      runtime::vec<std::uint8_t>(*target.buffer, runtime::Index(target.lo + from * bytes),
                                 runtime::Index(count * bytes))
          .get();
  const auto blow = [change, memory](kernels::Lane lane) {
    kernels::change_on_host(lane, memory, [&](kernels::Vec<std::uint8_t> held) { apply(change, held); });
  };
  // Damage is not ordered with anything and is not an access of the program, so it declares no memory: reading at the
  // same time is not a race.
  queue.enqueue_kernel(ours, runtime::Cost{}, runtime::Closure(blow), {});
}

// The gradients of each step are kept; in the step that the rule names, others replace them.
void FaultyQueue::keep_and_strike(RuleState& state, const Op& op, const Range& gradients) {
  const bool strikes = state.asks(op, clock_.now());
  if (strikes) state.record(clock_.now(), rank_, &op);
  std::unique_ptr<Past>& past = past_[&state];
  if (past == nullptr) past = std::make_unique<Past>();
  Op ours = op;
  ours.site = "fault";
  const kernels::Vec<std::uint8_t> memory = runtime::vec<std::uint8_t>(*gradients.buffer, runtime::Index(gradients.lo),
                                                                       runtime::Index(gradients.hi - gradients.lo))
                                                .get();
  const auto change = [kept = past.get(), memory, strikes, mode = state.rule().mode, type = gradients.type,
                       age = std::size_t(state.rule().staleness)](kernels::Lane lane) {
    if (memory.data == nullptr) return;  // a run of shapes
    kernels::change_on_host(lane, memory, [&](kernels::Vec<std::uint8_t> bytes) {
      std::vector<std::uint8_t> now(bytes.data, bytes.data + bytes.n);
      if (strikes && mode == Mode::drop) std::memset(bytes.data, 0, now.size());
      if (strikes && mode == Mode::dup_apply) twice(bytes, type);
      if (strikes && mode == Mode::delayed_apply && kept->steps.size() >= age) {
        const std::vector<std::uint8_t>& old = kept->steps[kept->steps.size() - age];
        std::memcpy(bytes.data, old.data(), std::min(old.size(), now.size()));
      }
      kept->steps.push_back(std::move(now));
      if (kept->steps.size() > age) kept->steps.erase(kept->steps.begin());
    });
  };
  inner_.enqueue_kernel(ours, runtime::Cost{}, runtime::Closure(change), {});
}

void FaultyQueue::enqueue_kernel(const Op& op, runtime::Cost cost, const runtime::Closure& closure,
                                 std::span<const Range> ranges) {
  if (host_.gone()) return;
  after_.clear();
  last_.launched = op;
  const runtime::DiesAt dies = host_.enter(op);
  if (host_.device_lost()) return;  // nothing runs on it any more
  for (RuleState* state : rules_) {
    const std::optional<Target> target = target_of(state->rule(), op, ranges);
    if (target && state->rule().kind == FaultKind::stale_gradient) {
      keep_and_strike(*state, op, target->range);
      continue;
    }
    if (!target || !state->asks(op, clock_.now())) continue;
    state->record(clock_.now(), rank_, &op);
    if (target->before)
      strike(inner_, op, state->rule(), target->range);
    else
      after_.push_back({&state->rule(), target->range});
  }
  inner_.enqueue_kernel(op, cost, closure, ranges);
  for (const Hit& hit : after_) strike(inner_, op, *hit.rule, hit.range);
  if (dies == runtime::DiesAt::never) return;
  // `during`: the launch is under way when its host is killed. `after`: the host has seen its end, or has heard that
  // the others gave up the epoch, because what the launch waits for may never come.
  if (dies == runtime::DiesAt::after) device_.wait(inner_.record(), runtime::kForever, op.epoch);
  host_.die();
}

}  // namespace seeksim::faults
