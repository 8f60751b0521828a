#include "harness/input/ds_config_text.h"

#include <algorithm>

namespace seeksim::harness {
namespace {

// Blanks in place of what JSON does not have: lines and columns stay.
class Blanker {
 public:
  explicit Blanker(std::string_view text) : text_(text) {}

  std::string run() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '"') {
        pass_string();
      } else if (c == '#' || text_.compare(at_, 2, "//") == 0) {
        blank(text_.find('\n', at_));
      } else if (text_.compare(at_, 2, "/*") == 0) {
        const std::size_t end = text_.find("*/", at_ + 2);
        if (end == std::string::npos) break;  // left as it is: the parser says that it is no JSON
        blank(end + 2);
      } else {
        if ((c == '}' || c == ']') && comma_ != std::string::npos) text_[comma_] = ' ';
        if (c == ',') {
          comma_ = at_;
        } else if (c != ' ' && c != '\t' && c != '\r' && c != '\n') {
          comma_ = std::string::npos;
        }
        ++at_;
      }
    }
    return std::move(text_);
  }

 private:
  void pass_string() {
    comma_ = std::string::npos;
    for (++at_; at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\n'; ++at_) at_ += text_[at_] == '\\' ? 1 : 0;
    ++at_;
  }
  void blank(std::size_t end) {
    for (end = std::min(end, text_.size()); at_ < end; ++at_) {
      if (text_[at_] != '\n') text_[at_] = ' ';
    }
  }

  std::string text_;
  std::size_t at_ = 0;
  std::size_t comma_ = std::string::npos;  // the last one, where nothing but blanks follows it so far
};

}  // namespace

JsonText parse_ds_config(std::string_view text, const std::string& file) {
  return text.size() > kJsonBytesMax ? parse_json(text, file) : parse_json(Blanker(text).run(), file);
}

}  // namespace seeksim::harness
