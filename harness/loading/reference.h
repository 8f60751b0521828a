// What is published of the keys: scenarios/schema.json for editors, docs/reference/keys.md for people. Both are made
// from the rows; tests hold the stored files to them.
#pragma once

#include <string>

#include "harness/input/json.h"

namespace seeksim::harness {

// scenarios/schema.json: a line for each key.
std::string schema_text();
// Any other schema, likewise.
std::string schema_text(const Json& schema);

// The keys of a schema as Markdown: a list for the top, under this title, and one for each object below it.
std::string key_sections(const Json& schema, const std::string& title);
// docs/reference/keys.md.
std::string keys_reference();

}  // namespace seeksim::harness
