// The text of the kernels for GPUs, run on a host, thread by thread, so that index arithmetic, order and forms are
// tested without a GPU. Slow, and scalar.
#pragma once

#include "kernels/device_table.h"

namespace seeksim::kernels {

// The stream of a Lane points to this unless it is null. It hears when a kernel or a copy begins to touch memory of the
// device and when it has ended, so that nothing else can reach this memory meanwhile.
class Emulation {
 public:
  virtual ~Emulation() = default;
  virtual void enter() = 0;
  virtual void leave() = 0;
};

const DeviceTable& emulated_device();

// The order in which a block's threads run in a phase. The bits must not depend on it.
void emulate_threads_backwards(bool backwards);

}  // namespace seeksim::kernels
