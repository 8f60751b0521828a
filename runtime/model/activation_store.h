// CheckpointStore: the inputs of segments whose activations are computed again. On the device, a place for each; or on
// the host, with two places on the device that all share: what forward leaves in one is copied out while the other is
// in use, and what backward needs next is copied in.
#pragma once

#include <vector>

#include "runtime/comm/edge.h"
#include "runtime/launch/launcher.h"
#include "runtime/seams/seams.h"

namespace seeksim::runtime {

class CheckpointStore {
 public:
  // `count` inputs of at most `elements` each.
  CheckpointStore(Device& device, int count, Index elements, ElementType type, bool on_host, const PlantedBug& bug);

  // Where input k is while it is written or used.
  Buffer& place(int k) { return *place_of(k).buffer; }

  // Forward, for k = 0, 1, ...: around the launches that fill its first `used` elements.
  void before_write(Launcher& compute, int k);
  void written(Launcher& compute, int k, Index used);
  // Backward, for k = count - 1, ..., 0: around the launches that use them.
  void before_read(Launcher& compute, int k, Index used);
  void read(Launcher& compute, int k);

 private:
  struct Place {
    BufferPtr buffer;
    int holds = -1;             // which input
    bool brought_back = false;  // by a copy that was not waited for yet
    Event copied;               // the last copy out of it or into it
    Event used;                 // its last use in backward
  };

  bool on_host() const { return !kept_.empty(); }
  Place& place_of(int k) { return places_[std::size_t(k) % places_.size()]; }
  void bring_back(const Launcher& compute, int k, Index used);
  void copy(const Launcher& compute, Buffer& from, Buffer& to, Index used);
  void make_again(BufferPtr& buffer);

  Device& device_;
  ElementType type_;
  PlantedBug bug_;
  std::vector<Place> places_;
  std::vector<BufferPtr> kept_;  // in host memory
};

}  // namespace seeksim::runtime
