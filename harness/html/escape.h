// Text for HTML. Whatever a page shows came from a stranger's file, and passes through here.
#pragma once

#include <string>
#include <string_view>

#include "harness/input/json.h"

namespace seeksim::harness::html {

// For element content and for attributes in double quotes. Bytes that are no UTF-8, and control characters other than
// newlines and tabs, become U+FFFD.
std::string escaped(std::string_view text);

// A value of a report, escaped: a string without its quotes, a number with the digits of the JSON report, null as a
// dash, lists and objects as JSON.
std::string shown(const Json& value);

// The number behind a value: NaN where it is none, or the report's "NaN", "Infinity" or "-Infinity".
double number_of(const Json& value);

// A member, or null.
const Json& member(const Json& object, const char* key);
// A member that is a string; else empty.
std::string text_member(const Json& object, const char* key);

// "1.5 MB", for people; the exact number stands beside it.
std::string bytes_shown(const Json& bytes);
// "12.3 ms", with at most so many digits.
std::string seconds_shown(double s, int digits = 4);

}  // namespace seeksim::harness::html
