#include "harness/loading/features/weights_file.h"

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <set>

#include "harness/input/files.h"
#include "harness/input/json_text.h"
#include "harness/input/problem.h"
#include "runtime/files/safetensors.h"

namespace seeksim::harness {
namespace {

constexpr const char* kOne = "/model.safetensors";
constexpr const char* kIndex = "/model.safetensors.index.json";
constexpr std::size_t kShardsMax = 1000;

// tensor -> the shard that holds it. A stranger wrote the index: no shard lies elsewhere.
std::map<std::string, std::string> read_index(const std::string& path, const std::string& place) {
  const Json index = parse_json(read_file(path, kJsonBytesMax * 16, place), path).value;
  const Json map = index.is_object() ? index.value("weight_map", Json()) : Json();
  if (!map.is_object() || map.empty())
    throw BadInput(path, "there is no \"weight_map\"", "An index names the shard of each tensor.");
  std::map<std::string, std::string> shards;
  for (const auto& [tensor, shard] : map.items()) {
    const std::string name = shard.is_string() ? shard.get<std::string>() : "";
    if (name.empty() || name.find('/') != std::string::npos || name.find('\0') != std::string::npos || name[0] == '.')
      throw BadInput(path, fmt::format("the shard of {} is not the name of a file beside it", in_quotes(tensor)),
                     "For example model-00001-of-00002.safetensors.");
    shards[tensor] = name;
  }
  return shards;
}

std::string merged(const std::string& index, const std::string& place) {
  const std::map<std::string, std::string> shard_of = read_index(index, place);
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : shard_of) shards.insert(shard);
  if (shards.size() > kShardsMax)
    throw BadInput(index, fmt::format("it names {} shards; at most {} are read", shards.size(), kShardsMax), "");
  const std::string folder = index.substr(0, index.rfind('/') + 1);
  std::vector<runtime::TensorBytes> all;
  std::uint64_t left = kWeightBytesMax;
  for (const std::string& shard : shards) {
    const std::string bytes = read_file(folder + shard, left, index);
    left -= bytes.size();
    for (runtime::TensorBytes& tensor : runtime::read_safetensors(bytes)) {
      const auto known = shard_of.find(tensor.name);
      if (known == shard_of.end() || known->second != shard)
        throw BadInput(folder + shard,
                       fmt::format("it holds {}, which the index has elsewhere or not at all", in_quotes(tensor.name)),
                       "Take index and shards from one model.");
      all.push_back(std::move(tensor));
    }
  }
  if (all.size() != shard_of.size())
    throw BadInput(index, fmt::format("it names {} tensors, and its shards hold {}", shard_of.size(), all.size()),
                   "Take index and shards from one model.");
  return runtime::write_safetensors(all);
}

}  // namespace

std::string read_weights_file(const std::string& path, const std::string& place) {
  std::string file = path;
  if (std::error_code none; std::filesystem::is_directory(path, none)) {
    file = path + kOne;
    if (!std::filesystem::exists(file, none)) file = path + kIndex;
    if (!std::filesystem::exists(file, none))
      throw BadInput(place, fmt::format("{} has no model.safetensors and no index of shards", in_quotes(path)),
                     "transformers writes them with save_pretrained.");
  }
  return file.ends_with(".json") ? merged(file, place) : read_file(file, kWeightBytesMax, place);
}

}  // namespace seeksim::harness
