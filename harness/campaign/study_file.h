// Studies: files that say what a campaign is like and which policies to compare.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "harness/campaign/plan.h"
#include "harness/input/json.h"

namespace seeksim::harness::campaign {

// scenarios/studies/study.schema.json, made from the rows of the keys.
const Json& study_schema();

// Throws BadInput with every problem. sets: "key.path=value". row: of its sweep, applied last; the study has no sweep
// then.
Study load_study(const std::string& file, const std::vector<std::string>& sets, const Settings* row = nullptr);
Study load_study_text(std::string_view text, const std::string& file, const std::vector<std::string>& sets,
                      const Settings* row = nullptr);

}  // namespace seeksim::harness::campaign
