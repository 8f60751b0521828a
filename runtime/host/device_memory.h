// DeviceMemory: where the memory of a device lies that the host cannot touch, and the lane on which its bytes are
// copied and filled. A device of the simulator, or of a real process, has one where it computes on a GPU (or on an
// emulated one); else its memory is the host's.
#pragma once

#include <cstddef>

#include "kernels/view.h"

namespace seeksim::runtime {

class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual const char* name() const = 0;
  // Null: there is none left.
  virtual std::byte* allocate(std::size_t bytes) = 0;
  virtual void release(std::byte* data) = 0;
  // The host's, locked. Null: there is none left.
  virtual std::byte* allocate_pinned(std::size_t bytes) = 0;
  virtual void release_pinned(std::byte* data) = 0;
  // What is enqueued on it comes one after the other.
  virtual kernels::Lane lane() const = 0;
};

}  // namespace seeksim::runtime
