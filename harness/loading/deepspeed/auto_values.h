// "auto" in a ds_config.json: Hugging Face's Trainer writes its own arguments there, and so does seeksim, with the
// Trainer's defaults or what "auto" of the scenario (--auto lr=1e-4,batch=4) says in their place.
#pragma once

#include <string>
#include <vector>

#include "harness/input/keys.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

// "auto" of a scenario: arguments of the Trainer, by short names.
const Keys<Scenario>& auto_keys();

// "lr=1e-4,batch=4" -> {"auto.lr=1e-4", "auto.batch=4"}, by short names or the Trainer's own (learning_rate). Throws
// BadInput.
std::vector<std::string> sets_of_auto(const std::vector<std::string>& options);

// Fills every "auto" of the "deepspeed" section, or removes it where DeepSpeed's default or arithmetic takes over.
// notes: one line that says what was filled by what. problems: an argument that fills nothing.
void fill_auto(Document& document, std::vector<std::string>& notes, std::vector<Problem>& problems);

}  // namespace seeksim::harness
