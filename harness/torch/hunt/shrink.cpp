#include "harness/torch/hunt/shrink.h"

#include <algorithm>
#include <vector>

#include "harness/search/exploration.h"

namespace seeksim::harness::torch {

Case shrunk(Case drawn, int tries, const std::function<bool(const Case&)>& still, int& took, bool whole) {
  const auto try_out = [&](Case other) {
    other = normal(std::move(other));
    if (other == drawn || !cannot_be(other).empty() || took >= tries) return false;
    ++took;
    if (!still(other)) return false;
    drawn = std::move(other);
    return true;
  };
  const auto with_plain = [&](const std::vector<std::string>& names, std::size_t first, std::size_t count) {
    Case other = drawn;
    for (std::size_t i = first; i < std::min(first + count, names.size()); ++i)
      other[names[i]] = feature(names[i]).values.front();
    return other;
  };
  // Many at once first: most of what was drawn has nothing to do with it.
  for (std::size_t count = not_plain(drawn).size(); count >= 1 && took < tries;) {
    const std::vector<std::string> names = not_plain(drawn);
    bool any = false;
    for (std::size_t first = 0; first < names.size(); first += count) any |= try_out(with_plain(names, first, count));
    if (!any || count > 1) count = count == 1 ? 0 : std::max<std::size_t>(count / 2, 1);
  }
  for (const std::string& name : whole ? std::vector<std::string>() : not_plain(drawn)) {
    for (const std::string& value : feature(name).values) {
      if (value == drawn.at(name)) break;
      Case other = drawn;
      other[name] = value;
      if (try_out(std::move(other))) break;
    }
  }
  return drawn;
}

Case needed(const Case& drawn) {
  Case part = {{"wrapper", drawn.at("wrapper")}};
  for (const std::string& name : not_plain(drawn)) part[name] = drawn.at(name);
  return part;
}

std::string signature(const Case& drawn, const std::string& check, const std::string& where) {
  return case_text(drawn) + " | " + finding_key(check, where);
}

}  // namespace seeksim::harness::torch
