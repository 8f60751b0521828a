// A case as text, and back.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "harness/input/problem.h"
#include "harness/torch/cases/features.h"

namespace seeksim::harness::torch {

std::vector<std::string> not_plain(const Case& drawn) {
  std::vector<std::string> names;
  for (const Feature& one : features()) {
    if (one.name != "wrapper" && drawn.at(one.name) != one.values.front()) names.push_back(one.name);
  }
  return names;
}

std::string case_text(const Case& drawn) {
  std::vector<std::string> words = {"wrapper=" + drawn.at("wrapper")};
  for (const std::string& name : not_plain(drawn)) words.push_back(name + '=' + drawn.at(name));
  return fmt::format("{}", fmt::join(words, ", "));
}

Case case_of(const std::string& text) {
  std::vector<std::string> known;
  for (const Feature& one : features()) known.push_back(one.name);
  Case given = plain_case("ddp");
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    std::string word = text.substr(at, end - at);
    std::erase(word, ' ');
    at = end + 1;
    if (word.empty()) continue;
    const std::size_t sign = word.find('=');
    const std::string name = word.substr(0, sign), value = sign == std::string::npos ? "" : word.substr(sign + 1);
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw BadInput("--case " + text, fmt::format("there is no feature {}", in_quotes(name)),
                     did_you_mean(name, known));
    if (std::find(feature(name).values.begin(), feature(name).values.end(), value) == feature(name).values.end())
      throw BadInput("--case " + text, fmt::format("{} has no value {}", name, in_quotes(value)),
                     did_you_mean(value, feature(name).values));
    given[name] = value;
  }
  const Case drawn = normal(given);
  for (const Feature& one : features()) {
    if (drawn.at(one.name) != given.at(one.name))
      throw BadInput("--case " + text, fmt::format("{} means nothing in it", one.name), "Leave it out.");
  }
  return drawn;
}

}  // namespace seeksim::harness::torch
