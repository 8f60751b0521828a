// What a rank's own kernels do of a sum over ranks that a library makes (Transport::library_sums): before it, and
// after.
#pragma once

#include <span>

#include "runtime/launch/launcher.h"
#include "runtime/seams/buffer.h"

namespace seeksim::runtime {

// addend (n) = the parts (n each), added up in their order: what this member brings. Without parts, zeros.
void add_up(Launcher& launch, const char* tensor, std::span<const VecView<const float>> parts, VecView<float> addend);

// sum (n) *= factor; nothing for 1.
void scale_sum(Launcher& launch, const char* tensor, float factor, VecView<float> sum);

}  // namespace seeksim::runtime
