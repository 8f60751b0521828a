#include <cuda_runtime.h>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/prelude.h"

namespace seeksim::kernels {
namespace {

#include "kernels/cuda/block.inl"

#include "kernels/cuda/stream.inl"

#include "kernels/cuda/elements.inl"

#include "kernels/cuda/rows.inl"

#include "kernels/cuda/products.inl"

}  // namespace

DeviceProducts<fp16> cuda_products_fp16() { return Products<StreamLaunch, fp16>::table(); }

}  // namespace seeksim::kernels
