// The safetensors format: 8 bytes of header length (little endian), a JSON header {name: {dtype, shape, data_offsets}},
// then the data. Strict on reading: hostile headers, overlaps, holes and short files are errors with the reason, never
// a crash. Reading and writing are on byte strings; files are the caller's.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/observer.h"

namespace seeksim::runtime {

enum class DType : std::uint8_t { f32, i32, i64 };

struct TensorBytes {
  std::string name;
  DType dtype = DType::f32;
  std::vector<Index> shape;
  std::string bytes;
};

// Throws std::runtime_error("... what is wrong, where") on anything malformed.
std::vector<TensorBytes> read_safetensors(std::string_view file);
std::string write_safetensors(const std::vector<TensorBytes>& tensors,
                              const std::vector<std::pair<std::string, std::string>>& metadata = {});

TensorBytes to_bytes(const NamedTensor& tensor);
NamedTensor to_floats(const TensorBytes& tensor);

}  // namespace seeksim::runtime
