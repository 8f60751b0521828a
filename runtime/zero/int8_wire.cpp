#include "runtime/zero/int8_wire.h"

#include <algorithm>

#include "kernels/check.h"
#include "kernels/host_access.h"
#include "runtime/rules/bugs.h"

namespace seeksim::runtime {

using kernels::Lane;
using kernels::Vec;
using kernels::WireRun;

kernels::Int8Form int8_form(const TrainPlan& plan) {
  using kernels::Int8Slip;
  const Int8Slip slip = plan.bug.is(Bug::quantised_scale_of_shard) ? Int8Slip::one_scale
                        : plan.bug.is(Bug::quantised_bf16_as_fp16) ? Int8Slip::as_fp16
                        : plan.bug.is(Bug::quantised_cut_off)      ? Int8Slip::cut_off
                                                                   : Int8Slip::none;
  return {plan.definition.quantised.block, slip};
}

Index int8_bytes(const ParameterInfo& p, Index block) {
  return p.size / p.slab * kernels::int8_bytes(p.slab, block) + kernels::int8_bytes(p.size % p.slab, block);
}

Int8Wire::Int8Wire(const Parameters& parameters, Index block, std::vector<Stretch> stretches) : block_(block) {
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
        bytes_ += kernels::int8_bytes(n, block);
      }
    }
  }
}

Index Int8Wire::at(Index place) const {
  const auto next =
      std::upper_bound(runs_.begin(), runs_.end(), place, [](Index x, const WireRun& run) { return x < run.offset; });
  SEEKSIM_CHECK(next != runs_.begin(), "place %lld is in front of all runs", static_cast<long long>(place));
  const WireRun& run = *(next - 1);
  return run.at + kernels::int8_bytes(std::min(place - run.offset, run.n), block_);
}

Index Int8Wire::last_block() const {
  const WireRun& last = runs_.back();
  return last.at + kernels::int8_bytes((last.n - 1) / block_ * block_, block_);
}

VecView<std::byte> Int8Way::bytes_of(Index place, Index n) const {
  const Index begin = wire->at(place);
  return vec<std::byte>(*bytes, begin, wire->at(place + n) - begin);
}

void Int8Way::quantise(Launcher& launch, const char* tensor, AnyVec own, Index place) const {
  const VecView<std::byte> to = bytes_of(place, own.n);
  const kernels::Int8Part part{wire->runs(), place, to.offset};
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

void Int8Way::dequantise(Launcher& launch, const char* tensor, Buffer& into, ElementType type) const {
  const kernels::Int8Part all{wire->runs(), 0, 0};
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

void Int8Way::copy(Launcher& launch, const char* tensor, VecView<const std::byte> from, VecView<std::byte> to) {
  SEEKSIM_CHECK_EQ(from.n, to.n);
  launch(
      tensor, SEEKSIM_SITE, memory_cost(from.n / 2, 0),
      [](Lane lane, Vec<const std::byte> in, Vec<std::byte> out) {
        kernels::copy_bytes(lane, in.data, out.data, std::size_t(in.n));
      },
      from, to);
}

void Int8Way::lose_last_scale(Launcher& launch, const char* tensor) const {
  launch(
      tensor, SEEKSIM_SITE, memory_cost(1), [](Lane lane, Vec<std::byte> scale) { kernels::clear(lane, scale); },
      vec<std::byte>(*bytes, wire->last_block(), sizeof(float)));
}

}  // namespace seeksim::runtime
