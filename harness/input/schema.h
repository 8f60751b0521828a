// scenarios/schema.json at work. valijson (a full validator) decides whether a scenario is well formed; explain() walks
// the same schema to say what is wrong in words that help: unknown key with its near neighbours, type found and type
// wanted.
#pragma once

#include <string>
#include <vector>

#include "harness/input/json.h"

namespace seeksim::harness {

extern const char* const kScenarioSchema;  // scenarios/schema.json, built in

// Parsed at the first call.
const Json& scenario_schema();

struct SchemaProblem {
  std::string pointer;  // of the value (of the unknown member, for unknown keys)
  std::string what;
  std::string next;
};

// All violations of what our schema uses of draft-07: type, enum, properties, required, additionalProperties, items,
// bounds.
std::vector<SchemaProblem> explain(const Json& schema, const Json& value);

// valijson's verdict on the whole of draft-07, by pointer; empty: accepted.
std::vector<SchemaProblem> validate(const Json& schema, const Json& value);

// What `seeksim list keys` prints: one row a key.
struct KeyInfo {
  std::string path;  // "faults.N.rank"
  std::string type;
  std::string standard;  // its default as JSON, "required", or empty
  std::string text;
};
std::vector<KeyInfo> schema_keys(const Json& schema);

}  // namespace seeksim::harness
