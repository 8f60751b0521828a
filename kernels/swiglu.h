// SwiGLU: y = silu(gate) * up. The columns of gate and up lie side by side in slabs, [gate of slab 0 | up of slab 0 |
// gate of slab 1 | ...], so that what tensor parallelism splits is contiguous; the last slab may be short.
#pragma once

#include "kernels/view.h"

namespace seeksim::kernels {

// y (R, F) from gate_up (R, 2F) in slabs of `slab` columns of each (of the whole model, slab_size(F)).
template <class T = float>
void swiglu_forward(Lane lane, Index slab, InMat<T> gate_up, OutMat<T> y);

// dgate = dy * up * silu'(gate), dup = dy * silu(gate), laid out as gate_up; dgate_up may be gate_up.
template <class T = float>
void swiglu_backward(Lane lane, Index slab, InMat<T> dy, InMat<T> gate_up, OutMat<T> dgate_up);

}  // namespace seeksim::kernels
