// Devices, memory and copies of the CUDA runtime, by its documents ("API synchronization behavior").
//   SEEKSIM_STANDIN_GPUS     how many there are (8)
//   SEEKSIM_STANDIN_MEMORY   bytes of each, shared by what a process allocates (4 GiB)
//   SEEKSIM_STANDIN_READS_PAGEABLE  1: the GPU reads pageable memory itself, and so late
#include "tests/standin/memory.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "tests/standin/stream.h"

namespace seeksim::standin {
namespace {

struct Block {
  std::size_t bytes = 0;
  Where where = Where::device;
};
struct Registry {
  std::mutex mutex;
  std::map<std::uintptr_t, Block> blocks;
  std::size_t used = 0;  // of the device
};
Registry& registry() {
  static Registry* const kRegistry = new Registry;
  return *kRegistry;
}

thread_local int current_device = 0;

constexpr std::size_t kAlignment = 256;
constexpr unsigned char kNeverWritten = 0xa5, kFreed = 0xdb;

int count() { return int(setting("SEEKSIM_STANDIN_GPUS", 8)); }

const Block* holding(const void* p, std::size_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(p);
  auto after = registry().blocks.upper_bound(address);
  if (after == registry().blocks.begin()) return nullptr;
  --after;
  return address + bytes <= after->first + after->second.bytes ? &after->second : nullptr;
}

cudaError_t take(void** p, std::size_t bytes, Where where) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  if (where == Where::device && all.used + bytes > setting("SEEKSIM_STANDIN_MEMORY", std::uint64_t(4) << 30))
    return told(cudaErrorMemoryAllocation);
  void* const data = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  if (data == nullptr) return told(cudaErrorMemoryAllocation);
  std::memset(data, kNeverWritten, bytes);
  all.blocks[reinterpret_cast<std::uintptr_t>(data)] = {bytes, where};
  if (where == Where::device) all.used += bytes;
  *p = data;
  return cudaSuccess;
}

void give_back(void* p, Where where) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto found = all.blocks.find(reinterpret_cast<std::uintptr_t>(p));
  if (found == all.blocks.end() || found->second.where != where)
    return violation("memory is freed that was not allocated, or is freed as what it is not");
  std::memset(p, kFreed, found->second.bytes);
  if (where == Where::device) all.used -= found->second.bytes;
  all.blocks.erase(found);
  std::free(p);
}

}  // namespace

Where where(const void* p) {
  const std::lock_guard lock(registry().mutex);
  const Block* const block = holding(p, 1);
  return block == nullptr ? Where::pageable : block->where;
}

bool reachable(const void* p, std::size_t bytes) {
  const std::lock_guard lock(registry().mutex);
  return holding(p, bytes) != nullptr;
}

std::size_t allocations() {
  const std::lock_guard lock(registry().mutex);
  return registry().blocks.size();
}

}  // namespace seeksim::standin

using namespace seeksim::standin;

extern "C" {

// ---- devices -------------------------------------------------------------------------------------------------------

cudaError_t cudaGetDeviceCount(int* all) {
  *all = 0;
  if (const cudaError_t error = context_error(); error != cudaSuccess) return told(error);
  *all = count();
  return told(*all > 0 ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return told(context_error());
}

cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= count()) return told(cudaErrorInvalidDevice);
  current_device = device;
  return told(context_error());
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* of, int device) {
  if (device < 0 || device >= count()) return told(cudaErrorInvalidDevice);
  *of = {};
  const std::string name = "stand-in for a GPU, on CPU threads";
  std::memcpy(of->name, name.c_str(), name.size() + 1);
  of->major = 9;
  of->uuid.bytes[0] = char(device + 1);
  return told(context_error());
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int) {
  if (which != cudaDevAttrPageableMemoryAccess) violation("an attribute that the stand-in does not know is asked for");
  *value = int(setting("SEEKSIM_STANDIN_READS_PAGEABLE", 0));
  return told(context_error());
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int) {
  *pool = nullptr;
  return told(context_error());
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return told(context_error()); }

// ---- memory --------------------------------------------------------------------------------------------------------

cudaError_t cudaMalloc(void** p, std::size_t bytes) {
  if (const cudaError_t error = context_error(); error != cudaSuccess) return told(error);
  return take(p, bytes, Where::device);
}

// Waits for the device: a kernel that hangs, hangs this too.
cudaError_t cudaFree(void* p) {
  if (p == nullptr) return cudaSuccess;
  wait_for_the_device("cudaFree");
  give_back(p, Where::device);
  return told(context_error());
}

cudaError_t cudaHostAlloc(void** p, std::size_t bytes, unsigned) {
  if (const cudaError_t error = context_error(); error != cudaSuccess) return told(error);
  return take(p, bytes, Where::pinned);
}
// Waits for nothing: no document says that it does.
cudaError_t cudaFreeHost(void* p) {
  give_back(p, Where::pinned);
  return told(context_error());
}

cudaError_t cudaMallocAsync(void** p, std::size_t bytes, cudaStream_t) {
  if (const cudaError_t error = context_error(); error != cudaSuccess) return told(error);
  return take(p, bytes, Where::device);
}
cudaError_t cudaFreeAsync(void* p, cudaStream_t stream) {
  stream->enqueue("cudaFreeAsync", [p] { give_back(p, Where::device); });
  return told(context_error());
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* of, const void* p) {
  *of = {};
  switch (where(p)) {
    case Where::pageable:
      of->type = cudaMemoryTypeUnregistered;
      break;
    case Where::pinned:
      of->type = cudaMemoryTypeHost;
      break;
    case Where::device:
      of->type = cudaMemoryTypeDevice;
      break;
  }
  return told(context_error());
}

// ---- copies --------------------------------------------------------------------------------------------------------

// Pageable memory of the host is read before the call returns, unless the GPU can read it itself. What goes there comes
// when the stream gets there: whether the call waits for it depends on the machine, so no caller may count on it.
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  if (const cudaError_t error = context_error(); error != cudaSuccess) return told(error);
  if (kind != cudaMemcpyDefault) violation("a copy's direction is told; the stand-in knows only cudaMemcpyDefault");
  const Where source = where(from), target = where(to);
  if ((source != Where::pageable && !reachable(from, bytes)) || (target != Where::pageable && !reachable(to, bytes)))
    return told(cudaErrorInvalidValue);
  if (source == Where::pageable && setting("SEEKSIM_STANDIN_READS_PAGEABLE", 0) == 0) {
    const auto* const begin = static_cast<const std::byte*>(from);
    stream->enqueue("a copy", [to, staged = std::vector<std::byte>(begin, begin + bytes)] {
      if (context_error() == cudaSuccess) std::memcpy(to, staged.data(), staged.size());
    });
  } else {
    stream->enqueue("a copy", [to, from, bytes] {
      if (context_error() == cudaSuccess) std::memmove(to, from, bytes);
    });
  }
  // Between two places of the host it is synchronous.
  if (source != Where::device && target != Where::device) stream->mark("a copy", true)->wait();
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  if (const cudaError_t error = context_error(); error != cudaSuccess) return told(error);
  if (!reachable(to, bytes)) return told(cudaErrorInvalidValue);
  stream->enqueue("a memset", [to, value, bytes] {
    if (context_error() == cudaSuccess) std::memset(to, value, bytes);
  });
  return cudaSuccess;
}

}  // extern "C"
