// --save-*: what lets a user check a run elsewhere, as safetensors under Hugging Face's GPT-2 names.
#pragma once

#include <string>
#include <vector>

#include "runtime/detect/observer.h"
#include "runtime/plan/plan.h"

namespace seeksim::harness {

// All throw BadInput when the file cannot be written.
void save_initial(const std::string& file, const runtime::Definition& definition);
// "tokens", int32, (steps, batch, context + 1).
void save_batches(const std::string& file, const runtime::Definition& definition);
// Also throws when there is nothing to save: the run did not get there.
void save_tensors(const std::string& file, const std::vector<runtime::NamedTensor>& tensors, const std::string& what,
                  const std::string& option);

}  // namespace seeksim::harness
