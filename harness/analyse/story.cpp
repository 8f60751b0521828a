#include "harness/analyse/story.h"

#include <fmt/format.h>

#include <cctype>

namespace seeksim::harness {
namespace {

constexpr std::size_t kLinesMost = 12;  // of one part of the story

void put_part(std::string& text, std::string_view title, const std::vector<std::string>& lines) {
  for (std::size_t i = 0; i < lines.size() && i < kLinesMost; ++i)
    text += fmt::format("  {:<10} {}\n", i == 0 ? title : std::string_view(), lines[i]);
  if (lines.size() > kLinesMost) text += fmt::format("  {:<10} and {} more (--json)\n", "", lines.size() - kLinesMost);
}

}  // namespace

std::string_view name(HangKind kind) {
  switch (kind) {
    case HangKind::nothing_stuck:
      return "nothing_stuck";
    case HangKind::never_came:
      return "never_came";
    case HangKind::other_operation:
      return "other_operation";
    case HangKind::other_size:
      return "other_size";
    case HangKind::other_type:
      return "other_type";
    case HangKind::shifted:
      return "shifted";
    case HangKind::cycle:
      return "cycle";
    case HangKind::no_partner:
      return "no_partner";
    case HangKind::no_dump:
      return "no_dump";
    case HangKind::all_came:
      return "all_came";
    case HangKind::first_error:
      return "first_error";
    case HangKind::cannot_be_known:
      return "cannot_be_known";
  }
  return "";
}

std::string story_text(const Story& story) {
  std::string text = story.headline + "\n";
  put_part(text, "certain", story.certain);
  put_part(text, "likely", story.likely);
  put_part(text, "unknown", story.unknown);
  put_part(text, "next time", story.next);
  return text;
}

std::string story_json(const Story& story) {
  Tree json = story.details;
  json["schema"] = "seeksim-hang-1";
  json["verdict"] = name(story.kind);
  json["accused"] = story.accused;
  json["headline"] = story.headline;
  json["certain"] = story.certain;
  json["likely"] = story.likely;
  json["unknown"] = story.unknown;
  json["next_time"] = story.next;
  return json.dump(2, ' ', false, Tree::error_handler_t::replace) + "\n";
}

std::string ranks_text(const std::vector<int>& ranks) {
  if (ranks.empty()) return "no rank";
  if (ranks.size() == 1) return fmt::format("rank {}", ranks[0]);
  if (ranks.size() > 3 && ranks.back() - ranks.front() + 1 == int(ranks.size()))
    return fmt::format("ranks {} to {}", ranks.front(), ranks.back());
  std::string text = "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i == 16) return text + fmt::format(" and {} more", ranks.size() - i);
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  return text;
}

std::string capitalized(std::string text) {
  if (!text.empty()) text[0] = char(std::toupper(static_cast<unsigned char>(text[0])));
  return text;
}

}  // namespace seeksim::harness
