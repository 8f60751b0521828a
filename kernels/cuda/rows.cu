#include <cuda_runtime.h>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/prelude.h"

namespace seeksim::kernels {
namespace {

#include "kernels/cuda/block.inl"

#include "kernels/cuda/stream.inl"

#include "kernels/cuda/elements.inl"

#include "kernels/cuda/rows.inl"

#include "kernels/cuda/tables.inl"

#include "kernels/cuda/fp8.inl"

}  // namespace

DeviceRows<float> cuda_rows_float() { return Rows<StreamLaunch, float>::table(); }
DeviceRows<bf16> cuda_rows_bf16() { return Rows<StreamLaunch, bf16>::table(); }
DeviceRows<fp16> cuda_rows_fp16() { return Rows<StreamLaunch, fp16>::table(); }
DeviceCasts<float> cuda_casts_float() { return Casts<StreamLaunch, float>::table(); }
DeviceCasts<bf16> cuda_casts_bf16() { return Casts<StreamLaunch, bf16>::table(); }
DeviceCasts<fp16> cuda_casts_fp16() { return Casts<StreamLaunch, fp16>::table(); }

}  // namespace seeksim::kernels
