#include "tests/fuzz/mutated_text.h"

#include <algorithm>
#include <array>
#include <random>

namespace seeksim::fuzz {
namespace {

constexpr std::array<std::string_view, 14> kValues = {"0",
                                                      "-1",
                                                      "1",
                                                      "2147483647",
                                                      "2147483648",
                                                      "4294967296",
                                                      "9223372036854775806",
                                                      "9223372036854775807",
                                                      "-9223372036854775808",
                                                      "18446744073709551615",
                                                      "1e300",
                                                      "1e999",
                                                      "null",
                                                      "true"};

bool is_of_number(char c) { return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E'; }
bool begins_token(char c) { return (c >= '0' && c <= '9') || c == '-' || c == '"' || c == '[' || c == '{'; }

std::size_t end_of_word(std::string_view text, std::size_t begin) {
  std::size_t at = begin + 1;
  while (at < text.size() && text[at] != '"') at += text[at] == '\\' ? 2 : 1;
  return std::min(text.size(), at + 1);
}

// Past the end of the token that begins there.
std::size_t end_of_token(std::string_view text, std::size_t begin) {
  if (text[begin] == '"') return end_of_word(text, begin);
  std::size_t at = begin;
  if (text[begin] != '[' && text[begin] != '{') {
    while (at < text.size() && is_of_number(text[at])) ++at;
    return at;
  }
  int levels = 0;
  while (at < text.size()) {
    if (text[at] == '[' || text[at] == '{') ++levels;
    if ((text[at] == ']' || text[at] == '}') && --levels == 0) return at + 1;
    at = text[at] == '"' ? end_of_word(text, at) : at + 1;
  }
  return text.size();
}

struct Token {
  std::size_t begin = 0;
  std::size_t end = 0;
};

// The first token from a random place on; an empty one where none follows.
Token some_token(std::string_view text, std::minstd_rand& random) {
  std::size_t begin = random() % text.size();
  while (begin < text.size() && !begins_token(text[begin])) ++begin;
  return {begin, begin == text.size() ? begin : end_of_token(text, begin)};
}

std::string nested(std::string value, std::size_t levels, bool lists) {
  std::string open, close;
  for (std::size_t i = 0; i < levels; ++i) {
    open += lists ? "[" : "{\"a\":";
    close += lists ? ']' : '}';
  }
  return open + value + close;
}

}  // namespace

std::string mutated_text(std::string_view text, unsigned seed) {
  if (text.empty()) return {};
  std::minstd_rand random(seed);
  const Token token = some_token(text, random);
  const std::string old(text.substr(token.begin, token.end - token.begin));
  if (old.empty()) return std::string(text);
  std::string fresh;
  switch (random() % 6) {
    case 0:
    case 1:
      fresh = kValues[random() % kValues.size()];
      break;
    case 2: {
      const Token other = some_token(text, random);
      fresh = text.substr(other.begin, other.end - other.begin);
      break;
    }
    case 3:
      fresh = nested(old, 1 + random() % 64, random() % 2 == 0);
      break;
    case 4:
      fresh = old + ',' + old;
      break;
    default:
      break;  // gone
  }
  return std::string(text.substr(0, token.begin)) + fresh + std::string(text.substr(token.end));
}

}  // namespace seeksim::fuzz
