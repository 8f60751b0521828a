#include "runtime/seams/rank_names.h"

namespace seeksim::runtime {
namespace {
constexpr std::size_t kListed = 8;  // one by one
}

std::string rank_names(const std::vector<int>& ranks) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    std::size_t last = i;
    while (ranks.size() > kListed && last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    names.push_back(std::to_string(ranks[i]) + (last > i ? "-" + std::to_string(ranks[last]) : ""));
    i = last;
  }
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? " and " : ", ";
    text += names[i];
  }
  return text;
}

std::string rank_list(const std::vector<int>& ranks) {
  std::string out;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (!out.empty()) out += ", ";
    out += std::to_string(ranks[i]);
    if (last <= i + 1) continue;
    out += "-" + std::to_string(ranks[last]);
    i = last;
  }
  return out;
}

}  // namespace seeksim::runtime
