#include "harness/input/json_text.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <set>

#include "harness/input/limits.h"

namespace seeksim::harness {
namespace {

// Length of the UTF-8 sequence at text[i] (no overlong forms, no surrogates), 0 when there is none.
std::size_t utf8_length(std::string_view text, std::size_t i) {
  const auto byte = [&](std::size_t k) { return k < text.size() ? static_cast<unsigned char>(text[k]) : 0u; };
  const auto follows = [&](std::size_t k) { return (byte(k) & 0xc0) == 0x80; };
  const unsigned c = byte(i);
  if (c < 0x80) return 1;
  if (c >= 0xc2 && c <= 0xdf) return follows(i + 1) ? 2 : 0;
  if (c >= 0xe0 && c <= 0xef) {
    if (!follows(i + 1) || !follows(i + 2)) return 0;
    if ((c == 0xe0 && byte(i + 1) < 0xa0) || (c == 0xed && byte(i + 1) > 0x9f)) return 0;
    return 3;
  }
  if (c >= 0xf0 && c <= 0xf4) {
    if (!follows(i + 1) || !follows(i + 2) || !follows(i + 3)) return 0;
    if ((c == 0xf0 && byte(i + 1) < 0x90) || (c == 0xf4 && byte(i + 1) > 0x8f)) return 0;
    return 4;
  }
  return 0;
}

void append_utf8(std::string& out, unsigned code) {
  if (code < 0x80) {
    out += char(code);
  } else if (code < 0x800) {
    out += char(0xc0 | code >> 6);
    out += char(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    out += char(0xe0 | code >> 12);
    out += char(0x80 | (code >> 6 & 0x3f));
    out += char(0x80 | (code & 0x3f));
  } else {
    out += char(0xf0 | code >> 18);
    out += char(0x80 | (code >> 12 & 0x3f));
    out += char(0x80 | (code >> 6 & 0x3f));
    out += char(0x80 | (code & 0x3f));
  }
}

class Parser {
 public:
  Parser(std::string_view text, const std::string& file, bool with_lines)
      : text_(text), file_(file), with_lines_(with_lines) {}

  JsonText run() {
    if (text_.size() > kJsonBytesMax) {
      throw BadInput(file_, fmt::format("{} bytes of JSON; at most {} are read", text_.size(), kJsonBytesMax),
                     "A scenario is a page long: is this the right file?");
    }
    if (text_.substr(0, 3) == "\xef\xbb\xbf") at_ = 3;  // the byte order mark of some editors
    skip_space();
    if (at_ == text_.size()) fail("the file is empty", "A scenario is a JSON object: copy scenarios/baseline.json.");
    out_.value = value("", 0);
    skip_space();
    if (at_ < text_.size()) fail(fmt::format("{} after the end of the JSON value", seen()), "Remove what follows it.");
    return std::move(out_);
  }

 private:
  [[noreturn]] void fail(const std::string& what, const std::string& next) {
    const std::size_t line_start = text_.substr(0, at_).rfind('\n');
    const std::size_t column = at_ - (line_start == std::string_view::npos ? 0 : line_start + 1) + 1;
    std::vector<Problem> problems = std::move(out_.problems);
    const std::string place = with_lines_ ? fmt::format("{}:{}:{}", file_, line_, column) : file_;
    problems.push_back({place, "", what, next});
    throw BadInput(std::move(problems));
  }

  // The next character, for a message.
  std::string seen() const {
    if (at_ >= text_.size()) return "end of file";
    const auto c = static_cast<unsigned char>(text_[at_]);
    if (c < 0x20 || c >= 0x7f) return fmt::format("byte 0x{:02x}", c);
    return fmt::format("'{}'", text_[at_]);
  }

  void skip_space() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\n') {
        ++line_;
      } else if (c != ' ' && c != '\t' && c != '\r') {
        break;
      }
      ++at_;
    }
    if (text_.substr(at_, 2) == "//" || text_.substr(at_, 2) == "/*" || text_.substr(at_, 1) == "#") {
      fail("comments are not JSON", "Remove it; a scenario explains itself under \"why\".");
    }
  }

  bool take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  Json value(const std::string& pointer, int depth) {
    if (depth > kJsonDepthMax) {
      fail(fmt::format("nested deeper than {} levels", kJsonDepthMax),
           "No scenario needs that: is this the right file?");
    }
    if (with_lines_) out_.lines.emplace(pointer, line_);
    const char c = at_ < text_.size() ? text_[at_] : '\0';
    if (c == '{') return object(pointer, depth);
    if (c == '[') return array(pointer, depth);
    if (c == '"') return string();
    if (c == '-' || (c >= '0' && c <= '9')) return number();
    for (const std::string_view word : {"true", "false", "null"}) {
      if (text_.substr(at_, word.size()) != word) continue;
      at_ += word.size();
      return word == "null" ? Json(nullptr) : Json(word == "true");
    }
    if (at_ >= text_.size())
      fail("the file ends in the middle of a value", "Is it complete? A bracket may be missing.");
    fail(fmt::format("a value was expected, found {}", seen()),
         c == '}' || c == ']' ? "A comma before a closing bracket is not JSON: remove it."
                              : "A value is a number, a string in double quotes, true, false, null, [...] or {...}.");
  }

  Json object(const std::string& pointer, int depth) {
    Json result = Json::object();
    std::set<std::string, std::less<>> keys;
    ++at_;
    skip_space();
    if (take('}')) return result;
    for (;;) {
      if (at_ >= text_.size()) fail("the file ends inside an object {...}", "Is it complete? A bracket is missing.");
      if (text_[at_] != '"') {
        fail(fmt::format("a key in double quotes was expected, found {}", seen()),
             text_[at_] == '}' ? "A comma before a closing bracket is not JSON: remove it."
                               : "Keys look like \"name\".");
      }
      const int key_line = line_;
      std::string key = string();
      const std::string child = pointer + '/' + pointer_step(key);
      skip_space();
      if (!take(':')) fail(fmt::format("':' was expected after the key {}, found {}", in_quotes(key), seen()), "");
      skip_space();
      const bool fresh = keys.insert(key).second;
      if (!fresh && out_.problems.size() >= kProblemsTold)
        fail(fmt::format("more than {} keys are here twice", kProblemsTold), "Is this the right file?");
      if (!fresh) {
        out_.problems.push_back({with_lines_ ? fmt::format("{}:{}", file_, key_line) : file_, dotted(child),
                                 "this key is here twice", "Remove one of the two."});
      }
      if (with_lines_) out_.lines.insert_or_assign(child, key_line);
      Json member = value(child, depth + 1);
      if (fresh)  // the map itself would look for the key once more, one by one
        result.get_ref<Json::object_t&>().emplace_back(key, std::move(member));
      else
        result[key] = std::move(member);
      skip_space();
      if (take('}')) return result;
      if (!take(',')) {
        fail(fmt::format("',' or '}}' was expected after the value of {}, found {}", in_quotes(key), seen()),
             ends_early());
      }
      skip_space();
    }
  }

  Json array(const std::string& pointer, int depth) {
    Json result = Json::array();
    ++at_;
    skip_space();
    if (take(']')) return result;
    for (;;) {
      result.push_back(value(pointer + '/' + std::to_string(result.size()), depth + 1));
      skip_space();
      if (take(']')) return result;
      if (!take(',')) fail(fmt::format("',' or ']' was expected in a list, found {}", seen()), ends_early());
      skip_space();
    }
  }

  std::string ends_early() const {
    return at_ >= text_.size() ? "Is the file complete? A bracket is missing." : "A comma may be missing before it.";
  }

  std::string string() {
    std::string out;
    ++at_;
    for (;;) {
      if (at_ >= text_.size()) fail("the file ends inside a string", "Is it complete? A quote may be missing.");
      const auto c = static_cast<unsigned char>(text_[at_]);
      if (c == '"') {
        ++at_;
        return out;
      }
      if (c < 0x20) {
        fail(fmt::format("{} inside a string", c == '\n' ? "the line ends" : seen()),
             c == '\n' ? "A closing quote may be missing; a line break is written \\n." : "Write it as \\u00XX.");
      }
      if (c == '\\') {
        escape(out);
        continue;
      }
      const std::size_t length = utf8_length(text_, at_);
      if (length == 0) fail(fmt::format("{} is not UTF-8", seen()), "Save the file as UTF-8.");
      out.append(text_, at_, length);
      at_ += length;
    }
  }

  void escape(std::string& out) {
    constexpr std::string_view kNames = "\"\\/bfnrt";
    constexpr std::string_view kMeans = "\"\\/\b\f\n\r\t";
    const char c = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
    if (c == 'u') {
      at_ += 2;
      unsigned code = hex4();
      if (code >= 0xd800 && code <= 0xdbff && text_.substr(at_, 2) == "\\u") {
        at_ += 2;
        const unsigned low = hex4();
        if (low < 0xdc00 || low > 0xdfff) fail("half of a surrogate pair", "Write the character itself, in UTF-8.");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
      }
      if (code >= 0xd800 && code <= 0xdfff) fail("half of a surrogate pair", "Write the character itself, in UTF-8.");
      append_utf8(out, code);
      return;
    }
    const std::size_t which = kNames.find(c);
    if (c == '\0' || which == std::string_view::npos)
      fail("an unknown escape in a string", "A backslash is written \\\\.");
    out += kMeans[which];
    at_ += 2;
  }

  unsigned hex4() {
    unsigned code = 0;
    const std::string_view digits = text_.substr(at_, 4);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    if (error != std::errc() || end != digits.data() + 4) fail("four hexadecimal digits were expected after \\u", "");
    at_ += 4;
    return code;
  }

  Json number() {
    const std::size_t begin = at_;
    const auto digits = [&] {
      const std::size_t from = at_;
      while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
      if (at_ == from) fail(fmt::format("a digit was expected in a number, found {}", seen()), "");
      return at_ - from;
    };
    const bool negative = take('-');
    const std::size_t first = at_;
    if (digits() > 1 && text_[first] == '0') fail("a number may not begin with 0", "Remove the leading zeros.");
    bool whole = true;
    if (take('.')) {
      digits();
      whole = false;
    }
    if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
      ++at_;
      if (at_ < text_.size() && (text_[at_] == '+' || text_[at_] == '-')) ++at_;
      digits();
      whole = false;
    }
    return number_of(text_.substr(begin, at_ - begin), whole, negative);
  }

  Json number_of(std::string_view token, bool whole, bool negative) {
    const char* const end = token.data() + token.size();
    if (whole) {
      std::int64_t i = 0;
      if (std::from_chars(token.data(), end, i).ec == std::errc()) return i;
      std::uint64_t u = 0;
      if (!negative && std::from_chars(token.data(), end, u).ec == std::errc()) return u;
      fail(fmt::format("the number {} does not fit into 64 bits", token.substr(0, 40)), "Use a smaller one.");
    }
    double d = 0;
    if (std::from_chars(token.data(), end, d).ec != std::errc()) {
      fail(fmt::format("the number {} is too large or too small for a double", token.substr(0, 40)), "");
    }
    constexpr double kExact = 9007199254740992.0;  // 2^53
    if (d != 0 && std::fabs(d) <= kExact && d == std::trunc(d)) return static_cast<std::int64_t>(d);
    return d;
  }

  std::string_view text_;
  const std::string& file_;
  bool with_lines_;
  std::size_t at_ = 0;
  int line_ = 1;
  JsonText out_;
};

}  // namespace

JsonText parse_json(std::string_view text, const std::string& file) { return Parser(text, file, true).run(); }

Json parse_json_value(std::string_view text, const std::string& place) {
  JsonText parsed = Parser(text, place, false).run();
  if (!parsed.problems.empty()) throw BadInput(std::move(parsed.problems));
  return std::move(parsed.value);
}

bool is_utf8(std::string_view text) {
  for (std::size_t at = 0, length = 0; at < text.size(); at += length) {
    length = utf8_length(text, at);
    if (length == 0) return false;
  }
  return true;
}

std::string pointer_step(std::string_view key) {
  std::string out;
  for (const char c : key) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return out;
}

std::string dotted(std::string_view pointer) {
  std::string out;
  for (std::size_t i = 0; i < pointer.size(); ++i) {
    const char c = pointer[i];
    if (c == '/') {
      if (i > 0) out += '.';
    } else if (c == '~' && i + 1 < pointer.size()) {
      out += pointer[++i] == '1' ? '/' : '~';
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out.size() > 200 ? out.substr(0, 200) + "..." : out;
}

std::string dump(const Json& json) { return json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n'; }

Json number_or_word(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

}  // namespace seeksim::harness
