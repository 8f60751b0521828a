#include "harness/export/saved_files.h"

#include <cstring>

#include "harness/input/files.h"
#include "harness/input/problem.h"
#include "runtime/files/safetensors.h"
#include "runtime/recovery/train.h"

namespace seeksim::harness {

using runtime::TensorBytes;

void save_tensors(const std::string& file, const std::vector<runtime::NamedTensor>& tensors, const std::string& what,
                  const std::string& option) {
  if (tensors.empty())
    throw BadInput(option + ' ' + file, "there is nothing to save", "The run did not get that far (see above).");
  std::vector<TensorBytes> all;
  for (const runtime::NamedTensor& tensor : tensors) all.push_back(to_bytes(tensor));
  write_file(file, runtime::write_safetensors(all, {{"format", "pt"}, {"made_by", "seeksim"}, {"what", what}}));
}

void save_initial(const std::string& file, const runtime::Definition& definition) {
  save_tensors(file, runtime::initial_weights(definition), "initial weights", "--save-initial");
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
