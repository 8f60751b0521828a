#include "harness/explain/golden_values.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "harness/scenario/variants.h"
#include "kernels/check.h"
#include "kernels/norms.h"
#include "runtime/launch/any_vec.h"

namespace seeksim::harness {

using runtime::ElementType;
using runtime::MemoryTag;
using runtime::Op;
using runtime::OpKind;
using runtime::Phase;
using runtime::Range;

namespace {

std::string_view text(const char* of) { return of == nullptr ? std::string_view() : std::string_view(of); }

bool named(const runtime::Buffer& buffer, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), text(buffer.name)) != names.end();
}

bool is_float(ElementType type) {
  return type == ElementType::f32 || type == ElementType::f16 || type == ElementType::bf16;
}

}  // namespace

StateRole state_role(const runtime::Buffer& buffer) {
  if (named(buffer, {"adam m", "lion m", "muon m", "sgd momentum"})) return StateRole::first_moments;
  if (named(buffer, {"adam v", "muon v"})) return StateRole::second_moments;
  if (named(buffer, {"weights", "fp32 masters", "parameter shard", "updated parameters", "persistent parameters",
                     "gathered parameters", "parameters from files"}))
    return StateRole::weights;
  return StateRole::none;
}

bool holds_gradients(const runtime::Buffer& buffer) {
  return named(buffer, {"gradient node", "gradient bucket", "gradients", "gradients in fp32", "gradient shard",
                        "reduced gradients in fp32", "sums of a bucket", "head's share and loss"});
}

bool holds_norms(const runtime::Buffer& buffer) { return named(buffer, {"norms", "norm blocks"}); }

const Flat* StateFlats::find(StateRole role, ElementType type) const {
  const auto found = of.find({role, type});
  return found == of.end() ? nullptr : &found->second;
}

OperandKey operand_key(const Op& op, bool write, int number, int occurrence) {
  return {op.phase == Phase::recompute ? Phase::forward : op.phase,
          op.layer,
          text(op.tensor),
          text(op.site),
          write,
          number,
          occurrence};
}

bool is_step_compute(const Op& op) {
  const bool in_pass = op.phase == Phase::data || op.phase == Phase::forward || op.phase == Phase::recompute ||
                       op.phase == Phase::backward;
  return in_pass && op.micro_batch >= 0 && (op.kind == OpKind::compute || op.kind == OpKind::data_load);
}

std::span<const std::byte> bytes_of(const Range& range) {
  if (range.buffer == nullptr || range.buffer->data == nullptr || range.hi <= range.lo) return {};
  return {range.buffer->data + range.lo, range.hi - range.lo};
}

Scenario one_sample_at_a_time(const Scenario& scenario) {
  Scenario one = one_rank(without_quirks(scenario));
  one.train.layout.micro_batch = 1;
  one.accumulation = one.train.definition.global_batch;
  return one;
}

// ---- keeping -------------------------------------------------------------------------------------------------------

void GoldenValues::completed(int /*rank*/, const Op& op, runtime::TimeNs /*at_ns*/, std::span<const Range> ranges) {
  if (op.step > now_) begin_step(op.step);
  const bool kept = op.step >= first_ && op.step <= last_ && !full();
  GoldenStep* const step = kept ? &steps_[op.step] : nullptr;
  if (step != nullptr && is_step_compute(op)) keep_operands(*step, op, ranges);
  for (const Range& range : ranges) {
    if (!range.write || bytes_of(range).empty()) continue;
    if (state_role(*range.buffer) != StateRole::none) {
      keep_state(range);
      if (step != nullptr && op.phase == Phase::optimizer) step->applied = true;
    }
    if (step == nullptr) continue;
    if (op.phase == Phase::backward && holds_gradients(*range.buffer)) keep_leaf(*step, op, range);
    if (op.phase == Phase::grad_reduce && holds_gradients(*range.buffer)) keep_sums(*step, range);
    if (op.phase == Phase::grad_reduce && holds_norms(*range.buffer)) keep_norms(*step, op, range);
  }
}

void GoldenValues::begin_step(std::int64_t step) {
  seen_.clear();
  now_ = step;
  if (step < first_ || step > last_ + 1 || full()) return;
  StateFlats& flats = before_[step];
  for (const auto& [buffer, shadow] : shadows_) {
    flats.of[{shadow.role, shadow.type}] = Flat(shadow.bytes, shadow.type);
    bytes_ += shadow.bytes.size();
  }
}

// Blocks of slabs are measured one slab at a time, in the same memory: what they were is computed again.
void GoldenValues::add_norms_of_blocks(GoldenStep& step, const runtime::Parameters& parameters) {
  if (step.sums.empty()) return;
  const Flat& root = step.sums.back();
  with_float_type(root.type(), [&](auto like) {
    using G = decltype(like);
    std::vector<G> all(std::size_t(root.size()));
    std::memcpy(all.data(), root.bytes().data(), root.bytes().size());
    for (const runtime::ParameterInfo* p : parameters.trainable()) {
      for (runtime::Index at = 0; at < p->size; at += p->slab) {
        const runtime::Index n = std::min(p->slab, p->size - at);
        std::vector<float> norms(std::size_t((n + kernels::kBlock - 1) / kernels::kBlock));
        kernels::norm2_blocks<G>(kernels::Lane{}, {all.data() + p->offset + at, n},
                                 {norms.data(), runtime::Index(norms.size())});
        for (const float norm : norms) step.norms.push_back(std::bit_cast<std::uint32_t>(norm));
      }
    }
  });
}

void GoldenValues::finish(const Scenario& scenario) {
  begin_step(now_ + 1);
  const runtime::Definition& d = scenario.train.definition;
  const runtime::Parameters parameters(d.model, d.optimizer.decay_all);
  for (auto& [number, step] : steps_) add_norms_of_blocks(step, parameters);
  for (auto& [number, step] : steps_) std::sort(step.norms.begin(), step.norms.end());
}

void GoldenValues::keep_operands(GoldenStep& step, const Op& op, std::span<const Range> ranges) {
  int numbers[2] = {0, 0};
  const int occurrence = seen_[{operand_key(op, false, -1, 0), op.micro_batch}]++;
  for (const Range& range : ranges) {
    const int number = numbers[range.write ? 1 : 0]++;
    const std::span<const std::byte> bytes = bytes_of(range);
    if (bytes.empty() || holds_gradients(*range.buffer)) continue;
    GoldenStep::Operand& operand = step.operands[operand_key(op, range.write, number, occurrence)];
    operand.type = range.type;
    operand.tag = range.buffer->tag;
    operand.of_sample.resize(std::size_t(samples_));
    const bool for_all = range.buffer->tag == MemoryTag::parameters;  // the same for each sample: kept once
    if (for_all && op.micro_batch > 0) continue;
    operand.of_sample[std::size_t(op.micro_batch)].assign(bytes.begin(), bytes.end());
    bytes_ += bytes.size();
  }
}

// The last operation that writes into a sample's node leaves it whole; sums of two nodes are made again from them.
void GoldenValues::keep_leaf(GoldenStep& step, const Op& op, const Range& range) {
  if (text(op.tensor) == "gradients" || op.micro_batch < 0) return;
  step.leaves.resize(std::size_t(samples_));
  Flat& leaf = step.leaves[std::size_t(op.micro_batch)];
  if (leaf.bytes().empty()) bytes_ += range.buffer->bytes;
  leaf = Flat({range.buffer->data, range.buffer->bytes}, ElementType::f32);
}

void GoldenValues::keep_state(const Range& range) {
  Shadow& shadow = shadows_[range.buffer->id];
  shadow.role = state_role(*range.buffer);
  shadow.bytes.resize(range.buffer->bytes);
  if (is_float(range.type)) shadow.type = range.type;
  std::memcpy(shadow.bytes.data() + range.lo, range.buffer->data + range.lo, range.hi - range.lo);
}

void GoldenValues::keep_sums(GoldenStep& step, const Range& range) {
  const ElementType type = is_float(range.type) ? range.type : ElementType::f32;
  step.sums.emplace_back(std::span<const std::byte>(range.buffer->data, range.buffer->bytes), type);
  bytes_ += range.buffer->bytes;
}

void GoldenValues::keep_norms(GoldenStep& step, const Op& op, const Range& range) {
  const std::span<const std::byte> bytes = bytes_of(range);
  std::uint32_t bits = 0;
  for (std::size_t at = 0; at + sizeof bits <= bytes.size(); at += sizeof bits) {
    std::memcpy(&bits, &bytes[at], sizeof bits);
    step.norms.push_back(bits);
  }
  if (bytes.size() == sizeof bits) step.norm_of[std::string(text(op.tensor))] = bits;
}

// ---- asking --------------------------------------------------------------------------------------------------------

const GoldenStep* GoldenValues::step(std::int64_t step) const {
  const auto found = steps_.find(step);
  return found == steps_.end() ? nullptr : &found->second;
}

const StateFlats* GoldenValues::before(std::int64_t step) const {
  const auto found = before_.find(step);
  return found == before_.end() ? nullptr : &found->second;
}

const Flat& GoldenValues::node(const GoldenStep& step, kernels::TreeNode node) const {
  const std::int64_t first = kernels::first_leaf(node);
  SEEKSIM_CHECK(first < samples_ && std::size_t(first) < step.leaves.size(), "node (%d, %lld) of %lld samples",
                node.level, static_cast<long long>(node.index), static_cast<long long>(samples_));
  if (node.level == 0) return step.leaves[std::size_t(first)];
  const kernels::TreeNode left{node.level - 1, 2 * node.index}, right{node.level - 1, 2 * node.index + 1};
  if (kernels::first_leaf(right) >= samples_) return this->node(step, left);  // passes through
  const auto [found, is_new] = step.nodes.try_emplace({node.level, node.index});
  if (!is_new) return found->second;
  const Flat &a = this->node(step, left), &b = this->node(step, right);
  std::vector<float> x(std::size_t(a.size())), y(std::size_t(b.size()));
  std::memcpy(x.data(), a.bytes().data(), a.bytes().size());
  std::memcpy(y.data(), b.bytes().data(), b.bytes().size());
  const runtime::Index n = runtime::Index(std::min(x.size(), y.size()));
  kernels::tree_add(kernels::Lane{}, {x.data(), n}, {y.data(), n}, {x.data(), n});
  found->second = Flat(std::as_bytes(std::span(x)), ElementType::f32);
  return found->second;
}

}  // namespace seeksim::harness
