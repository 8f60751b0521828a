#include "kernels/device_table.h"

#include "kernels/check.h"

namespace seeksim::kernels {
namespace {
const DeviceTable* forced = nullptr;
}  // namespace

const DeviceTable* device_of(const Lane& lane) { return lane.device != nullptr ? lane.device : forced; }
void force_device(const DeviceTable* table) { forced = table; }

void check_on_cpu(const Lane& lane, const char* what) {
  SEEKSIM_CHECK(device_of(lane) == nullptr, "there is no kernel for GPUs that %s", what);
}

}  // namespace seeksim::kernels
