// What is published of the keys: scenarios/schema.json for editors, docs/reference/keys.md for people. Both are made
// from the rows; tests hold the stored files to them.
#pragma once

#include <string>

namespace seeksim::harness {

// scenarios/schema.json: a line for each key.
std::string schema_text();

// docs/reference/keys.md.
std::string keys_reference();

}  // namespace seeksim::harness
