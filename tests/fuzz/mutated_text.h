// Mutations of texts. libFuzzer's own know bytes only, and seldom put a whole number, word or list in another one's
// place.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace seeksim::fuzz {

// The text with one of its numbers, words or bracketed lists changed: to a number at the end of a type, to another one
// of the same text, nested in up to 64 levels, doubled or gone. As it is where it has none of them.
std::string mutated_text(std::string_view text, unsigned seed);

}  // namespace seeksim::fuzz
