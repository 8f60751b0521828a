#include "kernels/fast.h"

#include <algorithm>
#include <vector>

#include "kernels/cast.h"
#include "kernels/device_table.h"
#include "kernels/host_access.h"
#include "kernels/isa/table.h"

namespace seeksim::kernels {
namespace {

template <class T>
Index extent(Mat<const T> m) {
  return m.rows == 0 ? 0 : (m.rows - 1) * m.stride + m.cols;
}

template <class T, class To>
void on_cpu(const GemmCall<T, To>& call, const FastWay& way) {
  const T* const bias = call.bias.n > 0 ? call.bias.data : nullptr;
  if constexpr (std::is_same_v<T, To>) {
    products_in<T>().fast_gemm(call.ta, call.tb, call.a, call.b, call.c, bias, way);
  } else {
    products_in<T>().fast_gemm_to_float(call.ta, call.tb, call.a, call.b, call.c, bias, way);
  }
}

// For a device without a vendor's products: copies to the host, computes there, copies back.
template <class T, class To>
void through_host(Lane lane, const GemmCall<T, To>& call, const FastWay& way) {
  const OnHost<T> a(lane, {call.a.data, extent(call.a)}), b(lane, {call.b.data, extent(call.b)});
  const OnHost<T> bias(lane, {call.bias.data, call.bias.n});
  std::vector<To> c(static_cast<std::size_t>(call.c.rows * call.c.cols));
  GemmCall<T, To> here = call;
  here.a.data = a.get().data;
  here.b.data = b.get().data;
  here.bias.data = bias.get().data;
  here.c = {c.data(), call.c.rows, call.c.cols, call.c.cols};
  on_cpu(here, way);
  for (Index i = 0; i < call.c.rows; ++i)
    lane.device->common.copy(lane, here.c.row(i), call.c.row(i), static_cast<std::size_t>(call.c.cols) * sizeof(To));
}

// The parts in the order in which a ring adds them, with the number of additions of the binary counter's stack after
// each (DeviceCommon::tree_parts) that make it a ring: a member's parts to each other, then to the sum that came round.
struct Ring {
  std::vector<const float*> parts;
  std::vector<int> adds;
};
Ring ring_of(const SumCall& call) {
  int groups = 0;
  for (Index i = 0; i < call.count; ++i) groups = std::max(groups, call.parts[i].group + 1);
  Ring ring;
  for (int hop = 1; hop <= groups; ++hop) {
    const int group = (call.owner + hop) % groups;
    const bool first_member = ring.parts.empty();
    bool first_part = true;
    for (Index i = 0; i < call.count; ++i) {
      if (call.parts[i].group != group) continue;
      ring.parts.push_back(call.parts[i].data);
      ring.adds.push_back(first_part ? 0 : 1);
      first_part = false;
    }
    if (!first_part && !first_member) ++ring.adds.back();
  }
  return ring;
}

// Computed by the host, wherever the parts are: a planted mistake need not be fast.
void sum_in_bf16(Lane lane, const Ring& ring, float factor, Vec<float> out) {
  std::vector<float> sum(static_cast<std::size_t>(out.n));
  const Vec<float> here{sum.data(), out.n};
  for (std::size_t i = 0; i < ring.parts.size(); ++i) {
    const OnHost<float> part(lane, {ring.parts[i], out.n});
    for (Index at = 0; at < out.n; ++at) here[at] = i == 0 ? part[at] : here[at] + part[at];
    std::vector<bf16> hop(sum.size());
    half_elements<bf16>().narrow(sum.data(), hop.data(), out.n);
    half_elements<bf16>().widen(hop.data(), sum.data(), out.n);
  }
  for (float& value : sum) value *= factor;
  write_values<float>(lane, sum.data(), out);
}

}  // namespace

void FastArithmetic::gemm(Lane lane, const AnyGemm& any) {
  const DeviceTable* const device = device_of(lane);
  const bool sound = way_.slip == FastSlip::none || way_.slip == FastSlip::ring_in_bf16;
  if (device != nullptr && device->vendor_gemm != nullptr && sound &&
      device->vendor_gemm(by_contract(lane), any, way_.tf32))
    return;
  std::visit(
      [&](const auto& call) {
        if (call.c.rows == 0 || call.c.cols == 0) return;
        if (device == nullptr) return on_cpu(call, way_);
        ++through_host_;
        through_host({lane.stream, device, nullptr}, call, way_);
      },
      any);
}

void FastArithmetic::sum(Lane given, const SumCall& call, Vec<float> out) {
  const Lane lane = by_contract(given);
  const Ring ring = ring_of(call);
  const DeviceTable* const device = device_of(lane);
  if (way_.slip == FastSlip::ring_in_bf16) return sum_in_bf16({lane.stream, device, nullptr}, ring, call.factor, out);
  const Index count = static_cast<Index>(ring.parts.size());
  if (device != nullptr)
    return device->common.tree_parts(lane, ring.parts.data(), ring.adds.data(), count, out.data, out.n, call.factor);
  elements().tree_parts(ring.parts.data(), ring.adds.data(), count, out.data, out.n, call.factor);
}

// A library adds up what it is given, so a planted mistake has to be made before.
void FastArithmetic::addend(Lane lane, Vec<float> values) {
  if (way_.slip == FastSlip::ring_in_bf16) round_through<bf16>(by_contract(lane), values);
}

}  // namespace seeksim::kernels
