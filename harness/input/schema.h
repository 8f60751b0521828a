// A schema at work: explain() walks it beside a value, decides whether the value is well formed, and says what is wrong
// in words that help: unknown key with its near neighbours, type found and type wanted.
#pragma once

#include <string>
#include <vector>

#include "harness/input/json.h"

namespace seeksim::harness {

struct SchemaProblem {
  std::string pointer;  // of the value (of the unknown member, for unknown keys)
  std::string what;
  std::string next;
};

// Beside an "enum": its reader says what is wrong with other words, and better. For editors the enum says what there
// is.
inline constexpr const char* kReaderSays = "x-reader-says";

// All violations of what shapes (shape.h) say of draft-07: type, enum, properties, required, additionalProperties,
// items, bounds and lengths. Empty: accepted.
std::vector<SchemaProblem> explain(const Json& schema, const Json& value);

// What `seeksim list keys` prints: one row a key.
struct KeyInfo {
  std::string path;  // "faults.N.rank"
  std::string type;
  std::string limits;    // "1 to 8", "above 0"; empty: none
  std::string standard;  // its default as JSON, "required", or empty
  std::string text;
  bool decides_bits = false;  // kDecidesBits (keys.h)
};
std::vector<KeyInfo> schema_keys(const Json& schema);

}  // namespace seeksim::harness
