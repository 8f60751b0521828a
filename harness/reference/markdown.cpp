#include "harness/reference/markdown.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace seeksim::harness {
namespace {

constexpr std::size_t kColumns = 100;

// Characters of UTF-8, as people count them.
std::size_t columns(std::string_view text) {
  std::size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  return count;
}

bool is_blank(std::string_view line) { return line.find_first_not_of(' ') == std::string_view::npos; }

// A word that, first in a line, would be read as a list or a heading.
bool begins_a_block(std::string_view word) { return word == "-" || word == "+" || word.front() == '#'; }

}  // namespace

std::string plain(std::string_view text, bool in_table) {
  std::string out;
  bool in_code = false;
  for (const char c : text) {
    in_code ^= c == '`';
    if (c == '|' && in_table) {
      out += "\\|";
    } else if (in_code) {
      out += c;
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '*') {
      out += "\\*";
    } else {
      out += c == '\n' ? ' ' : c;
    }
  }
  return out;
}

std::string code_span(std::string_view text) {
  const bool quotes = text.find('`') != std::string_view::npos;
  return quotes ? fmt::format("`` {} ``", text) : fmt::format("`{}`", text);
}

std::string paragraph(std::string_view text, int indent) {
  std::string out, line;
  const auto end_line = [&] {
    out += line + '\n';
    line.assign(std::size_t(indent), ' ');
  };
  std::size_t from = 0;
  while (from < text.size()) {
    const std::size_t space = std::min(text.find(' ', from), text.size());
    const std::string_view word = text.substr(from, space - from);
    from = space + 1;
    if (word.empty()) continue;
    if (!is_blank(line) && columns(line) + 1 + columns(word) > kColumns) end_line();
    if (!is_blank(line))
      line += ' ';
    else if (!out.empty() && begins_a_block(word))
      line += '\\';
    line += word;
  }
  end_line();
  return out;
}

std::string table_row(const std::vector<std::string>& cells) {
  return fmt::format("| {} |\n", fmt::join(cells, " | "));
}

std::string table_header(const std::vector<std::string>& cells) {
  return table_row(cells) + table_row(std::vector<std::string>(cells.size(), "---"));
}

}  // namespace seeksim::harness
