// Weights as Hugging Face keeps them: one file, or several with an index.
#pragma once

#include <string>

namespace seeksim::harness {

inline constexpr std::uint64_t kWeightBytesMax = std::uint64_t(8) << 30;

// The bytes of one safetensors file with all tensors. path: such a file; a model.safetensors.index.json, whose shards
// lie beside it; or a folder with the one or the other. place: the key or option that named it, for messages. Throws
// BadInput, and std::runtime_error where a file is no safetensors file.
std::string read_weights_file(const std::string& path, const std::string& place);

}  // namespace seeksim::harness
