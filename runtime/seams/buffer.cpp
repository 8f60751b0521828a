// The parts of device memory that need no device: names, and how a buffer finds its way back.
#include "runtime/seams/buffer.h"

#include <array>

#include "runtime/seams/seams.h"

namespace seeksim::runtime {

std::string_view name(MemoryTag tag) {
  constexpr std::array<std::string_view, std::size_t(MemoryTag::count_)> kNames = {
      "parameters", "gradients", "optimizer", "activations", "partial_sums", "communication",
      "data",       "scratch",   "gathered",  "peer_copies", "checkpoints",  "staging"};
  return std::size_t(tag) < kNames.size() ? kNames[std::size_t(tag)] : std::string_view("none");
}

std::string_view name(Space space) {
  constexpr std::array<std::string_view, std::size_t(Space::count_)> kNames = {"device", "host", "pinned"};
  return space < Space::count_ ? kNames[std::size_t(space)] : std::string_view("none");
}

void BufferDeleter::operator()(Buffer* buffer) const {
  if (buffer != nullptr) device->release(buffer);
}

std::string_view name(ElementType type) {
  constexpr std::array<std::string_view, std::size_t(ElementType::count_)> kNames = {"fp32",  "fp16",  "bf16",
                                                                                     "int32", "int64", "bytes"};
  return type < ElementType::count_ ? kNames[std::size_t(type)] : "unknown";
}

std::size_t size_of(ElementType type) {
  constexpr std::array<std::size_t, std::size_t(ElementType::count_)> kBytes = {4, 2, 2, 4, 8, 1};
  return kBytes[std::size_t(type)];
}

}  // namespace seeksim::runtime
