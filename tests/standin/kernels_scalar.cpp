// The kernels for GPUs behind the stand-in's streams: the text of kernels/cuda as nvcc has it, launches, copies and
// working memory included (stream.inl), but for the one line that starts a kernel: here its blocks run one after the
// other on the stream's thread, as on the emulated device. Arguments travel by value, as a launch takes them.
#include <cuda_runtime.h>

#include <atomic>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/prelude.h"
#include "kernels/cuda/vendor.h"
#include "kernels/fast.h"
#include "tests/standin/stream.h"

namespace seeksim::kernels {
namespace {

#include "kernels/cuda/block.inl"

// In place of run<Kernel><<<blocks, Kernel::kThreads, 0, stream>>>(kernel).
template <class Kernel>
void start(dim3 blocks, cudaStream_t stream, const Kernel& kernel) {
  static_assert(std::is_trivially_copyable_v<Kernel>, "a launch copies its arguments byte by byte");
  if (const cudaError_t error = standin::context_error(); error != cudaSuccess)
    return static_cast<void>(standin::told(error));
  // Planted: SEEKSIM_STANDIN_BREAKS=n: the n-th kernel of the process ends its context, as a GPU that fails.
  static const std::uint64_t kBreaks = standin::setting("SEEKSIM_STANDIN_BREAKS", 0);
  static std::atomic<std::uint64_t> started{0};
  const bool breaks = ++started == kBreaks;
  stream->enqueue("a kernel", [blocks, kernel, breaks] {
    if (breaks) standin::break_context(cudaErrorLaunchFailure, "planted");
    if (standin::context_error() != cudaSuccess) return;
    using Block = HostBlock<Kernel::kThreads>;
    const std::unique_ptr<unsigned char[]> memory(new unsigned char[Block::kSharedBytes]);
    for (Index y = 0; y < blocks.y; ++y) {
      for (Index x = 0; x < blocks.x; ++x) {
        Block block{x, y, blocks.x, blocks.y, false, memory.get()};
        kernel(block);
      }
    }
  });
}

#include "standin_stream.inl"

#include "kernels/cuda/elements.inl"

#include "kernels/cuda/rows.inl"

#include "kernels/cuda/products.inl"

#include "kernels/cuda/tables.inl"

#include "kernels/cuda/fp8.inl"

}  // namespace

std::string vendor_problem() { return ""; }

// A vendor's products have unknown bits; these are the CPU's fast ones.
bool cublas_gemm(Lane lane, const AnyGemm& call, bool tf32) {
  static_cast<cudaStream_t>(lane.stream)->enqueue("a product", [call, tf32] {
    if (standin::context_error() != cudaSuccess) return;
    FastWay way;
    way.tf32 = tf32;
    FastArithmetic(way).gemm({}, call);
  });
  return true;
}

const DeviceTable& cuda_device() {
  static const DeviceTable kTable = {
      .name = "cuda",
      .products_float = Products<StreamLaunch, float>::table(),
      .products_bf16 = Products<StreamLaunch, bf16>::table(),
      .products_fp16 = Products<StreamLaunch, fp16>::table(),
      .rows_float = Rows<StreamLaunch, float>::table(),
      .rows_bf16 = Rows<StreamLaunch, bf16>::table(),
      .rows_fp16 = Rows<StreamLaunch, fp16>::table(),
      .elements_float = Elements<StreamLaunch, float>::table(),
      .elements_bf16 = Elements<StreamLaunch, bf16>::table(),
      .elements_fp16 = Elements<StreamLaunch, fp16>::table(),
      .experts_float = Experts<StreamLaunch, float>::table(),
      .experts_bf16 = Experts<StreamLaunch, bf16>::table(),
      .experts_fp16 = Experts<StreamLaunch, fp16>::table(),
      .casts_float = Casts<StreamLaunch, float>::table(),
      .casts_bf16 = Casts<StreamLaunch, bf16>::table(),
      .casts_fp16 = Casts<StreamLaunch, fp16>::table(),
      .common = Common<StreamLaunch>::table(),
      .vendor_gemm = cublas_gemm,
  };
  return kTable;
}

}  // namespace seeksim::kernels
