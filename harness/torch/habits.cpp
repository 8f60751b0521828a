#include "harness/torch/habits.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace seeksim::harness::torch {

using pytorch::DType;
using pytorch::RankRecord;
using pytorch::SightEntry;
using pytorch::SightKind;
using pytorch::TensorEntry;
using pytorch::TensorUse;

namespace {

// Fewer steps than this, and a weight may stand still by a rate of 0 in the first ones.
constexpr std::int64_t kStepsToMove = 3;
// Shorter orders may be the same by chance.
constexpr std::size_t kOrderLong = 8;

// The first sight of a kind on the lowest rank that has one; null: there is none.
const SightEntry* first_sight(const TorchRun& run, SightKind kind, const RankRun*& of) {
  for (const RankRun& rank : run.ranks) {
    if (!rank.record) continue;
    for (const SightEntry& sight : rank.record->sights) {
      if (sight.kind != kind) continue;
      of = &rank;
      return &sight;
    }
  }
  return nullptr;
}

bool has_steps(const TorchRun& run) {
  return std::any_of(run.ranks.begin(), run.ranks.end(),
                     [](const RankRun& rank) { return rank.record && !rank.record->steps.empty(); });
}

// A sample: its index in the data set, and a digest of what it holds, for each rank may have a data set of its own.
using Sample = std::pair<std::int64_t, std::int64_t>;

// The samples of a batch, "7:123,9:456"; a record is a file, and what is no number ends the list.
std::vector<Sample> samples_of(const std::string& text) {
  std::vector<Sample> found;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    Sample sample;
    const auto index = std::from_chars(at, end, sample.first);
    if (index.ec != std::errc() || index.ptr == end || *index.ptr != ':') break;
    const auto digest = std::from_chars(index.ptr + 1, end, sample.second);
    if (digest.ec != std::errc()) break;
    found.push_back(sample);
    at = digest.ptr == end ? end : digest.ptr + 1;
  }
  return found;
}

struct Batch {
  int rank = 0;
  std::int64_t number = 0;
  std::vector<Sample> samples;
};
using Epochs = std::map<std::string, std::vector<Batch>>;  // "loader 0, epoch 1 shuffled" and its batches

// All passes over loaders on whose batches a backward pass followed. Validation may read what it likes.
Epochs epochs_of(const TorchRun& run) {
  Epochs epochs;
  for (const RankRun& rank : run.ranks) {
    if (!rank.record) continue;
    std::set<std::string> trained;
    for (const SightEntry& sight : rank.record->sights)
      if (sight.kind == SightKind::trains_on) trained.insert(rank.record->text(sight.name));
    for (const SightEntry& sight : rank.record->sights) {
      const std::string& name = rank.record->text(sight.name);
      if (sight.kind != SightKind::batch || !trained.contains(name.substr(0, name.find(',')))) continue;
      epochs[name].push_back({rank.rank, sight.step, samples_of(rank.record->text(sight.text))});
    }
  }
  return epochs;
}

// Tensor parallel ranks read the same samples, and hold parts of weights.
bool holds_parts(const TorchRun& run) {
  for (const RankRun& rank : run.ranks) {
    if (!rank.record) continue;
    for (const TensorEntry& tensor : rank.record->tensors)
      if (tensor.use == TensorUse::weight && !tensor.whole) return true;
  }
  return !run.scenario.torch.replicas.empty();
}

// Samples that come twice in an epoch. The last batch of each rank is left out: samplers fill it up.
std::string twice(const std::string& epoch, const std::vector<Batch>& batches) {
  std::map<int, std::int64_t> last;
  for (const Batch& batch : batches) last[batch.rank] = std::max(last[batch.rank], batch.number);
  std::map<Sample, const Batch*> seen;
  for (const Batch& batch : batches) {
    if (batch.number == last[batch.rank]) continue;
    for (const Sample& sample : batch.samples) {
      const auto [at, is_new] = seen.emplace(sample, &batch);
      if (is_new) continue;
      const Batch& other = *at->second;
      const bool same = other.rank != batch.rank && other.number == batch.number && other.samples == batch.samples;
      return same ? fmt::format("{}: ranks {} and {} read the same samples in batch {}: use a DistributedSampler",
                                epoch, other.rank, batch.rank, batch.number)
                  : fmt::format("{}: sample {} comes twice: rank {} has it in batch {}, rank {} in batch {}", epoch,
                                sample.first, other.rank, other.number, batch.rank, batch.number);
    }
  }
  return "";
}

// A batch that a loader drew, and the script never got: one before it and one behind it came.
std::string left_out(const std::string& epoch, const std::vector<Batch>& batches) {
  std::map<int, std::set<std::int64_t>> numbers;
  for (const Batch& batch : batches) numbers[batch.rank].insert(batch.number);
  for (const auto& [rank, of_rank] : numbers) {
    std::int64_t before = *of_rank.begin();
    for (const std::int64_t number : of_rank) {
      if (number > before + 1)
        return fmt::format("{}: rank {} never gets batch {}, between two that it gets", epoch, rank, before + 1);
      before = number;
    }
  }
  return "";
}

// The samples of rank 0, or of the lowest rank, in their order.
std::vector<std::int64_t> order_of(const std::vector<Batch>& batches) {
  std::vector<std::int64_t> order;
  for (const Batch& batch : batches) {
    if (batch.rank != batches.front().rank) continue;
    for (const Sample& sample : batch.samples) order.push_back(sample.first);
  }
  return order;
}

// An update may be too small to show in a weight of this type: engines keep a copy of 32 bits elsewhere.
bool is_narrow(DType type) {
  return type == DType::fp16 || type == DType::bf16 || type == DType::fp8_e4m3 || type == DType::fp8_e5m2;
}

// Steps in which the gradients of all micro-batches but the last were cleared. A script may drop a bad batch so: it
// does not do that in most steps.
std::string gradients_lost(const RankRun& rank) {
  const SightEntry* first = nullptr;
  std::set<std::int64_t> steps;
  for (const SightEntry& sight : rank.record->sights) {
    if (sight.kind != SightKind::lost_gradient) continue;
    if (first == nullptr) first = &sight;
    steps.insert(sight.step);
  }
  if (steps.size() < 2 || 2 * steps.size() < rank.record->steps.size()) return "";
  return fmt::format(
      "rank {}: zero_grad() comes between the backward passes of {} of {} steps, first step {}, and the gradients of "
      "all "
      "micro-batches but the last are lost ({}): call it once, after optimizer.step()",
      rank.rank, steps.size(), rank.record->steps.size(), first->step, rank.record->text(first->name));
}

// A step that adds up more micro-batches than the one before, for the end of an epoch lies in it.
std::string left_over(const RankRun& rank) {
  const RankRecord& record = *rank.record;
  std::int32_t before = 0;
  std::set<std::string> epochs;
  for (const pytorch::Place& place : record.order) {
    if (place.kind == pytorch::EntryKind::sight) {
      const SightEntry& sight = record.sights[place.index];
      if (sight.kind == SightKind::batch) epochs.insert(record.text(sight.name));
    }
    if (place.kind != pytorch::EntryKind::step) continue;
    const pytorch::StepEntry& step = record.steps[place.index];
    if (epochs.size() > 1 && before > 1 && step.micro_batches > before)
      return fmt::format(
          "rank {}, step {}: it adds up {} micro-batches, the step before {}: what was left over at the end of {} ran "
          "into the next epoch: make a step there, or clear it",
          rank.rank, step.step, step.micro_batches, before, *epochs.begin());
    before = step.micro_batches;
    epochs.clear();
  }
  return "";
}

// What a rank of the run shows of itself, of the lowest rank that shows something.
template <class Look>
std::string of_some_rank(const TorchRun& run, Look look) {
  for (const RankRun& rank : run.ranks) {
    if (!rank.record) continue;
    if (std::string text = look(rank); !text.empty()) return text;
  }
  return "";
}

}  // namespace

Finding samples(const TorchRun& run) {
  if (holds_parts(run)) return blind("ranks hold parts of weights: some may have to read the same samples");
  const Epochs epochs = epochs_of(run);
  std::size_t count = 0;
  std::map<std::vector<std::int64_t>, std::string> orders;
  for (const auto& [epoch, batches] : epochs) {
    if (const std::string text = twice(epoch, batches); !text.empty()) return bad(text);
    if (const std::string text = left_out(epoch, batches); !text.empty()) return bad(text);
    for (const Batch& batch : batches) count += batch.samples.size();
    if (!epoch.ends_with(" shuffled")) continue;
    const std::vector<std::int64_t> order = order_of(batches);
    const auto [at, is_new] = orders.emplace(order, epoch);
    const bool same_loader = at->second.substr(0, at->second.find(',')) == epoch.substr(0, epoch.find(','));
    if (!is_new && same_loader && order.size() >= kOrderLong)
      return bad(
          fmt::format("{} has the order of {}: call the sampler's set_epoch() before each epoch", epoch, at->second));
  }
  if (count == 0) return blind("no DataLoader was trained on");
  return good(fmt::format("{} samples in {} epoch{}, none twice in an epoch", count, epochs.size(),
                          epochs.size() == 1 ? "" : "s"));
}

Finding weights_move(const TorchRun& run) {
  std::size_t looked = 0, narrow = 0;
  for (const RankRun& rank : run.ranks) {
    if (!rank.record) continue;
    const RankRecord& record = *rank.record;
    std::set<std::string> trains;
    for (const SightEntry& sight : record.sights)
      if (sight.kind == SightKind::trains) trains.insert(record.text(sight.name));
    // By name and the how manieth of it in its step.
    std::map<std::pair<std::string, int>, std::vector<std::uint64_t>> hashes;
    std::map<std::pair<std::int64_t, std::string>, int> times;
    for (const TensorEntry& tensor : record.tensors) {
      const std::string& name = record.text(tensor.name);
      if (is_narrow(tensor.dtype)) {
        ++narrow;
        continue;
      }
      if (tensor.use == TensorUse::weight && trains.contains(name))
        hashes[{name, times[{tensor.step, name}]++}].push_back(tensor.hash);
    }
    std::vector<std::string> still;
    for (const auto& [key, of_steps] : hashes) {
      if (std::int64_t(of_steps.size()) < kStepsToMove) continue;
      ++looked;
      if (std::all_of(of_steps.begin(), of_steps.end(), [&](std::uint64_t hash) { return hash == of_steps.front(); }))
        still.push_back(key.first);
    }
    if (still.empty()) continue;
    return bad(fmt::format(
        "rank {}: {} requires a gradient and never changed in {} steps ({} of {} weights): does it get a gradient "
        "before the optimizer's step, and does the optimizer have it?",
        rank.rank, still.front(), record.steps.size(), still.size(), hashes.size()));
  }
  if (looked == 0 && narrow > 0) return blind("an update may be too small to show in weights of 16 bits");
  if (looked == 0) return blind("it takes three steps");
  return good(fmt::format("{} weights that require a gradient changed", looked));
}

Finding gradients_cleared(const TorchRun& run) {
  const RankRun* rank = nullptr;
  if (const SightEntry* sight = first_sight(run, SightKind::old_gradient, rank))
    return bad(
        fmt::format("rank {}, step {}: the gradient of {} still has that of the step before in it: call "
                    "optimizer.zero_grad() once a step",
                    rank->rank, sight->step, rank->record->text(sight->name)));
  if (const SightEntry* sight = first_sight(run, SightKind::no_gradient, rank))
    return bad(
        fmt::format("rank {}, step {}: none of {} has a gradient though backward() ran: does zero_grad() come before "
                    "optimizer.step(), or does a wrapper not reduce them?",
                    rank->rank, sight->step, rank->record->text(sight->name)));
  if (const std::string text = of_some_rank(run, gradients_lost); !text.empty()) return bad(text);
  return has_steps(run) ? good("each step began with gradients of its own") : blind("no step was made");
}

Finding train_mode(const TorchRun& run) {
  const RankRun* rank = nullptr;
  if (const SightEntry* sight = first_sight(run, SightKind::left_eval, rank))
    return bad(
        fmt::format("rank {}, step {}: {} is trained on in eval(), and was in train() before: call model.train() "
                    "after validation",
                    rank->rank, sight->step, rank->record->text(sight->name)));
  if (const SightEntry* sight = first_sight(run, SightKind::left_train, rank))
    return bad(
        fmt::format("rank {}, step {}: {} is in train() in a forward pass without gradients: call model.eval() "
                    "before validation",
                    rank->rank, sight->step, rank->record->text(sight->name)));
  return has_steps(run) ? good("train() in training, eval() in validation") : blind("no step was made");
}

Finding clips_in_time(const TorchRun& run) {
  const RankRun* rank = nullptr;
  if (const SightEntry* sight = first_sight(run, SightKind::late_clip, rank))
    return bad(
        fmt::format("rank {}, step {}: gradients are clipped when no backward pass has come since the last step: "
                    "clip between backward() and optimizer.step()",
                    rank->rank, sight->step));
  return has_steps(run) ? good("no clipping outside backward() and step()") : blind("no step was made");
}

Finding losses_divided(const TorchRun& run) {
  const RankRun* rank = nullptr;
  if (const SightEntry* sight = first_sight(run, SightKind::undivided, rank))
    return bad(fmt::format("rank {}, step {}: {} add up their mean losses: divide each by their number", rank->rank,
                           sight->step, rank->record->text(sight->name)));
  if (const std::string text = of_some_rank(run, left_over); !text.empty()) return bad(text);
  return has_steps(run) ? good("no step adds up undivided losses") : blind("no step was made");
}

std::size_t samples_together(const TorchRun& run) {
  const Epochs epochs = epochs_of(run);
  if (epochs.empty()) return 0;
  std::size_t count = 0;
  for (const Batch& batch : epochs.begin()->second)
    if (batch.number == 0) count += batch.samples.size();
  return count;
}

bool has_sight(const TorchRun& run, SightKind kind, std::string_view name) {
  for (const RankRun& rank : run.ranks) {
    if (!rank.record) continue;
    for (const SightEntry& sight : rank.record->sights)
      if (sight.kind == kind && rank.record->text(sight.name) == name) return true;
  }
  return false;
}

}  // namespace seeksim::harness::torch
