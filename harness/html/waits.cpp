#include "harness/html/waits.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/html/escape.h"
#include "harness/html/page.h"

namespace seeksim::harness::html {
namespace {

constexpr std::size_t kDrawnMost = 40;
constexpr int kWidth = 860, kBoxWidth = 230, kBoxHeight = 30, kLine = 46, kGap = 8;

// At most so many characters; the table has the whole text. Cut at a character of UTF-8.
std::string cut(const std::string& text, std::size_t most) {
  if (text.size() <= most) return text;
  std::size_t end = most - 1;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  return text.substr(0, end) + "\u2026";
}

std::string box(int x, int y, const std::string& text, bool hot) {
  return fmt::format(
      "<rect class=\"box{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"5\"/><text x=\"{}\" y=\"{}\" "
      "text-anchor=\"middle\">{}</text>",
      hot ? " hot" : "", x, y, kBoxWidth, kBoxHeight, x + kBoxWidth / 2, y + 20, escaped(cut(text, 31)));
}

std::string arrow(int from_y, int to_y, const std::string& label) {
  const int from = kBoxWidth + 2, to = kWidth - kBoxWidth - 2;
  const int middle_x = (from + to) / 2;
  std::string out = fmt::format("<path class=\"edge\" d=\"M{} {}C{} {} {} {} {} {}\"/>", from, from_y, middle_x, from_y,
                                middle_x, to_y, to - 8, to_y);
  out += fmt::format("<path class=\"head\" d=\"M{} {}l-9 -4v8z\"/>", to, to_y);
  return out +
         fmt::format("<text class=\"soft\" x=\"{}\" y=\"{}\">{}</text>", from + 8, from_y - 5, escaped(cut(label, 50)));
}

// The operation without its queue: "all_reduce".
std::string short_label(const std::string& what) {
  const std::size_t colon = what.find(": ");
  return colon == std::string::npos ? what : what.substr(colon + 2);
}

std::string picture(const std::vector<Wait>& waits) {
  std::vector<std::string> targets;
  for (const Wait& wait : waits) {
    if (std::find(targets.begin(), targets.end(), wait.whom) == targets.end()) targets.push_back(wait.whom);
  }
  const int lines = int(std::max(waits.size(), targets.size()));
  const auto y_of = [lines](std::size_t i, std::size_t count) {
    return kGap + int((double(i) + 0.5) * lines * kLine / double(count)) - kBoxHeight / 2;
  };
  std::string out;
  for (std::size_t i = 0; i < waits.size(); ++i) {
    const auto target = std::size_t(std::find(targets.begin(), targets.end(), waits[i].whom) - targets.begin());
    const int from = y_of(i, waits.size()), to = y_of(target, targets.size());
    out += box(0, from, waits[i].who, false);
    out += arrow(from + kBoxHeight / 2, to + kBoxHeight / 2, short_label(waits[i].what));
  }
  for (std::size_t i = 0; i < targets.size(); ++i)
    out += box(kWidth - kBoxWidth, y_of(i, targets.size()), targets[i], true);
  return fmt::format(
      "<figure><div class=\"wide\" tabindex=\"0\"><svg viewBox=\"-2 0 {} {}\" width=\"{}\" role=\"img\" "
      "style=\"max-width:none\" "
      "aria-label=\"{} kinds of waits for {} things, listed in the table below\">{}</svg></div></figure>\n",
      kWidth + 4, lines * kLine + 2 * kGap, kWidth + 4, waits.size(), targets.size(), out);
}

}  // namespace

Wait wait_of(const std::string& line) {
  Wait wait;
  std::string rest = line;
  const std::size_t colon = line.find(": ");
  const bool named = line.starts_with("rank ") || line.starts_with("ranks ");
  if (named && colon != std::string::npos) {
    wait.who = line.substr(0, colon);
    rest = line.substr(colon + 2);
  }
  constexpr std::string_view kFor = "waits for ";
  const std::size_t at = rest.find(kFor);
  if (at == std::string::npos) {
    wait.what = rest;
    return wait;
  }
  wait.whom = rest.substr(at + kFor.size());
  wait.what = rest.substr(0, at);
  while (!wait.what.empty() && (wait.what.back() == ' ' || wait.what.back() == ':')) wait.what.pop_back();
  if (wait.who.empty()) std::swap(wait.who, wait.what);
  return wait;
}

std::string waits_figure(const std::vector<std::string>& lines) {
  std::vector<Wait> drawn;
  std::vector<Cells> rows;
  for (const std::string& line : lines) {
    const Wait wait = wait_of(line);
    rows.push_back({escaped(wait.who), escaped(wait.what), escaped(wait.whom)});
    if (!wait.who.empty() && !wait.whom.empty() && drawn.size() < kDrawnMost) drawn.push_back(wait);
  }
  if (rows.empty()) return "";
  return (drawn.empty() ? "" : picture(drawn)) + table("", {"who", "in what", "waits for"}, rows);
}

}  // namespace seeksim::harness::html
