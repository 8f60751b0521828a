// `seeksim analyse`: dumps of flight recorders, or logs, and what they tell.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/analyse/story.h"

namespace seeksim::harness {

// What files tell. Dumps of seeksim's own runs say more than a story holds: they have been told already.
struct Analysed {
  std::optional<Story> story;  // none: the dumps are seeksim's
  std::string own_text, own_json;
};

// paths: folders and files. Throws BadInput.
Analysed analyse(const std::vector<std::string>& paths);

}  // namespace seeksim::harness
