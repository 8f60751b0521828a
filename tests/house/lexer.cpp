#include "tests/house/lexer.h"

#include <algorithm>
#include <cctype>
#include <utility>

namespace seeksim::house {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

namespace {

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  Lexed run() {
    while (at_ < text_.size()) step();
    return std::move(out_);
  }

 private:
  void step() {
    const char c = text_[at_];
    if (c == '\n') {
      if (at_ == 0 || text_[at_ - 1] != '\\') directive_ = false;
      ++line_;
      ++at_;
      line_start_ = true;
    } else if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      ++at_;
    } else if (starts("//")) {
      skip_to("\n");
    } else if (starts("/*")) {
      at_ += 2;
      skip_past("*/");
    } else if (c == '#' && line_start_) {
      line_start_ = false;
      directive();
    } else if (c == '"') {
      line_start_ = false;
      quoted('"');
    } else if (c == '\'') {
      line_start_ = false;
      quoted('\'');
    } else if (is_word(c)) {
      line_start_ = false;
      word();
    } else {
      line_start_ = false;
      // "::" and "->" say to what a name belongs; for everything else the first character is enough.
      const size_t size = starts("::") || starts("->") ? 2 : 1;
      out_.tokens.push_back({std::string(text_.substr(at_, size)), line_, false, directive_});
      at_ += size;
    }
  }

  void directive() {
    size_t i = at_ + 1;
    while (i < text_.size() && (text_[i] == ' ' || text_[i] == '\t')) ++i;
    if (text_.substr(i, 7) != "include") {
      directive_ = true;
      ++at_;  // its words are code like any other: a macro may name a clock too
      return;
    }
    i += 7;
    while (i < text_.size() && (text_[i] == ' ' || text_[i] == '\t')) ++i;
    if (i < text_.size() && (text_[i] == '"' || text_[i] == '<')) {
      const size_t end = text_.find_first_of("\">\n", i + 1);
      out_.includes.push_back({std::string(text_.substr(i + 1, end - i - 1)), line_});
    }
    skip_to("\n");
  }

  void word() {
    const size_t begin = at_;
    while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    std::string word(text_.substr(begin, at_ - begin));
    const bool number = std::isdigit(static_cast<unsigned char>(word[0])) != 0;
    // 1'000'000: the quotes belong to the number.
    while (number && at_ + 1 < text_.size() && text_[at_] == '\'' && is_word(text_[at_ + 1])) {
      ++at_;
      while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    }
    if (at_ < text_.size() && text_[at_] == '"' && word.back() == 'R' && word.size() <= 3) {
      raw_string();
      return;
    }
    out_.tokens.push_back({std::move(word), line_, !number, directive_});
  }

  void raw_string() {
    const size_t open = text_.find('(', at_);
    if (open == std::string_view::npos) {
      at_ = text_.size();
      return;
    }
    const std::string close = ")" + std::string(text_.substr(at_ + 1, open - at_ - 1)) + "\"";
    at_ = open;
    skip_past(close);
  }

  void quoted(char quote) {
    ++at_;
    while (at_ < text_.size() && text_[at_] != quote && text_[at_] != '\n') at_ += text_[at_] == '\\' ? 2 : 1;
    if (at_ < text_.size() && text_[at_] == quote) ++at_;
  }

  bool starts(std::string_view what) const { return text_.substr(at_, what.size()) == what; }

  void skip_to(std::string_view what) {
    const size_t end = std::min(text_.find(what, at_), text_.size());
    for (; at_ < end; ++at_) line_ += text_[at_] == '\n';
  }

  void skip_past(std::string_view what) {
    skip_to(what);
    at_ = std::min(at_ + what.size(), text_.size());
  }

  std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_start_ = true;
  bool directive_ = false;
  Lexed out_;
};

}  // namespace

Lexed lex(std::string_view text) { return Lexer(text).run(); }

}  // namespace seeksim::house
