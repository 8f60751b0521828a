// All copies go through the device's copy queue, one after another: what comes back has been copied out long before.
// Events stand where that queue meets the compute queue, and only there.
#include "runtime/model/activation_store.h"

#include <algorithm>

#include "kernels/pointwise.h"
#include "runtime/launch/any_vec.h"
#include "runtime/rules/bugs.h"
#include "runtime/seams/edges.h"

namespace seeksim::runtime {

CheckpointStore::CheckpointStore(Device& device, int count, Index elements, ElementType type, bool on_host,
                                 const PlantedBug& bug)
    : device_(device), type_(type), bug_(bug) {
  const std::size_t bytes = std::size_t(elements) * size_of(type);
  const int places = on_host ? std::min(count, 2) : count;
  for (int i = 0; i < places; ++i)
    places_.push_back({device.allocate(bytes, MemoryTag::checkpoints, "checkpoint"), -1, false, {}, {}});
  // Pinned, or a copy would not go on beside the computation.
  for (int k = 0; on_host && k < count; ++k)
    kept_.push_back(device.allocate_in(Space::pinned, bytes, MemoryTag::checkpoints, "checkpoint on the host"));
}

void CheckpointStore::before_write(Launcher& compute, int k) {
  if (!on_host()) return;
  Place& place = place_of(k);
  after(compute.queue(), place.copied, Edge::checkpoint_copied_out, bug_);
  place.holds = k;
  place.brought_back = false;
}

void CheckpointStore::written(Launcher& compute, int k, Index used) {
  if (!on_host() || used == 0) return;
  Place& place = place_of(k);
  after(device_.copy_queue(), compute.queue().record(), Edge::checkpoint_written, bug_);
  copy(compute, *place.buffer, *kept_[std::size_t(k)], used);
  place.copied = device_.copy_queue().record();
  if (bug_.is(Bug::checkpoint_freed_early, compute.last().rank)) make_again(place.buffer);
}

void CheckpointStore::before_read(Launcher& compute, int k, Index used) {
  if (!on_host() || used == 0) return;
  bring_back(compute, k, used);
  Place& place = place_of(k);
  if (place.brought_back) after(compute.queue(), place.copied, Edge::checkpoint_copied_in, bug_);
  place.brought_back = false;
  if (k > 0) bring_back(compute, k - 1, used);  // while k is in use
}

void CheckpointStore::read(Launcher& compute, int k) {
  if (on_host()) place_of(k).used = compute.queue().record();
}

// Unless it is still there from forward, or on its way.
void CheckpointStore::bring_back(const Launcher& compute, int k, Index used) {
  Place& place = place_of(k);
  if (place.holds == k) return;
  after(device_.copy_queue(), place.used, Edge::checkpoint_place_free, bug_);
  copy(compute, *kept_[std::size_t(k)], *place.buffer, used);
  place.copied = device_.copy_queue().record();
  place.holds = k;
  place.brought_back = true;
  if (bug_.is(Bug::pinned_freed_early, compute.last().rank)) make_again(kept_[std::size_t(k)]);
}

// A planted bug: memory is given back though a copy of it is under way, and other memory stands for it.
void CheckpointStore::make_again(BufferPtr& buffer) {
  const Buffer old = *buffer;
  buffer.reset();
  buffer = device_.allocate_in(old.space, old.bytes, old.tag, old.name);
}

void CheckpointStore::copy(const Launcher& compute, Buffer& from, Buffer& to, Index used) {
  const Op& now = compute.last();
  Launcher launch(device_.copy_queue(), now.rank);
  launch.at(now.epoch, now.step);
  launch.phase(now.phase, now.micro_batch);
  launch.layer(now.layer);
  with_float_type(type_, [&](auto like) {
    using T = decltype(like);
    launch.launch(
        OpKind::copy, "checkpoint", SEEKSIM_SITE, {0, double(used) * sizeof(T)},
        [](kernels::Lane lane, kernels::Vec<const T> x, kernels::Vec<T> y) { kernels::copy<T>(lane, x, y); },
        vec<const T>(from, 0, used), vec<T>(to, 0, used));
  });
}

}  // namespace seeksim::runtime
