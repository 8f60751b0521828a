// The vendor's products for `fast` arithmetic on a GPU: cuBLASLt, with tensor cores. The library is loaded at the first
// use, so a program that does not need it neither requires it nor pays for it. Built only where cublasLt.h is found.
#pragma once

#include <string>

#include "kernels/arithmetic.h"

namespace seeksim::kernels {

// Why there are no vendor products; empty: there are.
std::string vendor_problem();

// DeviceTable::vendor_gemm, on the GPU that is current. fp32 operands: on its fp32 units or, with tf32, on tensor
// cores. bf16 and fp16: on tensor cores. Sums are fp32 throughout: an algorithm that cuts K between blocks has to add
// their parts in fp32, and in one order. Throws DeviceError.
bool cublas_gemm(Lane lane, const AnyGemm& call, bool tf32);

}  // namespace seeksim::kernels
