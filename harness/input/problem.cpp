#include "harness/input/problem.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "harness/input/limits.h"

namespace seeksim::harness {
namespace {

std::string all_texts(const std::vector<Problem>& problems) {
  std::string text;
  for (const Problem& problem : problems) text += (text.empty() ? "" : "\n") + problem.text();
  return text;
}

std::string cut(const std::string& text, std::size_t most) {
  if (text.size() <= most) return text;
  std::size_t end = most;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;  // not inside a character
  return text.substr(0, end) + "...";
}

char lower(char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; }

}  // namespace

std::string Problem::text() const {
  std::string line = cut(place, kPlaceMax);
  if (!path.empty()) line += (line.empty() ? "" : ": ") + cut(path, kPlaceMax);
  line += (line.empty() ? "" : ": ") + cut(what, kTextMax);
  if (next.empty()) return line;
  if (line.back() != '.' && line.back() != '?' && line.back() != '!') line += '.';
  return line + ' ' + cut(next, kTextMax);
}

BadInput::BadInput(std::vector<Problem> problems)
    : std::runtime_error(all_texts(problems)), problems_(std::move(problems)) {}

BadInput::BadInput(std::string place, std::string what, std::string next)
    : BadInput(std::vector<Problem>{{std::move(place), "", std::move(what), std::move(next)}}) {}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  const auto same = [](char x, char y) {
    x = x == '-' ? '_' : lower(x);
    y = y == '-' ? '_' : lower(y);
    return x == y;
  };
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  std::iota(last.begin(), last.end(), 0);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (same(a[i - 1], b[j - 1]) ? 0 : 1)});
      if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1])) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::string closest(std::string_view word, const std::vector<std::string>& candidates) {
  if (word.size() > 100) return {};  // no misspelling is that long, and the work is quadratic
  // A third of the letters may be wrong: "optimiser" finds "optimizer", "foo" finds nothing.
  std::size_t best = std::max<std::size_t>(1, word.size() / 3) + 1;
  std::string found;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < best) {
      best = distance;
      found = candidate;
    }
  }
  return found;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string near = closest(word, candidates);
  if (!near.empty()) return fmt::format("Did you mean \"{}\"?", near);
  if (candidates.empty() || candidates.size() > 30) return "`seeksim list keys` prints all keys.";
  return fmt::format("Known here: {}.", fmt::join(candidates, ", "));
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kLengthMax = 80;
  std::string out = "\"";
  for (const char c : text.substr(0, kLengthMax)) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + (text.size() > kLengthMax ? "...\"" : "\"");
}

}  // namespace seeksim::harness
