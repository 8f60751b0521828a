#include "harness/torch/check/resumed.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "runtime/seams/enum_names.h"

namespace seeksim::harness::torch {

using pytorch::LossEntry;
using pytorch::RankRecord;
using pytorch::SightEntry;
using pytorch::SightKind;
using pytorch::TensorEntry;
using pytorch::TensorUse;

namespace {

constexpr runtime::EnumNames<Part> kParts({{Part::weights, "weights"},
                                           {Part::buffers, "buffers"},
                                           {Part::optimizer, "optimizer"},
                                           {Part::scheduler, "scheduler"},
                                           {Part::scaler, "scaler"},
                                           {Part::sampler, "sampler"},
                                           {Part::rng, "rng"},
                                           {Part::input, "input"}});

// A part of a step's beginning, or what the step makes.
enum class Kind : std::uint8_t { part, loss, left };
// Step, kind, part, name, and the how manieth of this name in the step.
using Key = std::tuple<std::int64_t, Kind, Part, std::string, int>;
struct Value {
  std::uint64_t bits = 0;
  std::string text;  // of a part that has one
  friend bool operator==(const Value&, const Value&) = default;
};
using Values = std::map<Key, Value>;

Part part_of(const std::string& name) {
  const std::string first = name.substr(0, name.find('.'));
  if (first == "samples" || first == "sampler") return Part::sampler;
  if (first == "rng") return Part::rng;
  if (first == "input") return Part::input;
  return first == "scaler" ? Part::scaler : Part::scheduler;
}

Part part_of(TensorUse use) {
  return use == TensorUse::buffer ? Part::buffers : use == TensorUse::state ? Part::optimizer : Part::weights;
}

// What a rank had and made in each step, with steps counted from `first`.
Values values_of(const RankRecord& record, std::int64_t first) {
  Values values;
  std::map<Key, int> times;
  const auto add = [&](std::int64_t step, Kind kind, Part part, const std::string& name, Value value) {
    Key key{step + first, kind, part, name, 0};
    std::get<4>(key) = times[key]++;
    values[key] = std::move(value);
  };
  for (const TensorEntry& tensor : record.tensors) {
    if (tensor.use == TensorUse::gradient || tensor.use == TensorUse::local_gradient) continue;
    const Kind kind = tensor.use == TensorUse::left ? Kind::left : Kind::part;
    add(tensor.step, kind, part_of(tensor.use), record.text(tensor.name), {tensor.hash, ""});
  }
  for (const SightEntry& sight : record.sights) {
    const std::string& name = record.text(sight.name);
    if (sight.kind == SightKind::state) add(sight.step, Kind::part, part_of(name), name, {0, record.text(sight.text)});
  }
  for (const LossEntry& loss : record.losses) add(loss.step, Kind::loss, Part::weights, "", {loss.bits, ""});
  return values;
}

// The weights with which a step of a rank begins.
std::map<std::string, std::uint64_t> weights_at(const RankRecord& record, std::int64_t step) {
  std::map<std::string, std::uint64_t> found;
  for (const TensorEntry& tensor : record.tensors) {
    if (tensor.use == TensorUse::weight && tensor.step == step && tensor.micro_batch == 0)
      found.emplace(record.text(tensor.name), tensor.hash);
  }
  return found;
}

// The step of the whole run with whose weights the other one began: `likely`, or else the last one.
std::optional<std::int64_t> step_by_weights(const RankRecord& whole, const RankRecord& resumed, std::int64_t likely) {
  const auto begins = weights_at(resumed, 0);
  if (!begins.empty() && weights_at(whole, likely) == begins) return likely;
  for (std::int64_t step = std::int64_t(whole.steps.size()) - 1; step >= 0 && !begins.empty(); --step)
    if (weights_at(whole, step) == begins) return step;
  return std::nullopt;
}

// One part of one rank at one step: how much of it differs, and the first of it.
struct Difference {
  int rank = 0;
  std::size_t of = 0, differ = 0, gone = 0;
  std::string name, is, was;
};

// In how many of its steps a generator stands elsewhere than in the one before. One that stands still explains nothing;
// one that moves now and then is a loader's, which draws a seed as an epoch begins.
struct Moves {
  int times = 0, of = 0;
  bool ever() const { return times > 0; }
  bool mostly() const { return 2 * times > of; }
};
Moves moves(const Values& values, const std::string& name) {
  Moves moved;
  const Value* before = nullptr;
  for (const auto& [key, value] : values) {
    if (std::get<3>(key) != name) continue;
    if (before != nullptr) ++moved.of, moved.times += value != *before;
    before = &value;
  }
  return moved;
}

bool has_result(const Key& key) { return std::get<1>(key) != Kind::part || std::get<2>(key) == Part::weights; }

class Comparing {
 public:
  Comparing(const std::vector<RankRun>& whole, const std::vector<RankRun>& resumed, Resumption& found) : found_(found) {
    for (std::size_t i = 0; i < std::min(whole.size(), resumed.size()); ++i) {
      if (!whole[i].record || !resumed[i].record) continue;
      ranks_.push_back({whole[i].rank, values_of(*whole[i].record, 0), values_of(*resumed[i].record, found.first)});
    }
  }
  void compare();

 private:
  struct Rank {
    int rank;
    Values whole, resumed;
  };
  void hold(const Key& key, const Value& was, const Rank& rank);
  std::optional<Difference> difference(Part part) const;
  std::string sentence(Part part, const Difference& d) const;
  // Whether a generator that differs may be why. Where what is trained differs, a seed of a loader's is not.
  bool explains(const Moves& moves) const {
    const bool other_cause = !found_.differ.empty() && found_.differ.front() < Part::sampler;
    return other_cause ? moves.mostly() : moves.ever();
  }

  Resumption& found_;
  std::vector<Rank> ranks_;
};

void Comparing::hold(const Key& key, const Value& was, const Rank& rank) {
  if (!has_result(key) || std::get<0>(key) < found_.first) return;
  const auto is = rank.resumed.find(key);
  (std::get<1>(key) == Kind::loss ? found_.losses : found_.weights) += 1;
  if (is != rank.resumed.end() && is->second == was) return;
  if (found_.step < 0 || std::get<0>(key) < found_.step) found_.step = std::get<0>(key);
}

std::optional<Difference> Comparing::difference(Part part) const {
  for (const Rank& rank : ranks_) {
    Difference d;
    d.rank = rank.rank;
    for (const auto& [key, was] : rank.whole) {
      if (std::get<0>(key) != found_.step || std::get<1>(key) != Kind::part || std::get<2>(key) != part) continue;
      if (part == Part::rng && !explains(moves(rank.whole, std::get<3>(key)))) continue;
      ++d.of;
      const auto is = rank.resumed.find(key);
      if (is != rank.resumed.end() && is->second == was) continue;
      d.gone += is == rank.resumed.end();
      if (d.differ++ > 0) continue;
      d.name = std::get<3>(key);
      d.was = was.text;
      d.is = is == rank.resumed.end() ? "" : is->second.text;
    }
    if (d.differ > 0) return d;
  }
  return std::nullopt;
}

std::string Comparing::sentence(Part part, const Difference& d) const {
  const std::string many = d.of > 1 ? fmt::format(" ({} of {})", d.differ, d.of) : "";
  const std::string what = d.gone == d.differ ? "is not there" : "differs";
  switch (part) {
    case Part::weights:
      return fmt::format("the weight {} {}{}", d.name, what, many);
    case Part::buffers:
      return fmt::format("the buffer {} {}{}", d.name, what, many);
    case Part::optimizer:
      return fmt::format("the optimizer's state {} {}{}", d.name, what, many);
    case Part::scheduler:
    case Part::scaler:
      return fmt::format("the {} {} is {}, and was {}", part == Part::scaler ? "loss scaler's" : "schedule's", d.name,
                         d.is.empty() ? "not there" : d.is, d.was);
    case Part::sampler:
      return d.name == "sampler.epoch" ? fmt::format("the sampler is in epoch {}, and was in epoch {}", d.is, d.was)
                                       : "other samples come";
    case Part::rng:
      return fmt::format("the random generator {} stands elsewhere", d.name);
    default:
      return "the model gets another input";
  }
}

void Comparing::compare() {
  for (const Rank& rank : ranks_)
    for (const auto& [key, was] : rank.whole) hold(key, was, rank);
  found_.same = found_.step < 0 && found_.weights > 0;
  if (found_.same) {
    found_.text = fmt::format("the same bits: {} weights, {} losses of {} step{}", found_.weights, found_.losses,
                              found_.own_steps, found_.own_steps == 1 ? "" : "s");
    return;
  }
  std::vector<std::string> parts;
  for (int i = 0; i < int(Part::count_); ++i) {
    const std::optional<Difference> d = difference(Part(i));
    if (!d) continue;
    found_.differ.push_back(Part(i));
    parts.push_back(sentence(Part(i), *d) + (parts.empty() ? fmt::format(" on rank {}", d->rank) : ""));
  }
  if (parts.empty())
    parts.emplace_back(
        "its result differs, and nothing that is watched differs as it begins: is there a state of the script's own?");
  found_.text = fmt::format("step {}{}: {}", found_.step,
                            found_.step == found_.first ? ", the first after the resume" : "", fmt::join(parts, "; "));
}

}  // namespace

std::string_view name(Part part) { return kParts.of(part); }

Resumption hold_resumed(const std::vector<RankRun>& whole, const std::vector<RankRun>& resumed) {
  Resumption found;
  if (whole.empty() || resumed.empty() || !whole.front().record || !resumed.front().record) {
    found.text = "a run left no record";
    return found;
  }
  const RankRecord& a = *whole.front().record;
  const RankRecord& b = *resumed.front().record;
  found.whole_steps = std::int64_t(a.steps.size());
  found.own_steps = std::int64_t(b.steps.size());
  found.first = found.whole_steps - found.own_steps;
  const std::optional<std::int64_t> by_weights = step_by_weights(a, b, found.first);
  if (found.own_steps == 0 || found.first < 0 || (by_weights && *by_weights != found.first)) {
    const std::int64_t at = by_weights.value_or(std::max<std::int64_t>(found.first, 0));
    found.differ = {Part::sampler};
    found.text = fmt::format(
        "it goes on with the weights of step {}, and makes {} steps where {} are left: its place in the data, or the "
        "number of its step, did not come back",
        at, found.own_steps, found.whole_steps - at);
    return found;
  }
  Comparing(whole, resumed, found).compare();
  return found;
}

}  // namespace seeksim::harness::torch
