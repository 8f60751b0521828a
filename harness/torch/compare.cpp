#include "harness/torch/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include <nlohmann/json.hpp>

#include "harness/input/problem.h"
#include "harness/torch/origin.h"

namespace seeksim::harness::torch {

using pytorch::LossEntry;
using pytorch::RankRecord;
using pytorch::TensorEntry;
using pytorch::TensorUse;

namespace {

// Step, micro-batch, rank; then a weight by its name and the how manieth use, or a loss by its number.
using Key = std::tuple<std::int64_t, std::int32_t, int, bool, std::string, int>;

struct Value {
  std::uint64_t bits = 0;  // hash of a weight, bits of a loss
  pytorch::Measure measure;
  double loss = 0;
  std::int32_t order = 0;
  std::string text;  // what it is, for people
};
using Values = std::map<Key, Value>;

bool is_loss(const Key& key) { return std::get<3>(key); }
std::int64_t step_of(const Key& key) { return std::get<0>(key); }
int rank_of(const Key& key) { return std::get<2>(key); }

void add_rank(const RankRun& rank, Values& values) {
  const RankRecord& record = *rank.record;
  std::map<Key, int> times;
  const auto numbered = [&](Key key) {
    std::get<5>(key) = times[key]++;
    return key;
  };
  for (const TensorEntry& tensor : record.tensors) {
    if (tensor.use != TensorUse::weight || !tensor.whole) continue;
    const Key key = numbered({tensor.step, tensor.micro_batch, rank.rank, false, record.text(tensor.name), 0});
    values[key] = {tensor.hash, tensor.measure, 0, tensor.order,
                   fmt::format("weight {} {} ({})", record.text(tensor.name), record.text(tensor.shape),
                               record.text(tensor.module))};
  }
  for (const LossEntry& loss : record.losses) {
    const Key key = numbered({loss.step, loss.micro_batch, rank.rank, true, "", 0});
    values[key] = {loss.bits, {}, value_of(loss), 0, "loss"};
  }
}

Values values_of(const std::vector<RankRun>& ranks, int first_ranks) {
  Values values;
  for (const RankRun& rank : ranks) {
    if (rank.record && rank.rank < first_ranks) add_rank(rank, values);
  }
  return values;
}

double relative(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  if (!std::isfinite(a) || !std::isfinite(b)) return std::numeric_limits<double>::infinity();
  return std::fabs(a - b) / std::max({std::fabs(a), std::fabs(b), 1e-30});
}

// An estimate for tensors that are not kept: by their norms, and by a sum of their elements with random signs.
double distance(const Value& a, const Value& b) {
  if (!std::isfinite(a.measure.norm) || !std::isfinite(b.measure.norm))
    return std::isfinite(a.measure.norm) == std::isfinite(b.measure.norm) ? 0 : std::numeric_limits<double>::infinity();
  const double norm = std::max({a.measure.norm, b.measure.norm, 1e-30});
  return std::max(std::fabs(a.measure.probe - b.measure.probe), std::fabs(a.measure.norm - b.measure.norm)) / norm;
}

// In the order in which a run comes to them: weights of a forward pass, then its loss.
bool earlier(const Key& a, const Value& at_a, const Key& b, const Value& at_b) {
  const auto place = [](const Key& key, const Value& value) {
    return std::tuple(std::get<0>(key), std::get<1>(key), is_loss(key), value.order, std::get<2>(key));
  };
  return place(a, at_a) < place(b, at_b);
}

// A framework may divide the loss by the accumulation steps, where the script does not see it: a power of two. The loss
// itself may have been rounded to 16 bits.
double loss_scale(const Values& a, const Values& b) {
  for (const auto& [key, value] : a) {
    const auto other = b.find(key);
    if (!is_loss(key) || other == b.end() || value.loss == 0) continue;
    const double factor = other->second.loss / value.loss;
    for (const double known : {0.125, 0.25, 0.5, 2.0, 4.0, 8.0})
      if (relative(factor, known) < bound_of(Grade::rounding)) return known;
    return 1;
  }
  return 1;
}

Grade grade_of(const RunComparison& c) {
  if (c.weights_differ == 0 && c.losses_differ == 0) return Grade::bits;
  const double farthest = std::max(c.weight_distance, c.loss_distance);
  const bool near = c.of_allowed ? *c.of_allowed <= 1 : farthest <= bound_of(Grade::reassociated);
  if (near) return Grade::reassociated;
  return farthest <= bound_of(Grade::rounding) ? Grade::rounding : Grade::different;
}

void hold_to(const Allowance& allowed, RunComparison& c) {
  c.of_allowed = 0;
  for (const auto& [place, distance] : c.distances) {
    const auto& [step, name] = place;
    const double bound = allowed.of(step, name);
    const double part = bound > 0 ? distance / bound : std::numeric_limits<double>::infinity();
    if (part <= *c.of_allowed) continue;
    c.of_allowed = part;
    c.of_what = fmt::format("step {}: {}", step, name.empty() ? "loss" : name);
  }
}

// A pair of values, one of each run: how far apart they are. True: not the same bits.
bool measure(const Key& key, const Value& a, const Value& b, RunComparison& c) {
  (is_loss(key) ? c.losses : c.weights) += 1;
  if (a.bits == b.bits) return false;
  (is_loss(key) ? c.losses_differ : c.weights_differ) += 1;
  const double far = is_loss(key) ? relative(a.loss, b.loss) : distance(a, b);
  double& farthest = is_loss(key) ? c.loss_distance : c.weight_distance;
  farthest = std::max(farthest, far);
  double& here = c.distances[{step_of(key), std::get<4>(key)}];
  here = std::max(here, far);
  return true;
}

// How many weights of the first difference's step and rank differ.
void count_in_step(const Values& a, const Values& b, FirstDifference& first) {
  for (const auto& [key, value] : a) {
    if (is_loss(key) || step_of(key) != first.step || rank_of(key) != first.rank) continue;
    const auto found = b.find(key);
    if (found == b.end()) continue;
    ++first.of_step;
    first.differ_in_step += value.bits != found->second.bits;
  }
}

void add_first(const Key& key, const Value& a, const Value& b, RunComparison& c) {
  FirstDifference first;
  first.step = std::get<0>(key);
  first.micro_batch = std::get<1>(key);
  first.rank = rank_of(key);
  first.what = a.text;
  if (is_loss(key)) first.values = fmt::format("{} and {}", a.loss, b.loss);
  c.first = std::move(first);
}

// Values of one run, whichever rank has them, that no rank of the other has.
std::size_t on_no_rank(const Values& of_one, const Values& of_other) {
  using Anywhere = std::tuple<std::int64_t, std::int32_t, bool, std::string>;
  const auto anywhere = [](const Values& values) {
    std::set<Anywhere> all;
    for (const auto& [key, value] : values) all.emplace(step_of(key), std::get<1>(key), is_loss(key), std::get<4>(key));
    return all;
  };
  const std::set<Anywhere> there = anywhere(of_other);
  std::size_t missing = 0;
  for (const Anywhere& one : anywhere(of_one)) missing += !there.contains(one);
  return missing;
}

int ranks_with_records(const std::vector<RankRun>& ranks) {
  int count = 0;
  for (const RankRun& rank : ranks) count += rank.record.has_value();
  return count;
}

}  // namespace

std::string_view name(Grade grade) {
  constexpr std::string_view kNames[] = {"bits", "reassociated", "rounding", "different"};
  return kNames[std::min<std::size_t>(std::size_t(grade), 3)];
}

double bound_of(Grade grade) {
  switch (grade) {
    case Grade::bits:
      return 0;
    case Grade::reassociated:
      return 1e-6;
    case Grade::rounding:
      return 1e-2;
    default:
      return std::numeric_limits<double>::infinity();
  }
}

RunComparison compare_runs(const std::vector<RankRun>& a, const std::vector<RankRun>& b, const std::string& name_a,
                           const std::string& name_b, const Allowance* allowed) {
  const int in_a = ranks_with_records(a), in_b = ranks_with_records(b);
  for (const auto& [count, folder] : {std::pair(in_a, name_a), std::pair(in_b, name_b)}) {
    if (count == 0)
      throw BadInput(folder, "there is no record of a run (rank-N.rec)", "Name the --out folder of seeksim torch run.");
  }
  RunComparison c;
  // Each rank of another world size sees other samples: only what all ranks share can be compared, and rank 0 has it.
  const int ranks = in_a == in_b ? in_a : 1;
  if (in_a != in_b)
    c.notes.push_back(
        fmt::format("{} ranks against {}: the weights of rank 0 are compared, and no losses", in_a, in_b));
  const Values of_a = values_of(a, ranks);
  Values of_b = values_of(b, ranks);
  const double scale = loss_scale(of_a, of_b);
  if (scale != 1) c.notes.push_back(fmt::format("losses of the second are {} times as large", scale));
  std::set<std::int64_t> steps;
  const Key* first = nullptr;
  const Value* first_value = nullptr;
  for (const auto& [key, value] : of_a) {
    if (is_loss(key) && in_a != in_b) continue;
    const auto found = of_b.find(key);
    if (found == of_b.end()) {
      ++c.only_in_a;
      ++c.names_only_in_a[std::get<4>(key)];
      continue;
    }
    Value& other = found->second;
    if (is_loss(key) && scale != 1) {
      other.loss /= scale;
      other.bits = std::bit_cast<std::uint64_t>(other.loss);
    }
    steps.insert(step_of(key));
    if (!measure(key, value, other, c)) continue;
    if (first != nullptr && !earlier(key, value, *first, *first_value)) continue;
    first = &key;
    first_value = &value;
    add_first(key, value, other, c);
  }
  c.on_no_rank_of_b = on_no_rank(of_a, of_b);
  for (const auto& [key, value] : of_b) c.only_in_b += (!is_loss(key) || in_a == in_b) && !of_a.contains(key);
  if (c.weights + c.losses == 0)
    throw BadInput(name_a, "the two runs recorded no weight and no loss that both have",
                   "Compare runs of the same model, with torch.record.weights_every above 0.");
  c.steps = std::int64_t(steps.size());
  if (allowed != nullptr) hold_to(*allowed, c);
  c.grade = grade_of(c);
  if (!c.first) return c;
  count_in_step(of_a, of_b, *c.first);
  find_origin(a, b, *c.first);
  return c;
}

void Allowance::add(const Distances& of_an_order) {
  ++orders;
  for (const auto& [place, distance] : of_an_order) {
    double& most = measured[place];
    most = std::max(most, distance);
  }
}

void Allowance::spread() {
  for (const auto& [place, distance] : measured) {
    double& most = place.second.empty() ? least_of_losses : least;
    most = std::max(most, distance);
  }
  measured.clear();
}

double Allowance::of(std::int64_t step, const std::string& name) const {
  const auto found = measured.find({step, name});
  const double moved = std::max(found == measured.end() ? 0 : found->second, name.empty() ? least_of_losses : least);
  return std::max(kMargin * moved, double(step) * 0x1p-23);
}

Allowance allowance_of(const std::vector<RankRun>& a, const std::string& name_a,
                       const std::vector<std::string>& other_orders) {
  Allowance allowed;
  for (const std::string& folder : other_orders) {
    const RunComparison found = compare_runs(a, read_ranks(folder, 0), name_a, folder);
    if (found.only_in_a + found.only_in_b > 0)
      throw BadInput(folder, fmt::format("it is no run of {} again: not both recorded the same values", name_a),
                     "Run the same script with the same arguments and --set torch.sums=ORDER.");
    allowed.add(found.distances);
  }
  if (allowed.measured.empty())
    throw BadInput(name_a, "no other order of sums moved it",
                   "Use --set torch.sums=two_parts or three_parts; the others change nothing on two ranks.");
  return allowed;
}

}  // namespace seeksim::harness::torch
