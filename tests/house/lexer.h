// A lexer that knows just enough C++ not to be fooled by comments, strings and raw strings.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace seeksim::house {

struct Token {
  std::string text;
  int line = 0;
  bool identifier = false;
  bool directive = false;  // stands on a line of the preprocessor, or its continuation
};

struct Include {
  std::string path;
  int line = 0;
};

struct Lexed {
  std::vector<Token> tokens;  // without comments and literals of characters and strings
  std::vector<Include> includes;
};

Lexed lex(std::string_view text);

// A character of identifiers and numbers.
bool is_word(char c);

}  // namespace seeksim::house
