// How host code reads and writes arrays of a lane, wherever they lie. If a device has them, only copies reach them.
// Copies are made in the order of the lane and waited for. So use them for what a step does seldom, or only on request:
// samples, digests, searches for a NaN, planted bugs.
#pragma once

#include <vector>

#include "kernels/view.h"

namespace seeksim::kernels {

// Copies in any direction between memory of the lane's device and the host's.
void copy_bytes(Lane lane, const void* from, void* to, std::size_t bytes);
void clear_bytes(Lane lane, void* to, std::size_t bytes);

// An array for reading: itself, or a copy.
template <class T>
class OnHost {
 public:
  OnHost(Lane lane, Vec<const T> values) : values_(values) {
    if (lane.device == nullptr || values.data == nullptr) return;
    copy_.resize(static_cast<std::size_t>(values.n));
    copy_bytes(lane, values.data, copy_.data(), copy_.size() * sizeof(T));
  }
  Vec<const T> get() const { return copy_.empty() ? values_ : Vec<const T>{copy_.data(), values_.n}; }
  const T& operator[](Index i) const { return get()[i]; }

 private:
  Vec<const T> values_;
  std::vector<T> copy_;
};

template <class T>
void write_values(Lane lane, const T* from, Vec<std::type_identity_t<T>> to) {
  copy_bytes(lane, from, to.data, static_cast<std::size_t>(to.n) * sizeof(T));
}

template <class T>
void clear(Lane lane, Vec<T> values) {
  clear_bytes(lane, values.data, static_cast<std::size_t>(values.n) * sizeof(T));
}

// Calls change(Vec<T>) on the host, on the values themselves or on a copy that then takes their place.
template <class T, class Change>
void change_on_host(Lane lane, Vec<T> values, Change change) {
  if (lane.device == nullptr) return change(values);
  std::vector<T> copy(static_cast<std::size_t>(values.n));
  copy_bytes(lane, values.data, copy.data(), copy.size() * sizeof(T));
  change(Vec<T>{copy.data(), values.n});
  copy_bytes(lane, copy.data(), values.data, copy.size() * sizeof(T));
}

}  // namespace seeksim::kernels
