// JSON pointers into a document that is being changed.
#pragma once

#include <string>

#include "harness/input/json.h"

#include <nlohmann/json.hpp>

namespace seeksim::harness {

// Where a scenario has DeepSpeed's configuration.
inline constexpr const char* kSection = "/deepspeed";

inline bool has_at(const Json& json, const std::string& pointer) { return json.contains(Json::json_pointer(pointer)); }

// The member is there, or nothing happens.
inline void erase_at(Json& json, const std::string& pointer) {
  const Json::json_pointer whole(pointer);
  if (json.contains(whole)) json.at(whole.parent_pointer()).erase(whole.back());
}

}  // namespace seeksim::harness
