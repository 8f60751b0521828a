// How tensors lie in memory. Gloo and NCCL carry memory as it is: they know no strides.
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "pytorch/core/record.h"

namespace seeksim::pytorch {

// Throws c10::ValueError where a library would carry other numbers than those of the tensors, or refuses them: a tensor
// with gaps (x[:, :2]) that ranks combine in place or send all of, and one that is not contiguous where a library asks
// for that.
void ask_for_whole_memory(OpName op, const std::vector<at::Tensor>& in, const std::vector<at::Tensor>& out);

// What Expectation::layout says of tensors that ranks combine byte by byte: 0 where each is contiguous, and for other
// operations.
std::uint64_t layout_of(OpName op, const std::vector<at::Tensor>& tensors);

}  // namespace seeksim::pytorch
