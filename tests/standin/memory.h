// Which allocation a pointer is in: memory of the "GPU", or pinned memory of the host.
#pragma once

#include <cstddef>

namespace seeksim::standin {

enum class Where { pageable, pinned, device };
Where where(const void* p);
// [p, p + bytes) lies in one allocation that a GPU can reach.
bool reachable(const void* p, std::size_t bytes);
std::size_t allocations();  // of the device; for tests

}  // namespace seeksim::standin
