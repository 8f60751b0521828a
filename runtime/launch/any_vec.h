// AnyVec: n contiguous elements whose type is known when the run starts, not when it is compiled: parameters and
// gradients that are held in fp32, fp16 or bf16. Turned into a typed view where a kernel is launched, and checked
// there, so that no operation runs in another type than the plan declares.
#pragma once

#include <utility>

#include "kernels/check.h"
#include "runtime/seams/buffer.h"

namespace seeksim::runtime {

struct AnyVec {
  Buffer* buffer = nullptr;
  Index offset = 0;  // in elements
  Index n = 0;
  ElementType type = ElementType::f32;

  AnyVec() = default;
  AnyVec(Buffer* of, Index from, Index count, ElementType elements)
      : buffer(of), offset(from), n(count), type(elements) {}
  template <class T>
  AnyVec(VecView<T> v) : buffer(v.buffer), offset(v.offset), n(v.n), type(element_type<T>()) {}

  AnyVec part(Index first, Index count) const { return {buffer, offset + first, count, type}; }
  Range range(bool write) const {
    const std::size_t bytes = size_of(type);
    return {buffer, std::size_t(offset) * bytes, std::size_t(offset + n) * bytes, write, type};
  }
  std::size_t bytes() const { return std::size_t(n) * size_of(type); }
  // T or const T. Asserts that T is what this holds.
  template <class T>
  VecView<T> as() const {
    SEEKSIM_CHECK(element_type<T>() == type, "%s is held in %s and used as %s",
                  buffer == nullptr ? "nothing" : buffer->name, std::string(name(type)).c_str(),
                  std::string(name(element_type<T>())).c_str());
    return {buffer, offset, n};
  }
};

// Calls f with a value of the C++ type that stands for `type`: with_float_type(type, [&](auto like) { using T =
// decltype(like); ... }).
template <class F>
decltype(auto) with_float_type(ElementType type, F&& f) {
  switch (type) {
    case ElementType::f16:
      return std::forward<F>(f)(kernels::fp16{});
    case ElementType::bf16:
      return std::forward<F>(f)(kernels::bf16{});
    default:
      SEEKSIM_CHECK(type == ElementType::f32, "%d is no type to compute in", int(type));
      return std::forward<F>(f)(float{});
  }
}

}  // namespace seeksim::runtime
