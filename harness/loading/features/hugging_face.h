// A model as Hugging Face's config.json describes it, and published models by name.
#pragma once

#include <string>
#include <vector>

#include "harness/input/document.h"

namespace seeksim::harness {

struct ModelForm {
  std::vector<std::string> notes;
  std::vector<Problem> problems;  // what this program's models do not have, by the key that asks for it
};

// Changes the "model" section of the document where it is such a config (it has a "model_type", or sizes under
// transformers' names) into the keys that rows read. Keys of seeksim's own beside it win: model.context=512. What is
// missing has the default of transformers' class, for files hold only what differs from it. own_keys: the names of
// those of seeksim's. sizes_only: the run has no
// values, so that what changes numbers but no size is a note instead of a problem.
ModelForm bring_model_to_form(Document& document, bool sizes_only, const std::vector<std::string>& own_keys);

// Models as their authors published them, as a "model" section.
struct NamedModel {
  const char* name;
  Json (*model)();
};
const std::vector<NamedModel>& named_models();
// The name as the table above would have it: without an organisation, "-hf" or "-Instruct", in small letters.
std::string plain_model_name(const std::string& name);

}  // namespace seeksim::harness
