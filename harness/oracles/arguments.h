// What may stand behind the name of a check: each function says what is wrong with an argument, or nothing. ranks: 0
// when unknown.
#pragma once

#include <string>
#include <vector>

namespace seeksim::harness {

std::vector<std::string> split(const std::string& text);            // at commas
std::vector<std::string> parts_of_layout(const std::string& text);  // likewise, without the spaces

std::string want_none(const std::string& text, int ranks);
std::string want_bitwise(const std::string& text, int ranks);
std::string want_ends(const std::string& text, int ranks);
std::string want_natural(const std::string& text, int ranks);
std::string want_layout(const std::string& text, int ranks);
std::string want_step(const std::string& text, int ranks);
std::string want_number(const std::string& text, int ranks);
std::string want_ranks(const std::string& text, int ranks);
std::string want_culprits(const std::string& text, int ranks);

}  // namespace seeksim::harness
