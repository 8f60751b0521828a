// Memory of a device, and typed views of it. A view names buffer, extent and stride; `const T` reads, `T` writes.
// Launching a kernel on views IS the declaration of what it touches: the ranges handed to the queue, to the race
// detector and to the poison check come from here, never from a second list.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <type_traits>

#include "kernels/cast.h"
#include "kernels/host_access.h"
#include "kernels/view.h"

namespace seeksim::runtime {

using kernels::Index;

// What memory is for. The ledger reports peaks by tag.
enum class MemoryTag : std::uint8_t {
  parameters,
  gradients,
  optimizer,
  activations,
  partial_sums,
  communication,
  data,
  scratch,
  gathered,
  peer_copies,
  checkpoints,  // activations kept for recomputation
  staging,      // what offloaded state passes through on its way
  count_
};
std::string_view name(MemoryTag tag);

// Whose memory it is. Each space has a capacity and a ledger of its own.
enum class Space : std::uint8_t {
  device,
  host,    // pageable
  pinned,  // the host's, locked, so that copies to and from the device need no detour; there is less of it
  count_
};
std::string_view name(Space space);

// Fresh device memory holds this pattern (a signalling-looking NaN that no arithmetic here produces).
inline constexpr std::uint32_t kPoisonFresh = 0x7fa5a5a5u;
// What an aborted operation leaves in the buffers that it would have written.
inline constexpr std::uint32_t kPoisonAborted = 0x7fab0bedu;

// What a range of memory holds.
enum class ElementType : std::uint8_t { f32, f16, bf16, i32, i64, bytes, count_ };
std::string_view name(ElementType type);
std::size_t size_of(ElementType type);

template <class T>
constexpr ElementType element_type() {
  using U = std::remove_const_t<T>;
  if constexpr (std::is_same_v<U, float>) return ElementType::f32;
  if constexpr (std::is_same_v<U, kernels::fp16>) return ElementType::f16;
  if constexpr (std::is_same_v<U, kernels::bf16>) return ElementType::bf16;
  if constexpr (std::is_same_v<U, std::int32_t>) return ElementType::i32;
  if constexpr (std::is_same_v<U, std::int64_t>) return ElementType::i64;
  return ElementType::bytes;
}

constexpr bool is_16_bit(ElementType type) { return type == ElementType::f16 || type == ElementType::bf16; }

struct Buffer {
  std::byte* data = nullptr;  // null in a run of shapes only
  std::size_t bytes = 0;
  MemoryTag tag = MemoryTag::scratch;
  Space space = Space::device;
  const char* name = "";  // outlives the run
  int rank = -1;
  std::uint64_t id = 0;  // per rank, in order of allocation
  kernels::Lane lane;    // by which the host copies from and to memory of a device that it cannot touch
};

class Device;
struct BufferDeleter {
  Device* device = nullptr;
  void operator()(Buffer* buffer) const;
};
using BufferPtr = std::unique_ptr<Buffer, BufferDeleter>;

// Bytes [lo, hi) of a buffer, read or written.
struct Range {
  Buffer* buffer = nullptr;
  std::size_t lo = 0;
  std::size_t hi = 0;
  bool write = false;
  ElementType type = ElementType::bytes;
};

// Where a view begins; null in a run of shapes, whose buffers hold nothing.
template <class T>
T* element_at(const Buffer* buffer, Index offset) {
  return buffer != nullptr && buffer->data != nullptr ? reinterpret_cast<T*>(buffer->data) + offset : nullptr;
}

// n contiguous elements.
template <class T>
struct VecView {
  Buffer* buffer = nullptr;
  Index offset = 0;  // in elements
  Index n = 0;

  kernels::Vec<T> get() const { return {element_at<T>(buffer, offset), n}; }
  Range range() const {
    return {buffer, std::size_t(offset) * sizeof(T), std::size_t(offset + n) * sizeof(T), !std::is_const_v<T>,
            element_type<T>()};
  }
  VecView part(Index first, Index count) const { return {buffer, offset + first, count}; }
  operator VecView<const T>() const { return {buffer, offset, n}; }
};

// rows x cols, rows `stride` elements apart.
template <class T>
struct MatView {
  Buffer* buffer = nullptr;
  Index offset = 0;
  Index rows = 0;
  Index cols = 0;
  Index stride = 0;

  kernels::Mat<T> get() const { return {element_at<T>(buffer, offset), rows, cols, stride}; }
  Range range() const {
    const Index extent = rows == 0 ? 0 : (rows - 1) * stride + cols;
    return {buffer, std::size_t(offset) * sizeof(T), std::size_t(offset + extent) * sizeof(T), !std::is_const_v<T>,
            element_type<T>()};
  }
  MatView row_range(Index first, Index count) const { return {buffer, offset + first * stride, count, cols, stride}; }
  operator MatView<const T>() const { return {buffer, offset, rows, cols, stride}; }
};

template <class T>
VecView<T> vec(Buffer& b, Index offset, Index n) {
  return {&b, offset, n};
}
template <class T>
VecView<T> vec(Buffer& b) {
  return {&b, 0, Index(b.bytes / sizeof(T))};
}
template <class T>
MatView<T> mat(Buffer& b, Index offset, Index rows, Index cols) {
  return {&b, offset, rows, cols, cols};
}
// For the host to read now: the memory itself where it is the host's, else a copy.
template <class T>
kernels::OnHost<std::remove_const_t<T>> on_host(VecView<T> v) {
  return {v.buffer == nullptr ? kernels::Lane{} : v.buffer->lane, v.get()};
}
template <class T>
VecView<const T> reads(VecView<T> v) {
  return v;
}
template <class T>
MatView<const T> reads(MatView<T> v) {
  return v;
}

}  // namespace seeksim::runtime
