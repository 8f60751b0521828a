// Reading and writing safetensors. A weights file comes from anywhere, so the reader believes nothing: every length is
// checked before it is used, and each refusal says what is wrong with which tensor.
#include "runtime/files/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <utility>

#include "kernels/cast.h"
#include "runtime/files/bounded_json.h"
#include "runtime/seams/bounded.h"

namespace seeksim::runtime {
namespace {

using json = nlohmann::json;

constexpr std::uint64_t kHeaderMax = 100'000'000;  // as the format's own library
constexpr int kLevels = 3;                         // {name: {"shape": [...]}}
constexpr std::size_t kDimensionsMax = 8;
constexpr std::uint64_t kElementsMax = std::uint64_t(1) << 57;  // a product past 2^60 bytes cannot be a file

[[noreturn]] void refuse(const std::string& what) { throw std::runtime_error("safetensors: " + what); }

struct DTypeInfo {
  const char* name;
  std::size_t bytes;
  ElementType element;
};
constexpr std::array<DTypeInfo, 5> kDTypes = {{{"F32", 4, ElementType::f32},
                                               {"I32", 4, ElementType::i32},
                                               {"I64", 8, ElementType::i64},
                                               {"F16", 2, ElementType::f16},
                                               {"BF16", 2, ElementType::bf16}}};

std::uint64_t little_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

json read_header(std::string_view file, std::uint64_t file_bytes) {
  const std::uint64_t front = safetensors_front_bytes(file, file_bytes);
  const std::string_view text = file.substr(8, front - 8);
  if (text.size() != front - 8) refuse("the header is not there as a whole. Is the file truncated?");
  if (text.empty() || text.front() != '{') refuse("the header does not begin with '{'");
  json header = parse_bounded<json>(text, {"safetensors: the header", kHeaderMax, kLevels});
  if (!header.is_object()) refuse("the header is not a JSON object");
  return header;
}

std::uint64_t natural(const json& value, const std::string& name, const char* what) {
  const auto n = whole_number<std::uint64_t>(value);
  if (!n) refuse(quoted(name) + ": " + what + " holds something else than whole numbers >= 0");
  return *n;
}

DType read_dtype(const json& info, const std::string& name) {
  if (!info.contains("dtype") || !info["dtype"].is_string()) refuse(quoted(name) + " has no dtype");
  const std::string dtype = info["dtype"].get<std::string>();
  for (std::size_t i = 0; i < kDTypes.size(); ++i) {
    if (dtype == kDTypes[i].name) return DType(i);
  }
  refuse(quoted(name) + " has dtype " + quoted(dtype) +
         "; F32, F16, BF16, I32 and I64 can be read. Convert it to float32 first");
}

// Elements of the shape.
std::uint64_t read_shape(const json& info, const std::string& name, std::vector<Index>& shape) {
  if (!info.contains("shape") || !info["shape"].is_array()) refuse(quoted(name) + " has no shape");
  if (info["shape"].size() > kDimensionsMax) refuse(quoted(name) + " has more than 8 dimensions");
  std::uint64_t elements = 1;
  bool empty = false;
  for (const json& dimension : info["shape"]) {
    const std::uint64_t n = natural(dimension, name, "shape");
    empty = empty || n == 0;
    const auto so_far = product(elements, std::max<std::uint64_t>(n, 1));
    if (n > kElementsMax || !so_far || *so_far > kElementsMax)
      refuse(quoted(name) + " is larger than any file: its shape overflows");
    elements = *so_far;
    shape.push_back(static_cast<Index>(n));
  }
  return empty ? 0 : elements;
}

TensorInfo read_entry(const std::string& name, const json& info, std::uint64_t data_bytes) {
  if (!info.is_object()) refuse(quoted(name) + " is not described by an object");
  for (const auto& [key, unused] : info.items()) {
    if (key != "dtype" && key != "shape" && key != "data_offsets")
      refuse(quoted(name) + " has an unknown key " + quoted(key));
  }
  TensorInfo entry;
  entry.name = name;
  entry.dtype = read_dtype(info, name);
  const std::uint64_t bytes = read_shape(info, name, entry.shape) * size_of(entry.dtype);
  if (!info.contains("data_offsets") || !info["data_offsets"].is_array() || info["data_offsets"].size() != 2) {
    refuse(quoted(name) + " has no data_offsets [begin, end]");
  }
  entry.begin = natural(info["data_offsets"][0], name, "data_offsets");
  entry.end = natural(info["data_offsets"][1], name, "data_offsets");
  if (entry.begin > entry.end) refuse(quoted(name) + " ends before it begins");
  if (entry.end > data_bytes) {
    refuse(quoted(name) + " ends at byte " + std::to_string(entry.end) + " of the data, which has " +
           std::to_string(data_bytes) + ". Is the file truncated?");
  }
  if (entry.end - entry.begin != bytes) {
    refuse(quoted(name) + " holds " + std::to_string(entry.end - entry.begin) + " bytes, its shape and dtype need " +
           std::to_string(bytes));
  }
  return entry;
}

// No holes, no overlaps, nothing left over: what the format demands, so that a file hides nothing.
void check_cover(std::vector<TensorInfo>& entries, std::uint64_t data_bytes) {
  std::sort(entries.begin(), entries.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  std::uint64_t at = 0;
  for (const TensorInfo& entry : entries) {
    if (entry.begin < at) refuse(quoted(entry.name) + " overlaps the tensor before it");
    if (entry.begin > at)
      refuse("there is a hole of " + std::to_string(entry.begin - at) + " bytes before " + quoted(entry.name));
    at = entry.end;
  }
  if (at != data_bytes) refuse(std::to_string(data_bytes - at) + " bytes after the last tensor belong to none");
}

void check_metadata(const json& metadata) {
  if (!metadata.is_object()) refuse("'__metadata__' is not an object");
  for (const auto& [key, value] : metadata.items()) {
    if (!value.is_string()) refuse("'__metadata__': " + quoted(key) + " is not a string");
  }
}

}  // namespace

std::size_t size_of(DType dtype) { return kDTypes[std::size_t(dtype)].bytes; }
const char* name(DType dtype) { return kDTypes[std::size_t(dtype)].name; }

DType dtype_of(ElementType type) {
  for (std::size_t i = 0; i < kDTypes.size(); ++i) {
    if (kDTypes[i].element == type) return DType(i);
  }
  refuse("cannot write elements of the type " + std::string(name(type)));
}

std::uint64_t safetensors_front_bytes(std::string_view first_eight, std::uint64_t file_bytes) {
  if (first_eight.size() < 8 || file_bytes < 8) {
    refuse("the file is " + std::to_string(std::min<std::uint64_t>(first_eight.size(), file_bytes)) +
           " bytes long; even an empty one has 10. Is it truncated?");
  }
  const std::uint64_t length = little_endian(first_eight.substr(0, 8));
  if (length > kHeaderMax) {
    refuse("the header claims " + std::to_string(length) + " bytes, the format allows " + std::to_string(kHeaderMax) +
           ". Is this a safetensors file?");
  }
  if (length > file_bytes - 8) {
    refuse("the header claims " + std::to_string(length) + " bytes, the file has " + std::to_string(file_bytes - 8) +
           " after the length. Is it truncated?");
  }
  return 8 + length;
}

std::vector<TensorInfo> list_safetensors(std::string_view file, std::uint64_t file_bytes) {
  const json header = read_header(file, file_bytes);
  const std::uint64_t front = safetensors_front_bytes(file, file_bytes), data_bytes = file_bytes - front;
  std::vector<TensorInfo> entries;
  for (const auto& [name, info] : header.items()) {
    if (name == "__metadata__") {
      check_metadata(info);
    } else {
      entries.push_back(read_entry(name, info, data_bytes));
    }
  }
  check_cover(entries, data_bytes);
  for (TensorInfo& entry : entries) {
    entry.begin += front;
    entry.end += front;
  }
  return entries;
}

std::vector<TensorBytes> read_safetensors(std::string_view file) {
  std::vector<TensorBytes> tensors;
  for (TensorInfo& entry : list_safetensors(file, file.size())) {
    TensorBytes& tensor = tensors.emplace_back();
    tensor.name = std::move(entry.name);
    tensor.dtype = entry.dtype;
    tensor.shape = std::move(entry.shape);
    tensor.bytes.assign(file.substr(entry.begin, entry.end - entry.begin));
  }
  return tensors;
}

std::string safetensors_front(std::vector<TensorInfo>& tensors,
                              const std::vector<std::pair<std::string, std::string>>& metadata) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    const auto wide_a = size_of(a.dtype), wide_b = size_of(b.dtype);
    return wide_a != wide_b ? wide_a > wide_b : a.name < b.name;
  });
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  for (const auto& [key, value] : metadata) header["__metadata__"][key] = value;
  std::set<std::string_view> names = {"__metadata__"};
  std::uint64_t at = 0;
  for (TensorInfo& tensor : tensors) {
    if (!names.insert(tensor.name).second)
      refuse("cannot write two tensors named " + quoted(std::as_const(tensor.name)));
    std::uint64_t elements = 1;
    for (const Index n : tensor.shape) elements *= static_cast<std::uint64_t>(n);
    tensor.begin = at;
    at = tensor.end = at + elements * size_of(tensor.dtype);
    header[tensor.name] = {
        {"dtype", name(tensor.dtype)}, {"shape", tensor.shape}, {"data_offsets", {tensor.begin, tensor.end}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // so that the data are aligned
  std::string front;
  for (int i = 0; i < 8; ++i) front += static_cast<char>(text.size() >> (8 * i) & 0xff);
  front += text;
  for (TensorInfo& tensor : tensors) {
    tensor.begin += front.size();
    tensor.end += front.size();
  }
  return front;
}

std::string write_safetensors(const std::vector<TensorBytes>& tensors,
                              const std::vector<std::pair<std::string, std::string>>& metadata) {
  std::vector<TensorInfo> order;
  std::map<std::string_view, const TensorBytes*> by_name;
  for (const TensorBytes& tensor : tensors) {
    order.push_back({tensor.name, tensor.dtype, tensor.shape, 0, 0});
    by_name[tensor.name] = &tensor;
  }
  std::string file = safetensors_front(order, metadata);
  file.reserve(order.empty() ? file.size() : order.back().end);
  for (const TensorInfo& info : order) {
    const TensorBytes& tensor = *by_name.at(info.name);
    if (tensor.bytes.size() != info.end - info.begin)
      refuse("cannot write " + quoted(tensor.name) + ": its bytes do not fit its shape");
    file += tensor.bytes;
  }
  return file;
}

TensorBytes to_bytes(const NamedTensor& tensor) {
  TensorBytes out{tensor.name, DType::f32, tensor.shape, std::string(tensor.values.size() * sizeof(float), '\0')};
  if (!tensor.values.empty()) std::memcpy(out.bytes.data(), tensor.values.data(), out.bytes.size());
  return out;
}

NamedTensor to_floats(const TensorBytes& tensor) {
  NamedTensor out{tensor.name, tensor.shape, std::vector<float>(tensor.bytes.size() / size_of(tensor.dtype))};
  const auto widen = [&](auto like) {
    using T = decltype(like);
    std::vector<T> held(out.values.size());
    if (!held.empty()) std::memcpy(held.data(), tensor.bytes.data(), tensor.bytes.size());
    kernels::widen<T>(kernels::Lane{}, {held.data(), Index(held.size())}, {out.values.data(), Index(held.size())});
  };
  switch (tensor.dtype) {
    case DType::f32:
      widen(float{});
      break;
    case DType::f16:
      widen(kernels::fp16{});
      break;
    case DType::bf16:
      widen(kernels::bf16{});
      break;
    default:
      refuse(quoted(tensor.name) + " has dtype " + name(tensor.dtype) + " where F32 is needed");
  }
  return out;
}

}  // namespace seeksim::runtime
