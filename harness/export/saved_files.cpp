#include "harness/export/saved_files.h"

#include <fmt/format.h>

#include <filesystem>

#include "harness/export/hugging_face_config.h"
#include "harness/input/files.h"
#include "harness/input/json_text.h"
#include "harness/input/problem.h"
#include "kernels/cast.h"
#include "runtime/files/safetensors.h"
#include "runtime/recovery/train.h"

namespace seeksim::harness {

using runtime::TensorBytes;

namespace {

std::vector<std::pair<std::string, std::string>> metadata(const std::string& what) {
  return {{"format", "pt"}, {"made_by", "seeksim"}, {"what", what}};
}

// To nearest even, as torch rounds.
TensorBytes rounded(const runtime::NamedTensor& tensor, runtime::ElementType dtype) {
  TensorBytes bytes = to_bytes(tensor);
  if (dtype == runtime::ElementType::f32) return bytes;
  const auto narrow = [&](auto like) {
    using T = decltype(like);
    std::vector<T> held(tensor.values.size());
    kernels::narrow<T>(kernels::Lane{}, {tensor.values.data(), runtime::Index(held.size())},
                       {held.data(), runtime::Index(held.size())});
    bytes.bytes.assign(reinterpret_cast<const char*>(held.data()), held.size() * sizeof(T));
  };
  dtype == runtime::ElementType::bf16 ? narrow(kernels::bf16{}) : narrow(kernels::fp16{});
  bytes.dtype = runtime::dtype_of(dtype);
  return bytes;
}

const char* torch_name(runtime::ElementType dtype) {
  return dtype == runtime::ElementType::bf16 ? "bfloat16" : dtype == runtime::ElementType::f16 ? "float16" : "float32";
}

// In the given order, each shard as full as it may be; a larger tensor has one of its own.
std::vector<std::vector<TensorBytes>> cut(std::vector<TensorBytes> all, std::uint64_t shard_bytes) {
  std::vector<std::vector<TensorBytes>> shards(1);
  std::uint64_t filled = 0;
  for (TensorBytes& tensor : all) {
    if (!shards.back().empty() && filled + tensor.bytes.size() > shard_bytes) {
      shards.emplace_back();
      filled = 0;
    }
    filled += tensor.bytes.size();
    shards.back().push_back(std::move(tensor));
  }
  return shards;
}

void save_folder(const SavedWeights& how, const runtime::ModelPlan& model, std::vector<TensorBytes> all,
                 const std::string& what) {
  make_folder(how.path, how.option);
  const std::string folder = how.path.ends_with('/') ? how.path : how.path + '/';
  const Json config = hugging_face_config(model, torch_name(how.dtype));
  if (!config.is_null()) write_file(folder + "config.json", dump(config));
  // GPT2LMHeadModel's own names.
  if (!model.llama() && model.own == nullptr)
    for (TensorBytes& tensor : all)
      if (tensor.name != "lm_head.weight" && tensor.name != "logit_scale") tensor.name = "transformer." + tensor.name;
  const std::vector<std::vector<TensorBytes>> shards = cut(std::move(all), how.shard_bytes);
  if (shards.size() == 1) {
    write_file(folder + "model.safetensors", runtime::write_safetensors(shards[0], metadata(what)));
    return;
  }
  std::uint64_t total = 0;
  Json map = Json::object();
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    for (const TensorBytes& tensor : shards[i]) {
      map[tensor.name] = name;
      total += tensor.bytes.size();
    }
    write_file(folder + name, runtime::write_safetensors(shards[i], metadata(what)));
  }
  write_file(folder + "model.safetensors.index.json",
             dump({{"metadata", {{"total_size", total}}}, {"weight_map", std::move(map)}}));
}

}  // namespace

bool is_folder_to_save(const std::string& path) {
  std::error_code none;
  return path.ends_with('/') || std::filesystem::is_directory(path, none);
}

void save_weights(const SavedWeights& how, const runtime::ModelPlan& model,
                  const std::vector<runtime::NamedTensor>& tensors, const std::string& what) {
  if (tensors.empty())
    throw BadInput(how.option + ' ' + how.path, "there is nothing to save",
                   "The run did not get that far (see above).");
  std::vector<TensorBytes> all;
  for (const runtime::NamedTensor& tensor : tensors) all.push_back(rounded(tensor, how.dtype));
  if (!is_folder_to_save(how.path)) {
    write_file(how.path, runtime::write_safetensors(all, metadata(what)));
    return;
  }
  save_folder(how, model, std::move(all), what);
}

void save_tensors(const std::string& file, const std::vector<runtime::NamedTensor>& tensors, const std::string& what,
                  const std::string& option) {
  if (tensors.empty())
    throw BadInput(option + ' ' + file, "there is nothing to save", "The run did not get that far (see above).");
  std::vector<TensorBytes> all;
  for (const runtime::NamedTensor& tensor : tensors) all.push_back(to_bytes(tensor));
  write_file(file, runtime::write_safetensors(all, metadata(what)));
}

void save_batches(const std::string& file, const runtime::Definition& definition) {
  TensorBytes tokens;
  tokens.name = "tokens";
  tokens.dtype = runtime::DType::i32;
  tokens.shape = {runtime::Index(definition.steps), definition.global_batch, definition.model.context + 1};
  for (std::int64_t step = 0; step < definition.steps; ++step) {
    const std::vector<std::int32_t> batch = runtime::step_tokens(definition, step);
    tokens.bytes.append(reinterpret_cast<const char*>(batch.data()), batch.size() * sizeof(batch[0]));
  }
  write_file(file, runtime::write_safetensors(
                       {tokens}, {{"made_by", "seeksim"}, {"what", "token ids, (steps, batch, context + 1)"}}));
}

}  // namespace seeksim::harness
