#include "kernels/host_access.h"

#include <cstring>

#include "kernels/device_table.h"

namespace seeksim::kernels {

void copy_bytes(Lane lane, const void* from, void* to, std::size_t bytes) {
  if (bytes == 0) return;
  if (const DeviceTable* device = device_of(lane)) return device->common.copy(lane, from, to, bytes);
  std::memmove(to, from, bytes);
}

void clear_bytes(Lane lane, void* to, std::size_t bytes) {
  if (bytes == 0) return;
  if (const DeviceTable* device = device_of(lane)) return device->common.clear(lane, to, bytes);
  std::memset(to, 0, bytes);
}

}  // namespace seeksim::kernels
