#include "runtime/zero/code_wire.h"

#include <algorithm>

#include "kernels/check.h"
#include "kernels/host_access.h"
#include "runtime/rules/bugs.h"

namespace seeksim::runtime {

using kernels::Lane;
using kernels::Vec;
using kernels::WireRun;

kernels::CodeForm weights_form(const TrainPlan& plan) {
  using kernels::CodeSlip;
  const CodeSlip slip = plan.bug.is(Bug::quantised_scale_of_shard) ? CodeSlip::one_scale
                        : plan.bug.is(Bug::quantised_bf16_as_fp16) ? CodeSlip::as_fp16
                        : plan.bug.is(Bug::quantised_cut_off)      ? CodeSlip::cut_off
                                                                   : CodeSlip::none;
  return {plan.definition.quantised.block, slip};
}

Index code_bytes(const ParameterInfo& p, Index block, int bits) {
  return p.size / p.slab * kernels::code_bytes(p.slab, block, bits) + kernels::code_bytes(p.size % p.slab, block, bits);
}

CodeWire::CodeWire(const Parameters& parameters, kernels::CodeForm form, std::vector<Stretch> stretches) : form_(form) {
  std::sort(stretches.begin(), stretches.end(), [](const Stretch& a, const Stretch& b) { return a.at < b.at; });
  std::vector<const ParameterInfo*> all = parameters.trainable();
  all.insert(all.end(), parameters.frozen().begin(), parameters.frozen().end());
  for (const Stretch& s : stretches) {
    auto p = std::lower_bound(all.begin(), all.end(), s.offset,
                              [](const ParameterInfo* one, Index offset) { return one->offset < offset; });
    for (; p != all.end() && (*p)->offset < s.offset + s.size; ++p) {
      for (Index first = 0; first < (*p)->size; first += (*p)->slab) {
        const Index n = std::min((*p)->slab, (*p)->size - first);
        runs_.push_back({s.at + (*p)->offset - s.offset + first, n, bytes_});
        bytes_ += kernels::code_bytes(n, form.block, form.bits);
      }
    }
  }
}

Index CodeWire::at(Index place) const {
  const auto next =
      std::upper_bound(runs_.begin(), runs_.end(), place, [](Index x, const WireRun& run) { return x < run.offset; });
  SEEKSIM_CHECK(next != runs_.begin(), "place %lld is in front of all runs", static_cast<long long>(place));
  const WireRun& run = *(next - 1);
  return run.at + kernels::code_bytes(std::min(place - run.offset, run.n), form_.block, form_.bits);
}

Index CodeWire::last_block() const {
  const WireRun& last = runs_.back();
  return last.at + kernels::code_bytes((last.n - 1) / form_.block * form_.block, form_.block, form_.bits);
}

namespace {

// The gradient space: trained parameters, and the other use of a tied embedding.
CodeWire wire_of(const Parameters& p, kernels::CodeForm form) {
  std::vector<Stretch> stretches = {{0, p.trainable_size(), 0}};
  if (p.shares_head()) stretches.push_back({p.wte().offset, p.wte().size, p.head_gradient_offset()});
  return {p, form, stretches};
}

kernels::CodeForm form_of(const TrainPlan& plan, int bits) {
  return {plan.definition.quantised_gradients.block, kernels::CodeSlip::none, bits};
}

}  // namespace

GradientCodes::GradientCodes(const Parameters& parameters, const TrainPlan& plan)
    : groups(quantised_groups(plan.definition)),
      of_group(wire_of(parameters, form_of(plan, plan.definition.quantised_gradients.bits))),
      of_sum(wire_of(parameters, form_of(plan, plan.definition.quantised_gradients.outer_bits))) {}

std::vector<NodeRounding> GradientCodes::rounding(Index first) const {
  std::vector<NodeRounding> all = {{groups.level(), of_group.form(), of_group.runs(), first}};
  if (groups.sums()) all.push_back({groups.sum_level(), of_sum.form(), of_sum.runs(), first});
  return all;
}

VecView<std::byte> CodeWay::bytes_of(Index place, Index n) const {
  const Index begin = wire->at(place);
  return vec<std::byte>(*bytes, begin, wire->at(place + n) - begin);
}

void CodeWay::quantise(Launcher& launch, const char* tensor, AnyVec own, Index place) const {
  const VecView<std::byte> to = bytes_of(place, own.n);
  const kernels::CodePart part{wire->runs(), place, to.offset};
  with_float_type(own.type, [&](auto like) {
    using T = decltype(like);
    launch(
        tensor, SEEKSIM_SITE, memory_cost(own.n, 3),
        [form = form, part](Lane lane, Vec<const T> x, Vec<std::byte> out) {
          kernels::quantise<T>(lane, form, part, x, out);
        },
        own.as<const T>(), to);
  });
}

void CodeWay::dequantise(Launcher& launch, const char* tensor, Buffer& into, ElementType type) const {
  const kernels::CodePart all{wire->runs(), 0, 0};
  const Index n = all.runs.back().offset + all.runs.back().n;
  with_float_type(type, [&](auto like) {
    using T = decltype(like);
    launch(
        tensor, SEEKSIM_SITE, memory_cost(n, 1),
        [form = form, all](Lane lane, Vec<const std::byte> in, Vec<T> y) {
          kernels::dequantise<T>(lane, form, all, in, y);
        },
        vec<const std::byte>(*bytes, 0, wire->bytes()), vec<T>(into, 0, n));
  });
}

void CodeWay::copy(Launcher& launch, const char* tensor, VecView<const std::byte> from, VecView<std::byte> to) {
  SEEKSIM_CHECK_EQ(from.n, to.n);
  launch(
      tensor, SEEKSIM_SITE, memory_cost(from.n / 2, 0),
      [](Lane lane, Vec<const std::byte> in, Vec<std::byte> out) {
        kernels::copy_bytes(lane, in.data, out.data, std::size_t(in.n));
      },
      from, to);
}

void CodeWay::lose_last_scale(Launcher& launch, const char* tensor) const {
  launch(
      tensor, SEEKSIM_SITE, memory_cost(1), [](Lane lane, Vec<std::byte> scale) { kernels::clear(lane, scale); },
      vec<std::byte>(*bytes, wire->last_block(), sizeof(float)));
}

}  // namespace seeksim::runtime
