#include "harness/torch/origin.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

namespace seeksim::harness::torch {

using pytorch::CallEntry;
using pytorch::RankRecord;
using pytorch::TensorEntry;
using pytorch::TensorUse;

namespace {

// Whether the forward pass in which runs first differ had yet to come.
bool is_before(const CallEntry& call, const FirstDifference& first) {
  return std::pair(call.step, call.micro_batch) <= std::pair(first.step, first.micro_batch);
}

bool is_same_collective(const CallEntry& a, const CallEntry& b) {
  return a.op == b.op && a.reduce == b.reduce && a.dtype == b.dtype && a.numel == b.numel && a.step == b.step &&
         a.seq == b.seq;
}

// The first collective in which a rank gave or got something else than in the first run.
struct Change {
  std::size_t number = 0;  // of the rank's collectives
  bool gave = false;
  int rank = 0;
  std::string text;
};

std::string placed(const RankRecord& record, const CallEntry& call) {
  const std::string frame = own_frame(record.text(call.stack));
  return describe(record, call) + (frame.empty() ? "" : " at " + frame);
}

// False: the two ranks did not call the same collectives. `changes` gets the first one that differs.
bool first_change(const RankRun& a, const RankRun& b, const FirstDifference& first, std::vector<Change>& changes) {
  const std::vector<CallEntry>&of_a = a.record->calls, &of_b = b.record->calls;
  bool any = false;
  for (std::size_t i = 0; i < of_a.size() && is_before(of_a[i], first); ++i) {
    if (i >= of_b.size() || !is_same_collective(of_a[i], of_b[i])) return false;
    any |= of_a[i].hash_in != 0 || of_a[i].hash_out != 0;
    const bool gave = of_a[i].hash_in != of_b[i].hash_in;
    if (!gave && of_a[i].hash_out == of_b[i].hash_out) continue;
    changes.push_back({i, gave, a.rank, placed(*a.record, of_a[i])});
    return true;
  }
  return any;
}

// Gradients as the optimizer got them, by step and name; of shards nothing can be said.
std::map<std::pair<std::int64_t, std::string>, std::uint64_t> gradients_of(const RankRun& rank, TensorUse use) {
  std::map<std::pair<std::int64_t, std::string>, std::uint64_t> all;
  for (const TensorEntry& tensor : rank.record->tensors) {
    if (tensor.use == use && tensor.whole) all[{tensor.step, rank.record->text(tensor.name)}] = tensor.hash;
  }
  return all;
}

// The first gradient before the difference that is not the same in both; empty: none, or none that both have.
std::string changed_gradient(const RankRun& a, const RankRun& b, const FirstDifference& first, bool& compared) {
  const auto of_a = gradients_of(a, TensorUse::gradient), of_b = gradients_of(b, TensorUse::gradient);
  for (const auto& [key, hash] : of_a) {
    const auto found = of_b.find(key);
    if (found == of_b.end() || key.first >= first.step) continue;
    compared = true;
    if (found->second != hash) return fmt::format("{} in step {}", key.second, key.first);
  }
  return "";
}

void tell_by_gradients(const std::vector<RankRun>& a, const std::vector<RankRun>& b, FirstDifference& first) {
  bool compared = false;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (!a[i].record || !b[i].record) continue;
    const std::string gradient = changed_gradient(a[i], b[i], first, compared);
    if (gradient.empty()) continue;
    first.origin_text = fmt::format(
        "the gradient of {} differed as the optimizer got it on rank {}; the runs called "
        "other collectives, so that it cannot be said whether before or in them",
        gradient, a[i].rank);
    return;
  }
  if (compared) {
    first.origin = Origin::after_collective;
    first.origin_text = "all gradients before it are the same: the optimizer, or what the script did to the weights";
  } else {
    first.origin_text = "the runs called other collectives, and recorded no whole gradients";
  }
}

}  // namespace

std::string_view name(Origin origin) {
  constexpr std::string_view kNames[] = {"unknown", "before_collective", "in_collective", "after_collective"};
  return kNames[std::min<std::size_t>(std::size_t(origin), 3)];
}

void find_origin(const std::vector<RankRun>& a, const std::vector<RankRun>& b, FirstDifference& first) {
  std::vector<Change> changes;
  bool comparable = a.size() == b.size();
  for (std::size_t i = 0; comparable && i < a.size(); ++i) {
    if (a[i].record && b[i].record) comparable = first_change(a[i], b[i], first, changes);
  }
  if (!comparable) {
    tell_by_gradients(a, b, first);
    return;
  }
  // All get the result of a collective after all have given to it: whoever gave something else comes first.
  const auto earliest = std::min_element(changes.begin(), changes.end(), [](const Change& x, const Change& y) {
    return std::tuple(x.number, !x.gave, x.rank) < std::tuple(y.number, !y.gave, y.rank);
  });
  if (earliest == changes.end()) {
    first.origin = Origin::after_collective;
    first.origin_text = "all collectives before it are the same: the optimizer, or what the script did to the weights";
  } else if (earliest->gave) {
    first.origin = Origin::before_collective;
    first.origin_text = fmt::format("rank {} gave something else to {}", earliest->rank, earliest->text);
  } else {
    first.origin = Origin::in_collective;
    first.origin_text =
        fmt::format("all ranks gave the same, and rank {} got something else from {}", earliest->rank, earliest->text);
  }
}

}  // namespace seeksim::harness::torch
