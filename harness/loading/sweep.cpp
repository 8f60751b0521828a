#include "harness/loading/sweep.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/files/bounded_json.h"

namespace seeksim::harness {
namespace {

// Part `a` of a key path holds `b`: world and world.nodes.
bool holds(const std::string& a, const std::string& b) {
  return b.size() > a.size() && b.compare(0, a.size(), a) == 0 && b[a.size()] == '.';
}

const char* not_an_axis(const std::string& key) {
  const std::string first = key.substr(0, key.find('.'));
  if (first == "sweep" || first == "mode" || first == "sweep_skip") return "a sweep cannot change itself";
  if (first == "name") return "the rows of a sweep share its name";
  return nullptr;
}

constexpr std::int64_t kRangeMax = 10'000;

// [values], or {"range": [first, last]}: whole numbers. Null: neither.
Json values_of(const Json& written) {
  if (written.is_array()) return written;
  if (!written.is_object() || written.size() != 1 || !written.contains("range")) return nullptr;
  const Json& range = written["range"];
  if (!range.is_array() || range.size() != 2 || !range[0].is_number_integer() || !range[1].is_number_integer())
    return nullptr;
  const auto first = runtime::whole_number<std::int64_t>(range[0]),
             last = runtime::whole_number<std::int64_t>(range[1]);
  if (!first || !last || *last < *first) return nullptr;
  const std::uint64_t steps = std::uint64_t(*last) - std::uint64_t(*first);
  if (steps >= std::uint64_t(kRangeMax)) return nullptr;
  Json values = Json::array();
  for (std::uint64_t i = 0; i <= steps; ++i) values.push_back(*first + std::int64_t(i));
  return values;
}

void read_axis(const Reader& top, const std::string& pointer, const std::string& key, const Json& written,
               std::vector<SweepAxis>& block) {
  const Json values = values_of(written);
  const auto wrong = [&](std::string what, std::string next) {
    top.findings().add(pointer + '/' + pointer_step(key), std::move(what), std::move(next));
  };
  if (const char* why = not_an_axis(key)) return wrong(why, "Remove it.");
  if (!values.is_array() || values.empty()) {
    return wrong("a list of the values that it takes was expected",
                 fmt::format("For example \"{0}\": [1, 2], or \"{0}\": {{\"range\": [1, 9]}}; a range has at most {1}.",
                             key, kRangeMax));
  }
  for (const SweepAxis& other : block) {
    if (!holds(other.key, key) && !holds(key, other.key)) continue;
    return wrong(fmt::format("{} and {} set the same value", in_quotes(other.key), in_quotes(key)),
                 "Put them into two sweeps of a list: \"sweep\": [ {...}, {...} ].");
  }
  SweepAxis axis{key, {}};
  for (const Json& value : values) {
    const std::string text = value.dump();
    if (std::find(axis.values.begin(), axis.values.end(), text) != axis.values.end()) {
      return wrong(fmt::format("{} is here twice", in_quotes(text)), "Remove one.");
    }
    axis.values.push_back(text);
  }
  block.push_back(std::move(axis));
}

void read_block(const Reader& top, const std::string& pointer, const Json& written, Sweep& sweep) {
  if (!written.is_object()) return;  // the schema said so
  std::vector<SweepAxis> block;
  for (const auto& [key, values] : written.items()) read_axis(top, pointer, key, values, block);
  std::int64_t rows = 1;
  for (const SweepAxis& axis : block) {
    rows *= std::int64_t(axis.values.size());
    if (rows <= kCombinationsMax) continue;
    top.findings().add(pointer, fmt::format("there are more than {} combinations", kCombinationsMax),
                       "Use fewer values, or several smaller sweeps in a list.");
    return;
  }
  if (!block.empty()) sweep.blocks.push_back(std::move(block));
}

void read_mode(const Reader& top, Sweep& sweep) {
  const Json* mode = top.find("mode");
  if (mode == nullptr) return;
  if (top.find("sweep") == nullptr) return top.problem("mode", "there is no sweep", "Remove it, or add \"sweep\".");
  if (mode->is_object()) {
    sweep.mode = Sweep::Mode::sample;
    sweep.sample = top.child("mode").integer("sample", 0);
  } else if (*mode == "pairwise") {
    sweep.mode = Sweep::Mode::pairwise;
  } else if (mode->is_string() && *mode != "product") {
    top.problem("mode", fmt::format("{} is not known", in_quotes(mode->get<std::string>())),
                "Use \"product\", \"pairwise\" or {\"sample\": N}.");
  }
}

void read_skip(const Reader& top, Sweep& sweep) {
  const Json* list = top.find("sweep_skip");
  if (list == nullptr || !list->is_array()) return;
  if (top.find("sweep") == nullptr) return top.problem("sweep_skip", "there is no sweep", "Remove it.");
  if (sweep.empty()) return;  // --set sweep=[]: the base alone
  const std::vector<std::string> keys = axis_keys(sweep);
  for (std::size_t i = 0; i < list->size(); ++i) {
    const std::string pointer = fmt::format("/sweep_skip/{}", i);
    if (!(*list)[i].is_object()) continue;
    Settings skip;
    bool known = true;
    for (const auto& [key, value] : (*list)[i].items()) {
      skip.emplace_back(key, value.dump());
      if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
      known = false;
      top.findings().add(pointer + '/' + pointer_step(key), "no axis of the sweep has this key",
                         did_you_mean(key, keys));
    }
    if (known) sweep.skip.push_back(std::move(skip));
  }
}

// A rule that leaves nothing out is a rule about another sweep.
void check_skip_matches(const Reader& top, const Sweep& sweep) {
  const std::vector<bool> met = skips_met(sweep);
  for (std::size_t i = 0; i < met.size(); ++i) {
    if (met[i]) continue;
    top.findings().add(fmt::format("/sweep_skip/{}", i), "no row of the sweep has these values",
                       "Write the values as the sweep does, or remove it.");
  }
}

}  // namespace

Sweep read_sweep(const Reader& top) {
  Sweep sweep;
  if (const Json* written = top.find("sweep")) {
    if (written->is_object()) read_block(top, "/sweep", *written, sweep);
    for (std::size_t i = 0; written->is_array() && i < written->size(); ++i) {
      read_block(top, fmt::format("/sweep/{}", i), (*written)[i], sweep);
    }
  }
  read_mode(top, sweep);
  read_skip(top, sweep);
  check_skip_matches(top, sweep);
  if (!sweep.empty() && rows_of(sweep, 0).empty()) {
    top.problem("sweep_skip", "every row of the sweep is left out", "Remove one of the entries.");
  }
  return sweep;
}

}  // namespace seeksim::harness
