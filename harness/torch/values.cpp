#include "harness/torch/values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "runtime/seams/rank_names.h"

namespace seeksim::harness::torch {

using pytorch::CallEntry;
using pytorch::EntryKind;
using pytorch::LossEntry;
using pytorch::OpName;
using pytorch::Place;
using pytorch::RankRecord;
using pytorch::ReduceName;
using pytorch::StepPhase;
using pytorch::TensorEntry;
using pytorch::TensorUse;
using runtime::rank_names;

namespace {

// A weight or a gradient: step, micro-batch, name, and the how manieth of this name in the micro-batch.
using TensorKey = std::tuple<std::int64_t, std::int32_t, std::string, int>;
struct TensorSeen {
  std::uint64_t hash = 0;
  std::string shape;
  std::int32_t order = 0;
};
using Tensors = std::map<TensorKey, TensorSeen>;

Tensors tensors_of(const RankRecord& record, TensorUse use) {
  Tensors all;
  std::map<std::tuple<std::int64_t, std::int32_t, std::string>, int> times;
  for (const TensorEntry& tensor : record.tensors) {
    if (tensor.use != use || !tensor.whole) continue;
    const std::string& name = record.text(tensor.name);
    const int nth = times[{tensor.step, tensor.micro_batch, name}]++;
    all[{tensor.step, tensor.micro_batch, name, nth}] = {tensor.hash, record.text(tensor.shape), tensor.order};
  }
  return all;
}

std::vector<std::vector<int>> replica_groups(const TorchRun& run) {
  if (!run.scenario.torch.replicas.empty()) return run.scenario.torch.replicas;
  std::vector<int> all;
  for (const RankRun& rank : run.ranks) all.push_back(rank.rank);
  return {all};
}

// What members of one replica group recorded of one use of tensors, and where they first differ.
struct Comparison {
  std::size_t compared = 0;
  std::set<std::int64_t> steps;
  bool differ = false;
  TensorKey first;
  std::string shape;
  std::vector<int> odd, others;  // ranks; where there are no more of one kind, `odd` has the later ones
  std::size_t of_step = 0, differ_in_step = 0;
};

// Splits the ranks of one tensor by what they hold; true: they differ.
bool split(const std::map<int, std::uint64_t>& hashes, std::vector<int>& odd, std::vector<int>& others) {
  std::map<std::uint64_t, std::vector<int>> by_hash;
  for (const auto& [rank, hash] : hashes) by_hash[hash].push_back(rank);
  if (by_hash.size() < 2) return false;
  const auto most = std::max_element(by_hash.begin(), by_hash.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second.size(), -a.second.front()) < std::pair(b.second.size(), -b.second.front());
  });
  odd.clear();
  others = most->second;
  for (const auto& [hash, ranks] : by_hash) {
    if (hash != most->first) odd.insert(odd.end(), ranks.begin(), ranks.end());
  }
  std::sort(odd.begin(), odd.end());
  return true;
}

Comparison compare(const TorchRun& run, const std::vector<int>& group, TensorUse use) {
  std::map<TensorKey, std::map<int, std::uint64_t>> hashes;
  std::map<TensorKey, TensorSeen> seen;
  for (const int rank : group) {
    if (std::size_t(rank) >= run.ranks.size() || !run.ranks[std::size_t(rank)].record) continue;
    for (const auto& [key, tensor] : tensors_of(*run.ranks[std::size_t(rank)].record, use)) {
      hashes[key][rank] = tensor.hash;
      seen.emplace(key, tensor);
    }
  }
  Comparison found;
  std::vector<int> odd, others;
  for (const auto& [key, of_ranks] : hashes) {
    if (of_ranks.size() < 2) continue;
    ++found.compared;
    found.steps.insert(std::get<0>(key));
    const bool differs = split(of_ranks, odd, others);
    const auto place = [&](const TensorKey& of) {
      return std::tuple(std::get<0>(of), std::get<1>(of), seen.at(of).order, std::get<2>(of));
    };
    if (!differs || (found.differ && place(found.first) <= place(key))) continue;
    found.differ = true;
    found.first = key;
    found.shape = seen.at(key).shape;
    found.odd = odd;
    found.others = others;
  }
  for (const auto& [key, of_ranks] : hashes) {
    if (!found.differ || of_ranks.size() < 2 || std::get<0>(key) != std::get<0>(found.first)) continue;
    ++found.of_step;
    found.differ_in_step += split(of_ranks, odd, others);
  }
  return found;
}

std::string odd_ones(const Comparison& c) {
  return c.odd.size() < c.others.size()
             ? fmt::format("{} differ{} from {}", rank_names(c.odd), c.odd.size() == 1 ? "s" : "", rank_names(c.others))
             : fmt::format("{} and {} differ", rank_names(c.others), rank_names(c.odd));
}

// Where the gradients that led there differed first.
std::string gradient_before(const TorchRun& run, const std::vector<int>& group, std::int64_t step) {
  const Comparison gradients = compare(run, group, TensorUse::gradient);
  if (gradients.compared == 0) return "";
  if (!gradients.differ || std::get<0>(gradients.first) >= step)
    return ". The gradients before it were equal: the weights were changed otherwise";
  return fmt::format(". The gradient of {} differed already as the optimizer got it in step {}",
                     std::get<2>(gradients.first), std::get<0>(gradients.first));
}

// A value that is not finite, where a rank first met it.
struct Birth {
  int rank = -1;
  std::int64_t step = 0;
  std::int64_t time_ns = std::numeric_limits<std::int64_t>::max();
  std::string where;
  bool before_optimizer = false;  // it was given to a sum of a forward or a backward pass
};

// Sums of infinity are a mistake; a minimum that begins with infinity is none.
bool is_sum(ReduceName reduce) {
  return reduce == ReduceName::sum || reduce == ReduceName::avg || reduce == ReduceName::premul_sum;
}

bool broken(const TensorEntry& tensor) { return !std::isfinite(tensor.measure.norm); }

// The first one of a rank. A tensor has no time of its own: it has that of all that was recorded before it, and of a
// collective before it that of its end, so that a value which came with a sum is younger than what was given to it.
std::optional<Birth> first_birth(const RankRun& rank) {
  const RankRecord& record = *rank.record;
  std::int64_t time_ns = record.now.started_ns;
  for (const Place& place : record.order) {
    if (place.kind == EntryKind::call) {
      const CallEntry& call = record.calls[place.index];
      if (call.nonfinite_in && is_sum(call.reduce))
        return Birth{rank.rank, call.step, call.created_ns, "what it gave to " + describe(record, call),
                     call.phase == StepPhase::forward || call.phase == StepPhase::backward};
      time_ns = std::max({time_ns, call.created_ns, call.finished_ns});
    } else if (place.kind == EntryKind::loss) {
      const LossEntry& loss = record.losses[place.index];
      if (!std::isfinite(value_of(loss)))
        return Birth{rank.rank, loss.step, loss.time_ns,
                     fmt::format("its loss in step {}, micro-batch {}", loss.step, loss.micro_batch), false};
      time_ns = std::max(time_ns, loss.time_ns);
    } else if (place.kind == EntryKind::step) {
      time_ns = std::max(time_ns, record.steps[place.index].time_ns);
    } else if (place.kind == EntryKind::tensor && broken(record.tensors[place.index])) {
      const TensorEntry& tensor = record.tensors[place.index];
      return Birth{rank.rank, tensor.step, time_ns,
                   fmt::format("the {} {} in step {}, {}", name(tensor.use), record.text(tensor.name), tensor.step,
                               name(tensor.phase)),
                   false};
    }
  }
  return std::nullopt;
}

// Whether what was born came into a weight or a loss, or nobody could see that it did not. Weights of later steps show
// it, and so do the gradients that the optimizer got: DeepSpeed's ZeRO 3 lets a sum have padding that nobody has
// written.
bool has_spread(const TorchRun& run, const Birth& birth) {
  bool later_weights = false, gradients = false, broken_gradients = false;
  for (const RankRun& rank : run.ranks) {
    if (!rank.record) continue;
    for (const LossEntry& loss : rank.record->losses)
      if (!std::isfinite(value_of(loss))) return true;
    for (const TensorEntry& tensor : rank.record->tensors) {
      if (tensor.use == TensorUse::gradient && tensor.step == birth.step) {
        gradients = true;
        broken_gradients |= broken(tensor);
      }
      if (tensor.use != TensorUse::weight) continue;
      later_weights |= tensor.step > birth.step;
      if (broken(tensor)) return true;
    }
  }
  return !later_weights && !(birth.before_optimizer && gradients && !broken_gradients);
}

}  // namespace

Finding replicas_equal(const TorchRun& run) {
  std::size_t compared = 0;
  std::set<std::int64_t> steps;
  for (const std::vector<int>& group : replica_groups(run)) {
    const Comparison weights = compare(run, group, TensorUse::weight);
    compared += weights.compared;
    steps.insert(weights.steps.begin(), weights.steps.end());
    if (!weights.differ) continue;
    const auto& [step, micro_batch, name, nth] = weights.first;
    return bad(fmt::format("step {}: {} {}: {} ({} of {} weights of that step){}", step, name, weights.shape,
                           odd_ones(weights), weights.differ_in_step, weights.of_step,
                           gradient_before(run, group, step)));
  }
  if (compared == 0) return blind("no weight was recorded by two ranks");
  return good(fmt::format("{} weights that forward passes used in {} step{} are the same bits on each rank", compared,
                          steps.size(), steps.size() == 1 ? "" : "s"));
}

Finding losses_finite(const TorchRun& run) {
  std::size_t looked = 0;
  std::optional<std::tuple<std::int64_t, std::int32_t, int, double>> first;  // step, micro-batch, rank, value
  for (const RankRun& rank : run.ranks) {
    if (!rank.record) continue;
    for (const LossEntry& loss : rank.record->losses) {
      ++looked;
      if (std::isfinite(value_of(loss))) continue;
      const std::tuple found(loss.step, loss.micro_batch, rank.rank, value_of(loss));
      if (!first || found < *first) first = found;
    }
  }
  if (first) {
    const auto& [step, micro_batch, rank, value] = *first;
    return bad(fmt::format("rank {}: the loss of step {}, micro-batch {}, is {}", rank, step, micro_batch, value));
  }
  return looked == 0 ? blind("no loss was recorded") : good(fmt::format("{} losses", looked));
}

Finding finite(const TorchRun& run) {
  std::optional<Birth> first;
  std::size_t looked = 0;
  for (const RankRun& rank : run.ranks) {
    if (!rank.record) continue;
    looked += rank.record->calls.size() + rank.record->tensors.size() + rank.record->losses.size();
    const std::optional<Birth> birth = first_birth(rank);
    if (birth && (!first || birth->time_ns < first->time_ns)) first = birth;
  }
  if (looked == 0) return blind("nothing was recorded");
  if (!first) return good(fmt::format("{} collectives, tensors and losses", looked));
  const std::string text = fmt::format("rank {}: {} was the first that was not finite", first->rank, first->where);
  return has_spread(run, *first) ? bad(text) : good(text + "; weights and losses stayed finite");
}

Finding loss_falls(const TorchRun& run) {
  std::map<std::int64_t, std::pair<double, int>> by_step;  // sum, and of how many
  for (const RankRun& rank : run.ranks) {
    if (!rank.record) continue;
    for (const LossEntry& loss : rank.record->losses) {
      by_step[loss.step].first += value_of(loss);
      ++by_step[loss.step].second;
    }
  }
  if (by_step.size() < 4) return blind(fmt::format("{} steps have a loss; it takes 4", by_step.size()));
  std::vector<double> means;
  for (const auto& [step, sum] : by_step) means.push_back(sum.first / sum.second);
  const std::size_t quarter = means.size() / 4;
  double before = 0, after = 0;
  for (std::size_t i = 0; i < quarter; ++i) {
    before += means[i] / double(quarter);
    after += means[means.size() - 1 - i] / double(quarter);
  }
  const std::string text =
      fmt::format("{:.6g} in the first quarter of {} steps, {:.6g} in the last", before, means.size(), after);
  return after < before ? good(text) : bad(text);
}

}  // namespace seeksim::harness::torch
