// How a kernel for GPUs is written, so that one text runs on a GPU and, thread by thread, on a host. Included inside an
// anonymous namespace by cuda/*.cu and emulated_scalar.cpp.
//
// A kernel is a struct of arguments with
//
//   static constexpr int kThreads = 128;
//   template <class Block> SEEKSIM_BODY void operator()(Block& block) const {
//     typename Block::template Local<float> sum;                    // what each thread keeps between phases
//     block.threads([&](int t) SEEKSIM_PHASE { sum(t) = ...; });    // a phase: every thread, then a barrier
//     block.threads([&](int t) SEEKSIM_PHASE { ... });
//   }
//
// On a GPU `threads` calls its phase once, with the number of the thread that runs it, and ends in __syncthreads(). On
// a host it calls it for every thread of the block in turn, and blocks come one after another. So the loops between
// phases must be the same for all threads, and a phase must not read what another thread writes in it. A host would
// give another answer than a GPU; a host that goes through the threads backwards, as the tests do, would give a third.

#if defined(__CUDACC__)
#define SEEKSIM_BODY __device__ __forceinline__           // only a GPU's threads call it
#define SEEKSIM_BOTH __host__ __device__ __forceinline__  // launches call it too
#define SEEKSIM_PHASE
#define SEEKSIM_UNROLLED _Pragma("unroll")
#else
#define SEEKSIM_BODY inline __attribute__((always_inline))
#define SEEKSIM_BOTH inline __attribute__((always_inline))
#define SEEKSIM_PHASE __attribute__((always_inline))
#define SEEKSIM_UNROLLED _Pragma("GCC unroll 16")
#endif

constexpr int kWarp = 32;

// Blocks of a launch. y and z may be cut to a GPU's limit (65,535): kernels then loop in steps of them.
struct Grid {
  Index x = 1;
  Index y = 1;
};
constexpr Index kMostBlocksY = 65535;
constexpr SEEKSIM_BOTH Index blocks_for(Index n, Index each) { return (n + each - 1) / each; }
constexpr SEEKSIM_BOTH Index least(Index a, Index b) { return a < b ? a : b; }
constexpr SEEKSIM_BOTH Index most(Index a, Index b) { return a > b ? a : b; }

#if defined(__CUDACC__)
// The block that the calling thread belongs to.
struct GpuBlock {
  template <class T>
  struct Local {
    T value;
    __device__ __forceinline__ T& operator()(int) { return value; }
  };
  __device__ __forceinline__ Index x() const { return blockIdx.x; }
  __device__ __forceinline__ Index y() const { return blockIdx.y; }
  __device__ __forceinline__ Index blocks_x() const { return gridDim.x; }
  __device__ __forceinline__ Index blocks_y() const { return gridDim.y; }
  template <class Phase>
  __device__ __forceinline__ void threads(Phase phase) {
    phase(static_cast<int>(threadIdx.x));
    __syncthreads();
  }
  // The end of F4 inside each warp: v(t) += v(t + 16), ... down to one. All threads of the warp have the sum then,
  // since an addition does not mind which operand comes first.
  __device__ __forceinline__ void fold_warps(Local<float>& v) {
    for (int w = kWarp / 2; w > 0; w /= 2) v.value = FloatOps::add(v.value, __shfl_xor_sync(~0U, v.value, w));
  }
  // F5 inside each warp.
  __device__ __forceinline__ void max_of_warps(Local<float>& v) {
    for (int w = kWarp / 2; w > 0; w /= 2) {
      const float other = __shfl_xor_sync(~0U, v.value, w);
      v.value = other > v.value ? other : v.value;
    }
  }
  // Memory of the block. One array a kernel.
  template <class T, int kCount>
  __device__ __forceinline__ T* shared() {
    __shared__ __align__(16) unsigned char memory[sizeof(T) * kCount];
    return reinterpret_cast<T*>(memory);
  }
  // Integers only: their order does not matter (F5).
  __device__ __forceinline__ static void add_to(std::int64_t* sum, std::int64_t v) {
    if (v != 0) atomicAdd(reinterpret_cast<unsigned long long*>(sum), static_cast<unsigned long long>(v));
  }
  __device__ __forceinline__ static void least_of(std::int64_t* least, std::int64_t v) {
    atomicMin(reinterpret_cast<long long*>(least), static_cast<long long>(v));
  }
  // A bug of the caller, which a check would report on a host. Ends the kernel, and with it the device's context.
  __device__ __forceinline__ static void demand(bool holds) {
    if (!holds) __trap();
  }
};
#else

// A block on a host.
template <int kThreads>
struct HostBlock {
  template <class T>
  struct Local {
    std::unique_ptr<T[]> values{new T[kThreads]()};
    T& operator()(int t) { return values[static_cast<std::size_t>(t)]; }
  };
  Index block_x, block_y, of_x, of_y;
  bool backwards;  // the order of the threads
  unsigned char* memory;

  Index x() const { return block_x; }
  Index y() const { return block_y; }
  Index blocks_x() const { return of_x; }
  Index blocks_y() const { return of_y; }
  template <class Phase>
  void threads(Phase phase) {
    for (int i = 0; i < kThreads; ++i) phase(backwards ? kThreads - 1 - i : i);
  }
  void fold_warps(Local<float>& v) {
    for (int w = kWarp / 2; w > 0; w /= 2)
      exchange(v, w, [](float own, float other) { return FloatOps::add(own, other); });
  }
  void max_of_warps(Local<float>& v) {
    for (int w = kWarp / 2; w > 0; w /= 2)
      exchange(v, w, [](float own, float other) { return other > own ? other : own; });
  }
  template <class T, int kCount>
  T* shared() {
    static_assert(sizeof(T) * kCount <= kSharedBytes);
    return reinterpret_cast<T*>(memory);
  }
  static void add_to(std::int64_t* sum, std::int64_t v) { *sum += v; }
  static void least_of(std::int64_t* least, std::int64_t v) { *least = v < *least ? v : *least; }
  static void demand(bool holds) { SEEKSIM_CHECK(holds, "a kernel's index lies outside of its table"); }

  static constexpr std::size_t kSharedBytes = 48 * 1024;

 private:
  template <class Both>
  void exchange(Local<float>& v, int w, Both both) {
    static_assert(kThreads % kWarp == 0);
    float after[kThreads];
    for (int t = 0; t < kThreads; ++t) after[t] = both(v(t), v(t ^ w));
    for (int t = 0; t < kThreads; ++t) v(t) = after[t];
  }
};
#endif

// ---- values in memory: float, or 16 bits (R8), one at a time ----

template <class T>
constexpr bool kIsHalf = std::is_same_v<T, bf16> || std::is_same_v<T, fp16>;

SEEKSIM_HD float as_float(float x) { return x; }
SEEKSIM_HD float as_float(bf16 x) { return cast::from_bf16<FloatOps>(x.bits); }
SEEKSIM_HD float as_float(fp16 x) { return cast::from_fp16<FloatOps>(x.bits); }
template <class T>
SEEKSIM_HD T from_float(float x) {
  if constexpr (std::is_same_v<T, bf16>) {
    return T{static_cast<std::uint16_t>(cast::to_bf16<FloatOps>(x))};
  } else if constexpr (std::is_same_v<T, fp16>) {
    return T{static_cast<std::uint16_t>(cast::to_fp16<FloatOps>(x))};
  } else {
    return x;
  }
}
template <class T>
SEEKSIM_HD float rounded_to(float x) {
  return as_float(from_float<T>(x));
}
// A quiet NaN, which no sum can hide.
SEEKSIM_HD float not_a_number() { return FloatOps::from_bits(0x7fc00000U); }
SEEKSIM_HD float infinity() { return FloatOps::from_bits(0x7f800000U); }

// By bit patterns: all ones in the exponent.
SEEKSIM_HD bool is_finite(float x) { return (FloatOps::bits(x) & 0x7f800000U) != 0x7f800000U; }
SEEKSIM_HD bool is_finite(bf16 x) { return (x.bits & 0x7f80U) != 0x7f80U; }
SEEKSIM_HD bool is_finite(fp16 x) { return (x.bits & 0x7c00U) != 0x7c00U; }

// ---- sums ----

// F4, of a warp: lanes l, l + 32, l + 64 and l + 96 are its thread l's. step(s, i) returns the accumulator s after
// element i. fold_warps has to fold what the warp's threads return; the two first halvings are made here.
template <class Step>
SEEKSIM_HD float four_lanes(int thread, Index n, Step step) {
  float s[4] = {0.0F, 0.0F, 0.0F, 0.0F};
  Index i = thread;
  for (; i + 3 * kWarp < n; i += 4 * kWarp) {
    SEEKSIM_UNROLLED
    for (int c = 0; c < 4; ++c) s[c] = step(s[c], i + c * kWarp);
  }
  SEEKSIM_UNROLLED
  for (int c = 0; c < 4; ++c)
    if (i + c * kWarp < n) s[c] = step(s[c], i + c * kWarp);
  return FloatOps::add(FloatOps::add(s[0], s[2]), FloatOps::add(s[1], s[3]));
}

// F3 as a binary counter. kDepth: digits of the largest count.
template <int kDepth>
struct Counter {
  float slots[kDepth];
  Index count = 0;
  int top = 0;

  SEEKSIM_BODY void push(float v) {
    for (Index c = count++; c & 1; c >>= 1) v = FloatOps::add(slots[--top], v);
    slots[top++] = v;
  }
  // Empties it; +0 where nothing was pushed.
  SEEKSIM_BODY float finish() {
    if (top == 0) return 0.0F;
    float v = slots[--top];
    while (top > 0) v = FloatOps::add(slots[--top], v);
    count = 0;
    return v;
  }
};
constexpr int kDeep = 40;  // digits of any count of samples, tokens or blocks
