#include "harness/scenario/sweep.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <random>
#include <set>

#include <nlohmann/json.hpp>

namespace seeksim::harness {
namespace {

// One value of each axis, by number.
using Choice = std::vector<std::size_t>;

const std::string* value_in(const Settings& row, const std::string& key) {
  for (const auto& [name, value] : row) {
    if (name == key) return &value;
  }
  return nullptr;
}

bool matches(const Settings& skip, const Settings& row) {
  return std::all_of(skip.begin(), skip.end(), [&](const auto& wanted) {
    const std::string* value = value_in(row, wanted.first);
    return value != nullptr && *value == wanted.second;
  });
}

Settings settings_of(const std::vector<SweepAxis>& block, const Choice& choice) {
  Settings row;
  for (std::size_t i = 0; i < block.size(); ++i) row.emplace_back(block[i].key, block[i].values[choice[i]]);
  return row;
}

// The next combination, the last axis fastest; false after the last one.
bool advance(const std::vector<SweepAxis>& block, Choice& choice) {
  for (std::size_t i = block.size(); i-- > 0;) {
    if (++choice[i] < block[i].values.size()) return true;
    choice[i] = 0;
  }
  return false;
}

bool is_skipped(const Sweep& sweep, const Settings& row) {
  return std::any_of(sweep.skip.begin(), sweep.skip.end(), [&](const Settings& skip) { return matches(skip, row); });
}

std::vector<Settings> product(const Sweep& sweep, const std::vector<SweepAxis>& block) {
  std::vector<Settings> rows;
  Choice choice(block.size());
  do {
    Settings row = settings_of(block, choice);
    if (!is_skipped(sweep, row)) rows.push_back(std::move(row));
  } while (advance(block, choice));
  return rows;
}

// Pairwise: every two values of different axes meet in a row, in far fewer rows than the product has. Greedy: a row
// begins with a pair that has not met yet, and each further axis takes the value that makes most new pairs.
class Pairwise {
 public:
  Pairwise(const Sweep& sweep, const std::vector<SweepAxis>& block) : sweep_(sweep), block_(block) {}

  std::vector<Settings> rows() {
    if (block_.size() < 2) return product(sweep_, block_);
    for (std::size_t a = 0; a < block_.size(); ++a) {
      for (std::size_t b = a + 1; b < block_.size(); ++b) {
        for (std::size_t i = 0; i < block_[a].values.size(); ++i) {
          for (std::size_t j = 0; j < block_[b].values.size(); ++j) missing_.insert({a, i, b, j});
        }
      }
    }
    while (!missing_.empty()) {
      const Pair first = *missing_.begin();
      Choice choice(block_.size(), kOpen);
      choice[first[0]] = first[1];
      choice[first[2]] = first[3];
      if (complete(choice, 0)) {
        met(choice);
        rows_.push_back(settings_of(block_, choice));
      } else {
        missing_.erase(first);  // in skipped rows only
      }
    }
    return std::move(rows_);
  }

 private:
  using Pair = std::array<std::size_t, 4>;  // axis, value, a later axis, its value
  static constexpr std::size_t kOpen = std::size_t(-1);

  static Pair pair(std::size_t a, std::size_t i, std::size_t b, std::size_t j) {
    return a < b ? Pair{a, i, b, j} : Pair{b, j, a, i};
  }
  std::size_t gain(const Choice& choice, std::size_t axis, std::size_t value) const {
    std::size_t n = 0;
    for (std::size_t other = 0; other < choice.size(); ++other) {
      if (other != axis && choice[other] != kOpen) n += missing_.count(pair(axis, value, other, choice[other]));
    }
    return n;
  }
  // Fills the open axes from `axis` on; goes back where only skipped rows are left.
  bool complete(Choice& choice, std::size_t axis) {
    while (axis < choice.size() && choice[axis] != kOpen) ++axis;
    if (axis == choice.size()) return !is_skipped(sweep_, settings_of(block_, choice));
    std::vector<std::pair<std::size_t, std::size_t>> order;  // (pairs not made, value)
    for (std::size_t value = 0; value < block_[axis].values.size(); ++value) {
      order.emplace_back(choice.size() - gain(choice, axis, value), value);
    }
    std::sort(order.begin(), order.end());
    for (const auto& [ignored, value] : order) {
      choice[axis] = value;
      if (complete(choice, axis + 1)) return true;
    }
    choice[axis] = kOpen;
    return false;
  }
  void met(const Choice& choice) {
    for (std::size_t a = 0; a < choice.size(); ++a) {
      for (std::size_t b = a + 1; b < choice.size(); ++b) missing_.erase({a, choice[a], b, choice[b]});
    }
  }

  const Sweep& sweep_;
  const std::vector<SweepAxis>& block_;
  std::set<Pair> missing_;
  std::vector<Settings> rows_;
};

// `n` of the rows, in their order. The generator is defined by the standard, the drawing here: the same seed draws the
// same rows everywhere.
std::vector<Settings> draw(std::vector<Settings> rows, std::size_t n, std::uint64_t seed) {
  if (n >= rows.size()) return rows;
  std::mt19937_64 random(seed);
  std::vector<std::size_t> order(rows.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  for (std::size_t i = 0; i < n; ++i) std::swap(order[i], order[i + random() % (order.size() - i)]);
  order.resize(n);
  std::sort(order.begin(), order.end());
  std::vector<Settings> drawn;
  for (const std::size_t i : order) drawn.push_back(std::move(rows[i]));
  return drawn;
}

}  // namespace

bool varies_world(const Json& written) {
  if (written.is_array()) return std::any_of(written.begin(), written.end(), varies_world);
  for (const char* key : {"world", "world.nodes", "world.ranks_per_node", "world.replicas", "world.pipeline",
                          "world.tensor", "world.context"}) {
    if (written.is_object() && written.contains(key)) return true;
  }
  return false;
}

std::vector<Settings> rows_of(const Sweep& sweep, std::uint64_t seed) {
  std::vector<Settings> rows;
  std::set<Settings> there;
  for (const auto& block : sweep.blocks) {
    const bool pairwise = sweep.mode == Sweep::Mode::pairwise;
    for (Settings& row : pairwise ? Pairwise(sweep, block).rows() : product(sweep, block)) {
      if (there.insert(row).second) rows.push_back(std::move(row));
    }
  }
  if (sweep.mode == Sweep::Mode::sample) return draw(std::move(rows), std::size_t(sweep.sample), seed);
  return rows;
}

std::vector<bool> skips_met(const Sweep& sweep) {
  std::vector<bool> met(sweep.skip.size());
  for (const auto& block : sweep.blocks) {
    Choice choice(block.size());
    do {
      const Settings row = settings_of(block, choice);
      for (std::size_t i = 0; i < met.size(); ++i) met[i] = met[i] || matches(sweep.skip[i], row);
    } while (advance(block, choice));
  }
  return met;
}

std::vector<std::string> sets_of(const Settings& row) {
  std::vector<std::string> sets;
  for (const auto& [key, value] : row) sets.push_back(key + '=' + value);
  return sets;
}

std::vector<std::string> axis_keys(const Sweep& sweep) {
  std::vector<std::string> keys;
  for (const auto& block : sweep.blocks) {
    for (const SweepAxis& axis : block) {
      if (std::find(keys.begin(), keys.end(), axis.key) == keys.end()) keys.push_back(axis.key);
    }
  }
  return keys;
}

std::string short_name(const std::string& key, const std::vector<std::string>& keys) {
  for (std::size_t dot = key.rfind('.'); dot != std::string::npos && dot > 0; dot = key.rfind('.', dot - 1)) {
    const std::string ending = key.substr(dot);
    const auto ends_alike = [&](const std::string& other) {
      return other != key && ('.' + other).size() >= ending.size() &&
             ('.' + other).compare(other.size() + 1 - ending.size(), ending.size(), ending) == 0;
    };
    if (std::none_of(keys.begin(), keys.end(), ends_alike)) return ending.substr(1);
  }
  return key;
}

std::string label(const Settings& row, const std::vector<std::string>& keys) {
  std::vector<std::string> parts;
  for (const auto& [key, value] : row) parts.push_back(short_name(key, keys) + '=' + value);
  return fmt::format("{}", fmt::join(parts, " "));
}

}  // namespace seeksim::harness
