// The parts of device memory that need no device: names, and how a buffer finds its way back.
#include "runtime/seams/buffer.h"

#include <array>

#include "runtime/seams/enum_names.h"
#include "runtime/seams/seams.h"

namespace seeksim::runtime {

std::string_view name(MemoryTag tag) {
  constexpr EnumNames<MemoryTag> kNames({{MemoryTag::parameters, "parameters"},
                                         {MemoryTag::gradients, "gradients"},
                                         {MemoryTag::optimizer, "optimizer"},
                                         {MemoryTag::activations, "activations"},
                                         {MemoryTag::partial_sums, "partial_sums"},
                                         {MemoryTag::communication, "communication"},
                                         {MemoryTag::data, "data"},
                                         {MemoryTag::scratch, "scratch"},
                                         {MemoryTag::gathered, "gathered"},
                                         {MemoryTag::peer_copies, "peer_copies"},
                                         {MemoryTag::checkpoints, "checkpoints"},
                                         {MemoryTag::staging, "staging"}});
  return kNames.of(tag);
}

std::string_view name(Space space) {
  constexpr EnumNames<Space> kNames({{Space::device, "device"}, {Space::host, "host"}, {Space::pinned, "pinned"}});
  return kNames.of(space);
}

void BufferDeleter::operator()(Buffer* buffer) const {
  if (buffer != nullptr) device->release(buffer);
}

std::string_view name(ElementType type) {
  constexpr EnumNames<ElementType> kNames({{ElementType::f32, "fp32"},
                                           {ElementType::f16, "fp16"},
                                           {ElementType::bf16, "bf16"},
                                           {ElementType::i32, "int32"},
                                           {ElementType::i64, "int64"},
                                           {ElementType::bytes, "bytes"}});
  return kNames.of(type, "unknown");
}

std::size_t size_of(ElementType type) {
  constexpr std::array<std::size_t, std::size_t(ElementType::count_)> kBytes = {4, 2, 2, 4, 8, 1};
  return kBytes[std::size_t(type)];
}

}  // namespace seeksim::runtime
