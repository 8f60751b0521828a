// One block of the execution model of cuda/block.inl, on the host.
#pragma once

#include <vector>

namespace seeksim::kernels::test {

// 32 threads each hand their number to the next, through shared memory; with a barrier between write and read, or in
// one phase.
std::vector<int> shifted_by_one(bool barrier, bool backwards);

}  // namespace seeksim::kernels::test
