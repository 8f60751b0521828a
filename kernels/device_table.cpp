#include "kernels/device_table.h"

namespace seeksim::kernels {
namespace {
const DeviceTable* forced = nullptr;
}  // namespace

const DeviceTable* device_of(const Lane& lane) { return lane.device != nullptr ? lane.device : forced; }
void force_device(const DeviceTable* table) { forced = table; }

}  // namespace seeksim::kernels
