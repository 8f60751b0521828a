// Element types under the names of PyTorch's c10::ScalarType.
#pragma once

#include "runtime/seams/buffer.h"

namespace seeksim::harness {

inline const char* dtype_name(runtime::ElementType type) {
  switch (type) {
    case runtime::ElementType::f32:
      return "Float";
    case runtime::ElementType::f16:
      return "Half";
    case runtime::ElementType::bf16:
      return "BFloat16";
    case runtime::ElementType::i32:
      return "Int";
    case runtime::ElementType::i64:
      return "Long";
    default:
      return "Byte";
  }
}

}  // namespace seeksim::harness
