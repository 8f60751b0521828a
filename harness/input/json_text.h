// Strict JSON with line numbers. nlohmann/json holds the values, but its parser takes the last of duplicate keys, nests
// without limit and forgets where values stood: it keeps their positions only from 3.12 on, and Debian 12 has 3.11.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "harness/input/json.h"
#include "harness/input/problem.h"

#include <nlohmann/json.hpp>

namespace seeksim::harness {

struct JsonText {
  Json value;
  std::map<std::string, int> lines;  // JSON pointer -> line of the value (of the key, for members)
  std::vector<Problem> problems;     // duplicate keys
};

inline constexpr std::size_t kJsonBytesMax = 1 << 20;
inline constexpr int kJsonDepthMax = 64;

// Throws BadInput naming `file`, line and column at the first thing that is not JSON (RFC 8259, UTF-8). A number
// written with a point or an exponent that is whole (5e8, as ds_config files have it) is kept as an integer.
JsonText parse_json(std::string_view text, const std::string& file);

// One value, for --set. Throws BadInput.
Json parse_json_value(std::string_view text, const std::string& place);

// No overlong forms, no surrogates. What is not UTF-8 cannot be written as JSON.
bool is_utf8(std::string_view text);

// JSON as files hold it: indented by two, valid UTF-8 whatever the strings hold, with a newline at the end.
std::string dump(const Json& json);

// A number as reports write it: what JSON has no number for becomes "NaN", "Infinity" or "-Infinity".
Json number_or_word(double value);

// One step of a JSON pointer: "~" and "/" escaped.
std::string pointer_step(std::string_view key);
// "/faults/0/rank" -> "faults.0.rank"
std::string dotted(std::string_view pointer);

}  // namespace seeksim::harness
