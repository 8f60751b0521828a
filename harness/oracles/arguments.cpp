#include "harness/oracles/arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <regex>

#include "harness/input/problem.h"

namespace seeksim::harness {

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::size_t from = 0;
  for (;;) {
    const std::size_t comma = text.find(',', from);
    parts.push_back(text.substr(from, comma == std::string::npos ? comma : comma - from));
    if (comma == std::string::npos) return parts;
    from = comma + 1;
  }
}

std::vector<std::string> parts_of_layout(const std::string& text) {
  std::vector<std::string> parts = split(text);
  for (std::string& part : parts) part.erase(0, part.find_first_not_of(' '));
  return parts;
}

namespace {
bool is_natural(const std::string& text) {
  return !text.empty() && text.size() < 10 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}
}  // namespace

std::string want_none(const std::string& text, int) { return text.empty() ? "" : "takes no argument"; }
std::string want_bitwise(const std::string& text, int) {
  if (text == "bitwise" || text == "gradients") return "";
  return "is compared bitwise: write golden:bitwise, or golden:gradients";
}
std::string want_ends(const std::string& text, int) {
  return text.empty() || text == "ends" ? "" : "judges all steps, or with \"ends\" the first two and the last";
}
std::string want_natural(const std::string& text, int) {
  return is_natural(text) ? "" : "takes a whole number, such as 1";
}
std::string want_layout(const std::string& text, int) {
  static const std::regex known(
      "(micro-batch [1-9][0-9]*|stage [0-3]|no checkpointing|checkpointing every layer|no offload|"
      "(pinned )?(optimizer|parameters) on (cpu|nvme)( and (pinned )?parameters on (cpu|nvme))?)");
  for (const std::string& part : parts_of_layout(text)) {
    constexpr std::size_t kPartMax = 200;  // std::regex recurses for each character
    if (part.size() > kPartMax || !std::regex_match(part, known)) return fmt::format("knows no {}", in_quotes(part));
  }
  return "";
}
std::string want_step(const std::string& text, int) {
  return text.empty() || is_natural(text) ? "" : "takes a step, such as 3, or nothing";
}
std::string want_number(const std::string& text, int) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool fine = error == std::errc() && end == text.data() + text.size() && value >= 0 && std::isfinite(value);
  return fine ? "" : "takes a number, such as 1.5";
}

namespace {
std::string want_rank(const std::string& text, int ranks) {
  if (!is_natural(text)) return fmt::format("names ranks; {} is none", in_quotes(text));
  if (ranks > 0 && std::stoi(text) >= ranks)
    return fmt::format("names rank {}, and ranks go from 0 to {}", text, ranks - 1);
  return "";
}
}  // namespace

std::string want_ranks(const std::string& text, int ranks) {
  if (text == "none") return "";
  for (const std::string& part : split(text)) {
    if (const std::string wrong = want_rank(part, ranks); !wrong.empty()) return wrong;
  }
  return "";
}
std::string want_culprits(const std::string& text, int ranks) {
  for (const std::string& part : split(text)) {
    const std::size_t arrow = part.find("->");
    if (part.compare(0, 5, "link:") != 0) {
      if (const std::string wrong = want_rank(part, ranks); !wrong.empty()) return wrong;
    } else if (arrow == std::string::npos) {
      return "names a link as link:FROM->TO";
    } else {
      for (const std::string& end : {part.substr(5, arrow - 5), part.substr(arrow + 2)}) {
        if (const std::string wrong = want_rank(end, ranks); !wrong.empty()) return wrong;
      }
    }
  }
  return "";
}

}  // namespace seeksim::harness
