#include "kernels/cuda/vendor.h"

#include "kernels/device_table.h"

#ifdef SEEKSIM_HAVE_CUBLASLT
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <utility>
#endif

namespace seeksim::kernels {

#ifdef SEEKSIM_HAVE_CUBLASLT

namespace {

struct CublasApi {
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
  decltype(&cublasLtMatmulDescCreate) desc_create = nullptr;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
  std::string problem;  // empty: everything was found
};

// The library of the same version as the header, and so as the runtime library that is linked.
CublasApi load() {
  CublasApi api;
  const std::string file = "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);
  void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    api.problem = std::string("cuBLASLt cannot be loaded: ") + ::dlerror() + " (is its folder in LD_LIBRARY_PATH?)";
    return api;
  }
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
    if (function == nullptr && api.problem.empty()) api.problem = "this " + file + " has no " + name;
  };
  find(api.create, "cublasLtCreate");
  find(api.matmul, "cublasLtMatmul");
  find(api.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  find(api.desc_create, "cublasLtMatmulDescCreate");
  find(api.desc_destroy, "cublasLtMatmulDescDestroy");
  find(api.desc_set, "cublasLtMatmulDescSetAttribute");
  find(api.layout_create, "cublasLtMatrixLayoutCreate");
  find(api.layout_destroy, "cublasLtMatrixLayoutDestroy");
  find(api.preference_create, "cublasLtMatmulPreferenceCreate");
  find(api.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  find(api.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  return api;
}

const CublasApi& api() {
  static const CublasApi kApi = load();
  return kApi;
}

void check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw DeviceError(std::string(what) + ": cuBLASLt reports " + std::to_string(int(status)),
                    status == CUBLAS_STATUS_ALLOC_FAILED);
}
void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  throw DeviceError(std::string(what) + ": " + cudaGetErrorName(error) + ", " + cudaGetErrorString(error),
                    error == cudaErrorMemoryAllocation);
}

// Handles of the current GPU, made once each and kept to the program's end.
cublasLtHandle_t handle() {
  constexpr int kGpusMax = 64;
  static std::array<cublasLtHandle_t, kGpusMax> handles{};
  int gpu = 0;
  check(cudaGetDevice(&gpu), "the current GPU");
  if (gpu >= kGpusMax) throw DeviceError("GPU " + std::to_string(gpu) + " is more than were thought of", false);
  cublasLtHandle_t& of_gpu = handles[static_cast<std::size_t>(gpu)];
  if (of_gpu == nullptr) check(api().create(&of_gpu), "a handle");
  return of_gpu;
}

template <class T>
constexpr cudaDataType_t kType = std::is_same_v<T, bf16>   ? CUDA_R_16BF
                                 : std::is_same_v<T, fp16> ? CUDA_R_16F
                                                           : CUDA_R_32F;

// One of cuBLASLt's descriptors, destroyed at the end.
template <class Descriptor>
class Owned {
 public:
  using Destroy = cublasStatus_t (*)(Descriptor);
  explicit Owned(Destroy destroy) : destroy_(destroy) {}
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() {
    if (made != nullptr) static_cast<void>(destroy_(made));
  }
  Descriptor made = nullptr;

 private:
  Destroy destroy_;
};

// Working memory in the order of the stream.
class StreamMemory {
 public:
  StreamMemory(std::size_t bytes, cudaStream_t stream) : stream_(stream) {
    if (bytes > 0) check(cudaMallocAsync(&data, bytes, stream), "working memory");
  }
  StreamMemory(const StreamMemory&) = delete;
  StreamMemory& operator=(const StreamMemory&) = delete;
  ~StreamMemory() {
    if (data != nullptr) static_cast<void>(cudaFreeAsync(data, stream_));
  }
  void* data = nullptr;

 private:
  cudaStream_t stream_;
};

std::uint32_t alignment(const void* p, std::size_t stride_bytes) {
  const std::uintptr_t both = reinterpret_cast<std::uintptr_t>(p) | stride_bytes | 256;
  return static_cast<std::uint32_t>(both & (~both + 1));
}

// cuBLASLt's matrices are stored by columns, and a row-major matrix is its transpose stored by columns. So it computes
// C^T (N, M) = op(B)^T (N, K) op(A)^T (K, M). A bias has one value a column of C: one a row of C^T, as cuBLASLt wants.
template <class T, class To>
class Matmul {
 public:
  Matmul(const GemmCall<T, To>& call, const void* bias, bool tf32) : call_(call) {
    const cublasComputeType_t compute =
        tf32 && std::is_same_v<T, float> ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    check(api().desc_create(&desc_.made, compute, CUDA_R_32F), "a product");
    set(CUBLASLT_MATMUL_DESC_TRANSA, call.tb ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, call.ta ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (bias != nullptr) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<std::int32_t>(kType<T>));
    }
    layout(first_, call.b);
    layout(second_, call.a);
    layout(result_, call.c);
  }

  // Returns false if cuBLASLt has nothing for these shapes and places.
  bool run(cudaStream_t stream) {
    constexpr std::size_t kWorkBytes = std::size_t(32) << 20;
    Owned<cublasLtMatmulPreference_t> wishes(api().preference_destroy);
    check(api().preference_create(&wishes.made), "a preference");
    const auto wish = [&](cublasLtMatmulPreferenceAttributes_t which, auto value) {
      check(api().preference_set(wishes.made, which, &value, sizeof value), "a preference");
    };
    wish(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkBytes);
    // No sums in place, whose order is random, and no sums that are rounded to 16 bits in between.
    wish(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    const std::uint32_t of_c = alignment(call_.c.data, static_cast<std::size_t>(call_.c.stride) * sizeof(To));
    wish(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
         alignment(call_.b.data, static_cast<std::size_t>(call_.b.stride) * sizeof(T)));
    wish(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
         alignment(call_.a.data, static_cast<std::size_t>(call_.a.stride) * sizeof(T)));
    wish(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, of_c);
    wish(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, of_c);
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    const cublasStatus_t asked = api().heuristic(handle(), desc_.made, first_.made, second_.made, result_.made,
                                                 result_.made, wishes.made, 1, &found, &count);
    if (asked == CUBLAS_STATUS_NOT_SUPPORTED || (asked == CUBLAS_STATUS_SUCCESS && count == 0)) return false;
    check(asked, "an algorithm");
    const float one = 1, zero = 0;
    const StreamMemory work(found.workspaceSize, stream);
    check(api().matmul(handle(), desc_.made, &one, call_.b.data, first_.made, call_.a.data, second_.made, &zero,
                       call_.c.data, result_.made, call_.c.data, result_.made, &found.algo, work.data,
                       found.workspaceSize, stream),
          "a product");
    return true;
  }

 private:
  template <class Value>
  void set(cublasLtMatmulDescAttributes_t which, Value value) {
    check(api().desc_set(desc_.made, which, &value, sizeof value), "a product");
  }
  template <class E>
  void layout(Owned<cublasLtMatrixLayout_t>& to, Mat<E> m) {
    check(api().layout_create(&to.made, kType<std::remove_const_t<E>>, static_cast<std::uint64_t>(m.cols),
                              static_cast<std::uint64_t>(m.rows), m.stride),
          "a matrix");
  }

  const GemmCall<T, To>& call_;
  Owned<cublasLtMatmulDesc_t> desc_{api().desc_destroy};
  Owned<cublasLtMatrixLayout_t> first_{api().layout_destroy}, second_{api().layout_destroy},
      result_{api().layout_destroy};
};

template <class T, class To>
bool product(Lane lane, const GemmCall<T, To>& call, bool tf32) {
  if (call.c.rows == 0 || call.c.cols == 0) return true;
  if (call.k() == 0 || (call.bias.n > 0 && !std::is_same_v<T, To>)) return false;
  const auto stream = static_cast<cudaStream_t>(lane.stream);
  // A bias may lie anywhere in the flat parameters, and is read in vectors.
  const std::size_t bytes = static_cast<std::size_t>(call.bias.n) * sizeof(T);
  const StreamMemory bias(bytes, stream);
  if (bytes > 0)
    check(cudaMemcpyAsync(bias.data, call.bias.data, bytes, cudaMemcpyDeviceToDevice, stream), "a copy of a bias");
  return Matmul<T, To>(call, bias.data, tf32).run(stream);
}

}  // namespace

std::string vendor_problem() { return api().problem; }

bool cublas_gemm(Lane lane, const AnyGemm& call, bool tf32) {
  if (!api().problem.empty()) throw DeviceError(api().problem, false);
  return std::visit([&](const auto& typed) { return product(lane, typed, tf32); }, call);
}

#else

std::string vendor_problem() { return "this program was built without cuBLASLt: cublasLt.h was not found beside nvcc"; }

bool cublas_gemm(Lane, const AnyGemm&, bool) { throw DeviceError(vendor_problem(), false); }

#endif

}  // namespace seeksim::kernels
