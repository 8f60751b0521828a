// The safetensors format: 8 bytes of header length (little endian), a JSON header {name: {dtype, shape, data_offsets}},
// then the data. Strict on reading: hostile headers, overlaps, holes and short files are errors with the reason, never
// a crash. Reading and writing are on byte strings; files are the caller's.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/files/named_tensor.h"

namespace seeksim::runtime {

enum class DType : std::uint8_t { f32, i32, i64, f16, bf16 };
std::size_t size_of(DType dtype);
const char* name(DType dtype);     // as the format writes it
DType dtype_of(ElementType type);  // of f32, f16, bf16, i32, i64

struct TensorBytes {
  std::string name;
  DType dtype = DType::f32;
  std::vector<Index> shape;
  std::string bytes;
};

// A tensor without its data.
struct TensorInfo {
  std::string name;
  DType dtype = DType::f32;
  std::vector<Index> shape;
  std::uint64_t begin = 0;  // of its bytes, in the file
  std::uint64_t end = 0;
};

// What a file holds, in the order of its bytes. Throws as read_safetensors does. file_bytes: how long the whole file
// is, of which `file` may be no more than the length and the header.
std::vector<TensorInfo> list_safetensors(std::string_view file, std::uint64_t file_bytes);
// How long the front of a file is: the length and the header. From its first 8 bytes.
std::uint64_t safetensors_front_bytes(std::string_view first_eight, std::uint64_t file_bytes);
// What stands before the data of a file with such tensors; sets their begin and end, and puts them into the order of
// the format: wider elements first, then by name.
std::string safetensors_front(std::vector<TensorInfo>& tensors,
                              const std::vector<std::pair<std::string, std::string>>& metadata = {});

// Throws std::runtime_error("... what is wrong, where") on anything malformed.
std::vector<TensorBytes> read_safetensors(std::string_view file);
std::string write_safetensors(const std::vector<TensorBytes>& tensors,
                              const std::vector<std::pair<std::string, std::string>>& metadata = {});

TensorBytes to_bytes(const NamedTensor& tensor);
// tensor: f32, f16 or bf16.
NamedTensor to_floats(const TensorBytes& tensor);

}  // namespace seeksim::runtime
