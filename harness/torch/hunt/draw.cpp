#include "harness/torch/hunt/draw.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/input/problem.h"
#include "sim/random.h"

namespace seeksim::harness::torch {
namespace {

using Values = std::map<std::string, std::vector<std::string>>;

constexpr int kCandidates = 24;         // of which the one that covers most is taken
constexpr int kTries = 4000;            // to find them
constexpr std::uint32_t kSeldomIn = 8;  // one case in so many has other ranks than two, or is compiled: they take long

Values values_with(const std::vector<std::string>& only) {
  Values values;
  std::vector<std::string> names;
  for (const Feature& one : features()) {
    values[one.name] = one.values;
    names.push_back(one.name);
  }
  for (const std::string& given : only) {
    const std::size_t sign = given.find('=');
    const std::string name = given.substr(0, sign);
    if (sign == std::string::npos || !values.contains(name))
      throw BadInput("--only " + given, fmt::format("there is no feature {}", in_quotes(name)),
                     did_you_mean(name, names) + " Write --only wrapper=ddp,fsdp2.");
    std::vector<std::string> wanted;
    for (std::size_t at = sign + 1; at <= given.size();) {
      const std::size_t end = std::min(given.find(',', at), given.size());
      wanted.push_back(given.substr(at, end - at));
      at = end + 1;
    }
    const std::vector<std::string>& known = feature(name).values;
    for (const std::string& value : wanted) {
      if (std::find(known.begin(), known.end(), value) == known.end())
        throw BadInput("--only " + given, fmt::format("{} has no value {}", name, in_quotes(value)),
                       did_you_mean(value, known));
    }
    values[name] = wanted;
  }
  return values;
}

const std::string& one_of(const std::vector<std::string>& all, sim::Random& random) {
  return all[random.below(std::uint32_t(all.size()))];
}

Case by_chance(const Values& values, sim::Random& random) {
  Case drawn;
  for (const Feature& one : features()) {
    const std::vector<std::string>& may = values.at(one.name);
    const std::uint32_t often = one.name == "np" || one.name == "compile" ? kSeldomIn : 2;
    const bool other = one.name == "wrapper" || random.below(often) == 0;
    const bool has_plain = std::find(may.begin(), may.end(), one.values.front()) != may.end();
    drawn[one.name] = other || !has_plain ? one_of(may, random) : one.values.front();
  }
  return drawn;
}

}  // namespace

Coverage::Coverage(const std::vector<std::string>& only) : values_(values_with(only)) {
  const std::vector<Feature>& all = features();
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t k = i + 1; k < all.size(); ++k) {
      for (const std::string& a : values_.at(all[i].name)) {
        for (const std::string& b : values_.at(all[k].name)) {
          Pair pair{all[i].name, a, all[k].name, b};
          if (there_is(pair)) possible_[fmt::format("{}={} & {}={}", pair.a, a, pair.b, b)] = std::move(pair);
        }
      }
    }
  }
}

void Coverage::add(const Case& held) {
  for (const std::string& pair : pairs_of(held)) {
    if (possible_.contains(pair)) covered_.insert(pair);
  }
}

bool Coverage::there_is(const Pair& pair) const {
  return std::any_of(values_.at("wrapper").begin(), values_.at("wrapper").end(), [&](const std::string& wrapper) {
    const std::optional<Case> one = with_both(feature(pair.a), pair.of_a, feature(pair.b), pair.of_b, wrapper);
    return one && none_refused(*one);
  });
}

void Coverage::refuse(const Case& part) {
  refused_.push_back(part);
  const auto has = [&](const std::string& name, const std::string& value) {
    const auto found = part.find(name);
    return found != part.end() && found->second == value;
  };
  std::erase_if(possible_, [&](const auto& one) {
    const Pair& pair = one.second;
    return !covered_.contains(one.first) && (has(pair.a, pair.of_a) || has(pair.b, pair.of_b)) && !there_is(pair);
  });
}

bool Coverage::none_refused(const Case& drawn) const {
  return std::none_of(refused_.begin(), refused_.end(), [&](const Case& part) { return holds(drawn, part); });
}

bool Coverage::may_be(const Case& drawn) const {
  for (const Feature& one : features()) {
    const std::vector<std::string>& may = values_.at(one.name);
    if (applies(one, drawn) && std::find(may.begin(), may.end(), drawn.at(one.name)) == may.end()) return false;
  }
  return cannot_be(drawn).empty() && none_refused(drawn);
}

std::vector<std::string> Coverage::missing() const {
  std::vector<std::string> words;
  for (const auto& [pair, parts] : possible_)
    if (!covered_.contains(pair)) words.push_back(pair);
  return words;
}

Case Coverage::draw(std::uint64_t seed, int number) const {
  sim::Random random(seed * 0x9e3779b97f4a7c15ull + std::uint64_t(number), sim::Stream::partial);
  const std::vector<std::string> wanted = missing();
  Case best;
  double most = 0;
  for (int tries = 0, found = 0; tries < kTries && found < kCandidates; ++tries) {
    Case drawn = by_chance(values_, random);
    if (tries % 2 == 0 && !wanted.empty()) {
      const Pair& pair = possible_.at(one_of(wanted, random));
      drawn[pair.a] = pair.of_a;
      drawn[pair.b] = pair.of_b;
    }
    drawn = normal(std::move(drawn));
    if (!may_be(drawn)) continue;
    ++found;
    // The share, not the number: else wrappers with many features would come first for long.
    const Pairs pairs = pairs_of(drawn);
    const auto fresh = std::count_if(pairs.begin(), pairs.end(), [&](const std::string& pair) {
      return possible_.contains(pair) && !covered_.contains(pair);
    });
    const double share = double(fresh) / double(pairs.size());
    if (best.empty() || share > most) {
      best = std::move(drawn);
      most = share;
    }
  }
  return best;
}

}  // namespace seeksim::harness::torch
