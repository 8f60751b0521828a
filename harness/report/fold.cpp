#include "harness/report/fold.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <vector>

namespace seeksim::harness {
namespace {

constexpr int kColumns = 100;      // of a file or a pipe
constexpr int kColumnsLeast = 40;  // of a terminal; a narrower one is not obeyed
constexpr std::size_t kIndentMost = 44;

// One character of a line, with the colour codes before it; a code takes no column.
struct Cell {
  std::string_view bytes;
  char shown = ' ';
};

std::size_t end_of_code(std::string_view line, std::size_t at) {
  const std::size_t end = line.find('m', at);
  return end == std::string_view::npos ? line.size() : end + 1;
}

std::vector<Cell> cells_of(std::string_view line) {
  std::vector<Cell> cells;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < line.size();) {
    if (line[at] == '\033') {
      at = end_of_code(line, at);
      continue;
    }
    const char first = line[at++];
    // The further bytes of a character in UTF-8.
    while (at < line.size() && (static_cast<unsigned char>(line[at]) & 0xC0U) == 0x80U) ++at;
    cells.push_back({line.substr(begin, at - begin), first});
    begin = at;
  }
  if (begin < line.size()) cells.push_back({line.substr(begin), '\0'});
  return cells;
}

// The column in which the text of a line begins: behind the last gap of two spaces or more near its beginning.
std::size_t indent_of(const std::vector<Cell>& cells) {
  std::size_t first = 0;
  while (first < cells.size() && cells[first].shown == ' ') ++first;
  std::size_t indent = first + 4;
  for (std::size_t i = first; i + 2 < std::min(cells.size(), kIndentMost); ++i) {
    if (cells[i].shown == ' ' && cells[i + 1].shown == ' ' && cells[i + 2].shown != ' ') indent = i + 2;
  }
  return indent;
}

bool is_command(const std::vector<Cell>& cells) {
  std::string shown;
  for (const Cell& cell : cells) shown += cell.shown;
  const std::size_t at = std::min(shown.find(" seeksim "), shown.find(" ./seeksim "));
  return at != std::string::npos && at < kIndentMost;
}

std::string text_of(const std::vector<Cell>& cells, std::size_t begin, std::size_t end) {
  std::string text;
  for (std::size_t i = begin; i < end; ++i) text += cells[i].bytes;
  return text;
}

std::string folded_line(std::string_view line, std::size_t columns) {
  const std::vector<Cell> cells = cells_of(line);
  if (cells.size() <= columns || is_command(cells)) return std::string(line);
  const std::size_t indent = std::min(indent_of(cells), columns / 2);
  std::string out;
  std::size_t begin = 0;
  while (true) {
    const std::size_t room = columns - (begin == 0 ? 0 : indent);
    if (cells.size() - begin <= room) return out + text_of(cells, begin, cells.size());
    // The last space that lets the part before it fit; if there is none, the first one behind it.
    std::size_t space = begin + room;
    const std::size_t least = begin == 0 ? indent : begin;
    while (space > least && cells[space].shown != ' ') --space;
    if (space <= least) {
      space = begin + room;
      while (space < cells.size() && cells[space].shown != ' ') ++space;
      if (space == cells.size()) return out + text_of(cells, begin, cells.size());
    }
    out += text_of(cells, begin, space) + '\n' + std::string(indent, ' ');
    begin = space + 1;
  }
}

}  // namespace

std::string folded(std::string_view text, int columns) {
  if (columns <= 0) return std::string(text);
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    out += folded_line(text.substr(at, end - at), std::size_t(columns));
    if (end < text.size()) out += '\n';
    at = end + 1;
  }
  return out;
}

int columns_of_stdout() {
  if (const char* given = std::getenv("COLUMNS")) {
    int columns = 0;
    const std::string_view text = given;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), columns);
    if (error == std::errc() && end == text.data() + text.size() && columns >= 0) {
      return columns == 0 ? 0 : std::max(columns, kColumnsLeast);
    }
  }
  winsize size{};
  if (::isatty(STDOUT_FILENO) == 1 && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    return std::max(int(size.ws_col), kColumnsLeast);
  }
  return kColumns;
}

}  // namespace seeksim::harness
