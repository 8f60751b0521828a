// The kernels' launchers for CUDA. Only where the program was built with nvcc; cuda/*.cu are its parts, split so that
// they compile side by side.
#pragma once

#include "kernels/device_table.h"

namespace seeksim::kernels {

// A Lane with this table holds a cudaStream_t of the device that was current when it was made.
const DeviceTable& cuda_device();

// ---- its parts
DeviceProducts<float> cuda_products_float();
DeviceProducts<bf16> cuda_products_bf16();
DeviceProducts<fp16> cuda_products_fp16();
DeviceRows<float> cuda_rows_float();
DeviceRows<bf16> cuda_rows_bf16();
DeviceRows<fp16> cuda_rows_fp16();
DeviceElements<float> cuda_elements_float();
DeviceElements<bf16> cuda_elements_bf16();
DeviceElements<fp16> cuda_elements_fp16();
DeviceExperts<float> cuda_experts_float();
DeviceExperts<bf16> cuda_experts_bf16();
DeviceExperts<fp16> cuda_experts_fp16();
DeviceCasts<float> cuda_casts_float();
DeviceCasts<bf16> cuda_casts_bf16();
DeviceCasts<fp16> cuda_casts_fp16();
DeviceCommon cuda_common();

}  // namespace seeksim::kernels
