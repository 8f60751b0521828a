// --save-*: what lets a user check a run elsewhere, as safetensors under Hugging Face's names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/detect/observer.h"
#include "runtime/plan/plan.h"

namespace seeksim::harness {

// Weights, and how they are written.
struct SavedWeights {
  std::string path;                                        // a file; a folder, where it ends with '/' or is one
  runtime::ElementType dtype = runtime::ElementType::f32;  // f32, f16 or bf16: rounded to nearest even
  std::uint64_t shard_bytes = 5'000'000'000;               // of a folder: larger models are several files with an index
  std::string option;                                      // for messages
};
bool is_folder_to_save(const std::string& path);

// All throw BadInput when a file cannot be written, or there is nothing to save: the run did not get there.

// A file of tensors; or a folder as transformers' save_pretrained leaves it: config.json, and model.safetensors or
// shards with model.safetensors.index.json.
void save_weights(const SavedWeights& how, const runtime::ModelPlan& model,
                  const std::vector<runtime::NamedTensor>& tensors, const std::string& what);
// "tokens", int32, (steps, batch, context + 1).
void save_batches(const std::string& file, const runtime::Definition& definition);
void save_tensors(const std::string& file, const std::vector<runtime::NamedTensor>& tensors, const std::string& what,
                  const std::string& option);

}  // namespace seeksim::harness
