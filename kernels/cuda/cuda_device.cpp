#include "kernels/cuda/cuda_device.h"

#include "kernels/cuda/vendor.h"

namespace seeksim::kernels {

const DeviceTable& cuda_device() {
  static const DeviceTable kTable = [] {
    DeviceTable t;
    t.name = "cuda";
    t.products_float = cuda_products_float();
    t.products_bf16 = cuda_products_bf16();
    t.products_fp16 = cuda_products_fp16();
    t.rows_float = cuda_rows_float();
    t.rows_bf16 = cuda_rows_bf16();
    t.rows_fp16 = cuda_rows_fp16();
    t.elements_float = cuda_elements_float();
    t.elements_bf16 = cuda_elements_bf16();
    t.elements_fp16 = cuda_elements_fp16();
    t.experts_float = cuda_experts_float();
    t.experts_bf16 = cuda_experts_bf16();
    t.experts_fp16 = cuda_experts_fp16();
    t.casts_float = cuda_casts_float();
    t.casts_bf16 = cuda_casts_bf16();
    t.casts_fp16 = cuda_casts_fp16();
    t.common = cuda_common();
    t.vendor_gemm = cublas_gemm;
    return t;
  }();
  return kTable;
}

}  // namespace seeksim::kernels
