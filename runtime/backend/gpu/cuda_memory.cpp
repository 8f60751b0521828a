#include "runtime/backend/gpu/cuda_memory.h"

#include <new>
#include <stdexcept>
#include <utility>

#ifdef SEEKSIM_HAVE_CUDA
#include <cuda_runtime_api.h>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/vendor.h"
#include "kernels/device_table.h"
#endif

namespace seeksim::runtime {

#ifdef SEEKSIM_HAVE_CUDA

namespace {

constexpr std::align_val_t kAlignment{64};
constexpr int kLeastMajor = 8;  // the oldest architecture that the kernels are compiled for

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess)
    throw kernels::DeviceError(std::string(what) + ": " + cudaGetErrorName(error) + ", " + cudaGetErrorString(error),
                               false);
}

}  // namespace

std::string cuda_problem() {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess)
    return std::string("no GPU: ") + cudaGetErrorString(error);
  if (count == 0) return "no GPU is visible (CUDA_VISIBLE_DEVICES?)";
  cudaDeviceProp of{};
  if (const cudaError_t error = cudaGetDeviceProperties(&of, 0); error != cudaSuccess)
    return std::string("a GPU that does not answer: ") + cudaGetErrorString(error);
  if (of.major < kLeastMajor)
    return std::string(of.name) + " has compute capability " + std::to_string(of.major) + "." +
           std::to_string(of.minor) + "; 8.0 is the least";
  return "";
}

std::string vendor_products_problem() { return kernels::vendor_problem(); }

int gpu_count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

int visible_gpu(int n) {
  const int count = gpu_count();
  return count > 0 ? n % count : 0;
}

std::string gpu_identity(int n) {
  cudaDeviceProp of{};
  if (cudaGetDeviceProperties(&of, n) != cudaSuccess) return "";
  std::string text = "GPU-";
  constexpr const char* kDigits = "0123456789abcdef";
  for (const char byte : of.uuid.bytes) {
    text += kDigits[static_cast<unsigned char>(byte) >> 4];
    text += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  return text;
}

double gpu_peak_flops(int n) {
  int multiprocessors = 0, khz = 0, major = 0, minor = 0;
  for (const auto& [value, which] : {std::pair{&multiprocessors, cudaDevAttrMultiProcessorCount},
                                     {&khz, cudaDevAttrClockRate},
                                     {&major, cudaDevAttrComputeCapabilityMajor},
                                     {&minor, cudaDevAttrComputeCapabilityMinor}}) {
    if (cudaDeviceGetAttribute(value, which, n) != cudaSuccess) return 0;
  }
  const int lanes = major == 8 && minor == 0 ? 64 : 128;  // fp32 lanes of a multiprocessor, from 8.0 on
  return 2.0 * multiprocessors * lanes * khz * 1e3;
}

CudaMemory::CudaMemory(int ordinal, bool locks) : locks_(locks) {
  check(cudaSetDevice(ordinal), "the GPU cannot be used");
  cudaDeviceProp of{};
  check(cudaGetDeviceProperties(&of, ordinal), "the GPU's properties");
  name_ = of.name;
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
  lane_ = {stream, &kernels::cuda_device()};
  // Working memory of kernels stays with their pool: it is asked for at every product.
  cudaMemPool_t pool = nullptr;
  check(cudaDeviceGetDefaultMemPool(&pool, ordinal), "the memory pool");
  std::uint64_t keep = ~std::uint64_t(0);
  check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep), "the memory pool");
}

// No caller is left to handle errors at the end: the process goes on without the GPU.
CudaMemory::~CudaMemory() {
  static_cast<void>(cudaStreamSynchronize(static_cast<cudaStream_t>(lane_.stream)));
  static_cast<void>(cudaStreamDestroy(static_cast<cudaStream_t>(lane_.stream)));
}

std::byte* CudaMemory::allocate(std::size_t bytes) {
  void* data = nullptr;
  const cudaError_t error = cudaMalloc(&data, bytes > 0 ? bytes : 1);
  if (error == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());  // reported here, so the next launch must not report it again
    return nullptr;
  }
  check(error, "memory of the GPU");
  return static_cast<std::byte*>(data);
}
void CudaMemory::release(std::byte* data) { static_cast<void>(cudaFree(data)); }

std::byte* CudaMemory::allocate_pinned(std::size_t bytes) {
  if (!locks_) return static_cast<std::byte*>(::operator new(bytes, kAlignment));
  void* data = nullptr;
  const cudaError_t error = cudaHostAlloc(&data, bytes > 0 ? bytes : 1, cudaHostAllocDefault);
  if (error == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    return nullptr;
  }
  check(error, "pinned memory");
  return static_cast<std::byte*>(data);
}
void CudaMemory::release_pinned(std::byte* data) {
  if (!locks_) return ::operator delete(data, kAlignment);
  static_cast<void>(cudaFreeHost(data));
}

#else

namespace {
[[noreturn]] void none() { throw std::runtime_error("this program was built without CUDA"); }
}  // namespace

std::string cuda_problem() { return "this program was built without CUDA: nvcc was not found"; }
std::string vendor_products_problem() { return cuda_problem(); }
int gpu_count() { return 0; }
int visible_gpu(int) { return 0; }
std::string gpu_identity(int) { return ""; }
double gpu_peak_flops(int) { return 0; }
CudaMemory::CudaMemory(int, bool) { none(); }
CudaMemory::~CudaMemory() = default;
std::byte* CudaMemory::allocate(std::size_t) { none(); }
void CudaMemory::release(std::byte*) {}
std::byte* CudaMemory::allocate_pinned(std::size_t) { none(); }
void CudaMemory::release_pinned(std::byte*) {}

#endif

}  // namespace seeksim::runtime
