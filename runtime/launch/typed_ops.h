// Launches on vectors whose type is known when the run starts: bit for bit copies, rounding, and digests by the host.
#pragma once

#include "kernels/cast.h"
#include "kernels/digest.h"
#include "kernels/pointwise.h"
#include "runtime/launch/any_vec.h"
#include "runtime/launch/launcher.h"

namespace seeksim::runtime {

// to = from, bit for bit; nothing where they are the same memory. Between host and device, and from host to host on a
// queue of the device, a copy over the bus.
inline void copy_values(Launcher& launch, const char* tensor, const char* site, AnyVec from, AnyVec to) {
  if ((from.buffer == to.buffer && from.offset == to.offset) || to.n == 0) return;
  const bool on_device = from.buffer->space == Space::device && to.buffer->space == Space::device;
  const bool inside = on_device || launch.kind() == OpKind::host_compute;
  const Cost over_bus{0, double(to.bytes())};
  with_float_type(to.type, [&](auto like) {
    using T = decltype(like);
    launch.launch(
        inside ? launch.kind() : OpKind::copy, tensor, site, inside ? memory_cost(2 * to.n, 0) : over_bus,
        [](kernels::Lane lane, kernels::Vec<const T> x, kernels::Vec<T> y) { kernels::copy<T>(lane, x, y); },
        from.as<const T>(), to.as<T>());
  });
}

// to = from rounded to the type of `to`; nothing where they are the same memory.
inline void round_values(Launcher& launch, const char* tensor, const char* site, VecView<const float> from, AnyVec to) {
  if (from.buffer == to.buffer && to.type == ElementType::f32) return;
  with_float_type(to.type, [&](auto like) {
    using T = decltype(like);
    launch(
        tensor, site, memory_cost(2 * to.n, 0),
        [](kernels::Lane lane, kernels::Vec<const float> x, kernels::Vec<T> y) { kernels::narrow<T>(lane, x, y); },
        from, to.as<T>());
  });
}

inline void clear_values(Launcher& launch, const char* tensor, const char* site, AnyVec values) {
  with_float_type(values.type, [&](auto like) {
    using T = decltype(like);
    launch(
        tensor, site, memory_cost(values.n, 0), [](kernels::Lane lane, kernels::Vec<T> x) { kernels::clear(lane, x); },
        values.as<T>());
  });
}

// By the host, of memory that it may read now. In a run of shapes nothing is there to read: no digest, no values.
inline std::uint64_t digest_of(AnyVec values) {
  if (values.buffer != nullptr && values.buffer->data == nullptr) return 0;
  return with_float_type(values.type, [&](auto like) {
    using T = decltype(like);
    return kernels::digest<T>(on_host(values.as<const T>()).get());
  });
}
inline void widen_to(AnyVec values, float* out) {
  if (values.buffer != nullptr && values.buffer->data == nullptr) return;
  with_float_type(values.type, [&](auto like) {
    using T = decltype(like);
    kernels::widen<T>(kernels::Lane{}, on_host(values.as<const T>()).get(), {out, values.n});
  });
}

}  // namespace seeksim::runtime
