// The shapes in which arrays reach a kernel: a pointer with its extent. Nothing here owns, allocates or knows a rank.
// The runtime's typed views (runtime/seams/buffer.h) turn into these at the moment a launch runs, so a kernel can touch
// exactly what the launch declared.
#pragma once

#include <cstdint>
#include <type_traits>

// Files compiled for different instruction sets include this header; a member function that was emitted in one of them
// could be chosen by the linker for all. So nothing here is ever emitted out of line.
#if defined(__CUDACC__)
#define SEEKSIM_INLINE __host__ __device__ __forceinline__
#else
#define SEEKSIM_INLINE inline __attribute__((always_inline))
#endif

namespace seeksim::kernels {

using Index = std::int64_t;

// A contiguous vector. `const T` is an input, `T` is written (or updated in place).
template <class T>
struct Vec {
  T* data = nullptr;
  Index n = 0;
  SEEKSIM_INLINE T& operator[](Index i) const { return data[i]; }
  SEEKSIM_INLINE operator Vec<const T>() const { return {data, n}; }
};

// A row-major matrix whose rows start `stride` elements apart (stride >= cols).
template <class T>
struct Mat {
  T* data = nullptr;
  Index rows = 0;
  Index cols = 0;
  Index stride = 0;
  SEEKSIM_INLINE T* row(Index i) const { return data + i * stride; }
  SEEKSIM_INLINE T& operator()(Index i, Index j) const { return data[i * stride + j]; }
  SEEKSIM_INLINE operator Mat<const T>() const { return {data, rows, cols, stride}; }
};

// Arguments of kernels that exist for several storage types T (float, bf16, fp16; cast.h). The caller names T,
// layer_norm_forward<bf16>(...); the default is float. T is not deduced, so that a Mat<T> still turns into a
// Mat<const T> at the call.
template <class T>
using InVec = std::type_identity_t<Vec<const T>>;
template <class T>
using OutVec = std::type_identity_t<Vec<T>>;
template <class T>
using InMat = std::type_identity_t<Mat<const T>>;
template <class T>
using OutMat = std::type_identity_t<Mat<T>>;

struct DeviceTable;
class Arithmetic;

// Where a kernel computes. Without a device: here and now, on the CPU. With one: enqueued on its stream, by its
// launchers (device_table.h). Arithmetic: what computes products and sums over ranks instead of the contract's kernels
// (arithmetic.h); null: the contract holds.
struct Lane {
  void* stream = nullptr;
  const DeviceTable* device = nullptr;
  Arithmetic* arithmetic = nullptr;
};
// The same place, computing by the contract.
constexpr SEEKSIM_INLINE Lane by_contract(Lane lane) { return {lane.stream, lane.device, nullptr}; }

// The contract's version (docs/numerics.md, R10). It stands in every golden and checkpoint.
inline constexpr int kContractVersion = 1;
// The contract's fixed split of whatever tensor or sequence parallelism may cut.
inline constexpr Index kSlabs = 8;
// Elements in a gradient-norm and digest block; shard boundaries are multiples of it inside a slab.
inline constexpr Index kBlock = 1024;

// How many of `n` elements a slab holds: ceil(n / 8) each, the last ones short or empty.
constexpr SEEKSIM_INLINE Index slab_size(Index n) { return (n + kSlabs - 1) / kSlabs; }

}  // namespace seeksim::kernels
