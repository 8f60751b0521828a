// NamedTensor: a tensor's values on the host under the name that Hugging Face's files give it.
#pragma once

#include <string>
#include <vector>

#include "runtime/seams/buffer.h"

namespace seeksim::runtime {

struct NamedTensor {
  std::string name;  // as in Hugging Face's transformers
  std::vector<Index> shape;
  std::vector<float> values;  // row-major, as many as the shape has elements
};

}  // namespace seeksim::runtime
