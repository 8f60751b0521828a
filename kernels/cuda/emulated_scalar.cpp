// Launches of cuda/*.inl on a host.
#include "kernels/cuda/emulated.h"
#include "kernels/cuda/prelude.h"

namespace seeksim::kernels {
namespace {

#include "kernels/cuda/block.inl"

#include "kernels/cuda/elements.inl"

#include "kernels/cuda/rows.inl"

#include "kernels/cuda/products.inl"

#include "kernels/cuda/tables.inl"

#include "kernels/cuda/fp8.inl"

bool threads_backwards = false;

class HostLaunch {
 public:
  explicit HostLaunch(Lane lane) : emulation_(static_cast<Emulation*>(lane.stream)) {
    if (emulation_ != nullptr) emulation_->enter();
  }
  HostLaunch(const HostLaunch&) = delete;
  HostLaunch& operator=(const HostLaunch&) = delete;
  ~HostLaunch() {
    if (emulation_ != nullptr) emulation_->leave();
  }
  template <class Kernel>
  void operator()(Grid grid, const Kernel& kernel) {
    using Block = HostBlock<Kernel::kThreads>;
    // On a GPU shared memory holds garbage when a kernel starts, never what the last one left.
    const std::unique_ptr<unsigned char[]> memory(new unsigned char[Block::kSharedBytes]);
    for (Index y = 0; y < grid.y; ++y) {
      for (Index x = 0; x < grid.x; ++x) {
        Block block{x, y, grid.x, grid.y, threads_backwards, memory.get()};
        kernel(block);
      }
    }
  }
  float* scratch(Index floats) {
    work_.emplace_back(new float[static_cast<std::size_t>(floats)]);
    return work_.back().get();
  }
  void copy(const void* from, void* to, std::size_t bytes) { std::memmove(to, from, bytes); }
  void clear(void* to, std::size_t bytes) { std::memset(to, 0, bytes); }

 private:
  Emulation* emulation_;
  std::vector<std::unique_ptr<float[]>> work_;
};

}  // namespace

const DeviceTable& emulated_device() {
  static const DeviceTable kTable = {
      .name = "emulated",
      .products_float = Products<HostLaunch, float>::table(),
      .products_bf16 = Products<HostLaunch, bf16>::table(),
      .products_fp16 = Products<HostLaunch, fp16>::table(),
      .rows_float = Rows<HostLaunch, float>::table(),
      .rows_bf16 = Rows<HostLaunch, bf16>::table(),
      .rows_fp16 = Rows<HostLaunch, fp16>::table(),
      .elements_float = Elements<HostLaunch, float>::table(),
      .elements_bf16 = Elements<HostLaunch, bf16>::table(),
      .elements_fp16 = Elements<HostLaunch, fp16>::table(),
      .experts_float = Experts<HostLaunch, float>::table(),
      .experts_bf16 = Experts<HostLaunch, bf16>::table(),
      .experts_fp16 = Experts<HostLaunch, fp16>::table(),
      .casts_float = Casts<HostLaunch, float>::table(),
      .casts_bf16 = Casts<HostLaunch, bf16>::table(),
      .casts_fp16 = Casts<HostLaunch, fp16>::table(),
      .common = Common<HostLaunch>::table(),
  };
  return kTable;
}

void emulate_threads_backwards(bool backwards) { threads_backwards = backwards; }

}  // namespace seeksim::kernels
