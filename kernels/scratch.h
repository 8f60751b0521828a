// Working memory of the kernels (packed panels, tiles): one arena a thread, so that a warm call allocates nothing. It
// is thread-local state, yet it decides no bits. Every kernel writes what it later reads there within one call, and no
// kernel keeps anything between calls or yields to another fiber while it runs.
#pragma once

#include "kernels/view.h"

namespace seeksim::kernels {

// Kernels that may be active at the same time use different slots.
enum class Scratch { gemm_a, gemm_b, gemm_tiles, attention, rows, tree, count };

// At least `floats` floats, 64-byte aligned, contents undefined; valid until the next call with the same slot.
float* scratch(Scratch slot, Index floats);

}  // namespace seeksim::kernels
