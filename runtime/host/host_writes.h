// What the host itself writes into memory of a device goes over the memory's own lane, and is only sure to be there
// when that lane is past it. The queues are other lanes: before one of them may use it, the host waits.
#pragma once

#include "kernels/host_access.h"
#include "runtime/seams/buffer.h"

namespace seeksim::runtime {

// A copy to the host is waited for, and with it all that is ahead on the lane.
inline void settle(const Buffer& buffer) {
  if (buffer.lane.device == nullptr || buffer.bytes == 0) return;
  std::byte seen{};
  kernels::copy_bytes(buffer.lane, buffer.data, &seen, 1);
}

}  // namespace seeksim::runtime
