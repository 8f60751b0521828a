// Launches of cuda/*.inl on a CUDA stream. Included after block.inl.

// A kernel may name how many of its blocks a multiprocessor has to hold: that bounds the registers of a thread.
template <class Kernel>
constexpr int blocks_at_once() {
  if constexpr (requires { Kernel::kBlocksAtOnce; }) return Kernel::kBlocksAtOnce;
  return 1;
}

template <class Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, blocks_at_once<Kernel>()) run(const __grid_constant__ Kernel kernel) {
  GpuBlock block;
  kernel(block);
}

// Working memory comes from the device's own pool, in the order of the stream, and is given back when the operation is
// over. Operations that are enqueued later may use it again.
class StreamLaunch {
 public:
  explicit StreamLaunch(Lane lane) : stream_(static_cast<cudaStream_t>(lane.stream)) {}
  StreamLaunch(const StreamLaunch&) = delete;
  StreamLaunch& operator=(const StreamLaunch&) = delete;
  ~StreamLaunch() {
    for (int i = 0; i < scratches_; ++i) static_cast<void>(cudaFreeAsync(work_[i], stream_));
  }
  template <class Kernel>
  void operator()(Grid grid, const Kernel& kernel) {
    const dim3 blocks(static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y));
    run<Kernel><<<blocks, Kernel::kThreads, 0, stream_>>>(kernel);
    check(cudaGetLastError(), "a launch");
  }
  float* scratch(Index floats) {
    SEEKSIM_CHECK(scratches_ < kScratches, "%d pieces of working memory", scratches_);
    check(cudaMallocAsync(&work_[scratches_], static_cast<std::size_t>(floats) * sizeof(float), stream_),
          "working memory");
    return static_cast<float*>(work_[scratches_++]);
  }
  // Within the GPU, and to and from the host's pinned memory, in the order of the stream. Pageable memory may be gone
  // or changed right after the call, so a copy from it or to it is done on return.
  void copy(const void* from, void* to, std::size_t bytes) {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_), "a copy");
    if (pageable(to) || (pageable(from) && reads_pageable_late())) check(cudaStreamSynchronize(stream_), "a copy");
  }
  void clear(void* to, std::size_t bytes) { check(cudaMemsetAsync(to, 0, bytes, stream_), "a clear"); }

 private:
  static constexpr int kScratches = 4;
  static void check(cudaError_t error, const char* what) {
    if (error == cudaSuccess) return;
    throw DeviceError(
        std::string(what) + " on the GPU failed: " + cudaGetErrorName(error) + ", " + cudaGetErrorString(error),
        error == cudaErrorMemoryAllocation);
  }
  static bool pageable(const void* p) {
    cudaPointerAttributes of{};
    check(cudaPointerGetAttributes(&of, p), "a pointer");
    return of.type == cudaMemoryTypeUnregistered;
  }
  // Pageable memory is staged before cudaMemcpyAsync returns, unless the GPU can read it itself.
  static bool reads_pageable_late() {
    int device = 0, direct = 0;
    check(cudaGetDevice(&device), "the current GPU");
    check(cudaDeviceGetAttribute(&direct, cudaDevAttrPageableMemoryAccess, device), "an attribute");
    return direct != 0;
  }

  cudaStream_t stream_;
  void* work_[kScratches] = {};
  int scratches_ = 0;
};
