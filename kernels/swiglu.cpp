#include "kernels/swiglu.h"

#include <algorithm>

#include "kernels/check.h"
#include "kernels/device_table.h"
#include "kernels/isa/table.h"

namespace seeksim::kernels {
namespace {

void check_shapes(Index slab, Index rows, Index columns, Index gate_up_rows, Index gate_up_columns) {
  SEEKSIM_CHECK(slab > 0, "slabs of %lld columns", static_cast<long long>(slab));
  SEEKSIM_CHECK_EQ(gate_up_rows, rows);
  SEEKSIM_CHECK_EQ(gate_up_columns, 2 * columns);
}

}  // namespace

template <class T>
void swiglu_forward(Lane lane, Index slab, InMat<T> gate_up, OutMat<T> y) {
  check_shapes(slab, y.rows, y.cols, gate_up.rows, gate_up.cols);
  if (const DeviceTable* device = device_of(lane)) return device->elements<T>().swiglu_forward(lane, slab, gate_up, y);
  for (Index r = 0; r < y.rows; ++r) {
    for (Index begin = 0; begin < y.cols; begin += slab) {
      const Index n = std::min(slab, y.cols - begin);
      const T* const gate = gate_up.row(r) + 2 * begin;
      elements_in<T>().swiglu_forward(gate, gate + n, y.row(r) + begin, n);
    }
  }
}

template <class T>
void swiglu_backward(Lane lane, Index slab, InMat<T> dy, InMat<T> gate_up, OutMat<T> dgate_up) {
  check_shapes(slab, dy.rows, dy.cols, gate_up.rows, gate_up.cols);
  check_shapes(slab, dy.rows, dy.cols, dgate_up.rows, dgate_up.cols);
  if (const DeviceTable* device = device_of(lane))
    return device->elements<T>().swiglu_backward(lane, slab, dy, gate_up, dgate_up);
  for (Index r = 0; r < dy.rows; ++r) {
    for (Index begin = 0; begin < dy.cols; begin += slab) {
      const Index n = std::min(slab, dy.cols - begin);
      const T* const gate = gate_up.row(r) + 2 * begin;
      T* const dgate = dgate_up.row(r) + 2 * begin;
      elements_in<T>().swiglu_backward(dy.row(r) + begin, gate, gate + n, dgate, dgate + n, n);
    }
  }
}

template void swiglu_forward<float>(Lane, Index, InMat<float>, OutMat<float>);
template void swiglu_forward<bf16>(Lane, Index, InMat<bf16>, OutMat<bf16>);
template void swiglu_forward<fp16>(Lane, Index, InMat<fp16>, OutMat<fp16>);
template void swiglu_backward<float>(Lane, Index, InMat<float>, InMat<float>, OutMat<float>);
template void swiglu_backward<bf16>(Lane, Index, InMat<bf16>, InMat<bf16>, OutMat<bf16>);
template void swiglu_backward<fp16>(Lane, Index, InMat<fp16>, InMat<fp16>, OutMat<fp16>);

}  // namespace seeksim::kernels
