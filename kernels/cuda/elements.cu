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

}  // namespace

DeviceElements<float> cuda_elements_float() { return Elements<StreamLaunch, float>::table(); }
DeviceElements<bf16> cuda_elements_bf16() { return Elements<StreamLaunch, bf16>::table(); }
DeviceElements<fp16> cuda_elements_fp16() { return Elements<StreamLaunch, fp16>::table(); }
DeviceExperts<float> cuda_experts_float() { return Experts<StreamLaunch, float>::table(); }
DeviceExperts<bf16> cuda_experts_bf16() { return Experts<StreamLaunch, bf16>::table(); }
DeviceExperts<fp16> cuda_experts_fp16() { return Experts<StreamLaunch, fp16>::table(); }
DeviceCommon cuda_common() { return Common<StreamLaunch>::table(); }

}  // namespace seeksim::kernels
