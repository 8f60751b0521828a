#include "harness/doctor/shell_words.h"

#include <algorithm>

namespace seeksim::harness {
namespace {

class Splitter {
 public:
  explicit Splitter(std::string_view text) : text_(text) {}

  std::vector<ShellLine> run() {
    while (at_ < text_.size()) step();
    end_command();
    return std::move(lines_);
  }

 private:
  void step() {
    const char c = text_[at_];
    const char next = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
    if (c == '\\' && (next == '\n' || (next == '\r' && at_ + 2 < text_.size() && text_[at_ + 2] == '\n'))) {
      end_word();
      at_ += next == '\n' ? 2 : 3;
      ++line_;
    } else if (c == '#' && !in_word_ && text_.substr(at_, 7) != "#SBATCH") {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (c == '\n' || c == ';' || c == '|' || (c == '&' && next == '&')) {
      end_command();
      at_ += c != '\n' && next == c ? 2 : 1;
      line_ += c == '\n' ? 1 : 0;
    } else if (c == ' ' || c == '\t' || c == '\r') {
      end_word();
      ++at_;
    } else if (c == '\'' || c == '"') {
      quoted(c);
    } else {
      if (c == '\\') ++at_;
      if (at_ < text_.size()) put(text_[at_++]);
    }
  }

  void quoted(char quote) {
    in_word_ = true;
    for (++at_; at_ < text_.size() && text_[at_] != quote; ++at_) {
      line_ += text_[at_] == '\n' ? 1 : 0;
      if (quote == '"' && text_[at_] == '\\' && at_ + 1 < text_.size()) ++at_;
      word_ += text_[at_];
    }
    ++at_;
  }
  void put(char c) {
    in_word_ = true;
    word_ += c;
  }
  void end_word() {
    if (!in_word_) return;
    if (now_.words.empty()) now_.number = line_;
    now_.words.push_back(std::move(word_));
    word_.clear();
    in_word_ = false;
  }
  void end_command() {
    end_word();
    if (!now_.words.empty()) lines_.push_back(std::move(now_));
    now_ = {};
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int line_ = 1;
  std::string word_;
  bool in_word_ = false;
  ShellLine now_;
  std::vector<ShellLine> lines_;
};

bool is_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; }

}  // namespace

std::vector<ShellLine> shell_lines(std::string_view text) { return Splitter(text).run(); }

std::string expanded(const std::string& word, const std::map<std::string, std::string>& variables) {
  std::string out;
  for (std::size_t i = 0; i < word.size();) {
    if (word[i] != '$' || i + 1 == word.size()) {
      out += word[i++];
      continue;
    }
    const bool braces = word[i + 1] == '{';
    const std::size_t first = i + (braces ? 2 : 1);
    std::size_t end = first;
    while (end < word.size() && is_name(word[end])) ++end;
    std::size_t after = end;
    std::string otherwise;
    bool has_otherwise = false;
    if (braces) {
      const std::size_t close = word.find('}', end);
      if (close == std::string::npos) return out + word.substr(i);
      has_otherwise = word.compare(end, 2, ":-") == 0;
      if (has_otherwise) otherwise = word.substr(end + 2, close - end - 2);
      after = close + 1;
    }
    const auto known = variables.find(word.substr(first, end - first));
    if (known != variables.end()) {
      out += known->second;
    } else {
      out += has_otherwise ? otherwise : word.substr(i, after - i);
    }
    i = std::max(after, i + 1);
  }
  return out;
}

}  // namespace seeksim::harness
