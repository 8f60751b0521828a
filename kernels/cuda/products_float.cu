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

DeviceProducts<float> cuda_products_float() { return Products<StreamLaunch, float>::table(); }

}  // namespace seeksim::kernels
