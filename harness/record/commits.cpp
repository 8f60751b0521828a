#include "harness/record/commits.h"

#include <fmt/format.h>

namespace seeksim::harness {
namespace {

constexpr std::size_t kWrongKept = 8;
constexpr std::size_t kStepsKept = 4;  // a step ends for all before the one after the next begins for anybody
constexpr std::size_t kEpochsKept = 4;

// What every member of an epoch comes to in the same step. Empty: the same.
std::string difference(const runtime::StepRecord& a, const runtime::StepRecord& b) {
  const auto is = [](const char* what, auto mine, auto theirs) {
    return mine == theirs ? std::string() : fmt::format("{} {} and {}", what, mine, theirs);
  };
  for (std::string differs : {is("epoch", a.epoch, b.epoch), is("data position", a.data_position, b.data_position),
                              is("Adam's step", a.optimizer_steps, b.optimizer_steps), is("learning rate", a.lr, b.lr),
                              is("loss scale", a.loss_scale, b.loss_scale), is("skipped", a.skipped, b.skipped)}) {
    if (!differs.empty()) return differs;
  }
  return {};
}

}  // namespace

void Commits::wrong(std::string text) {
  if (findings_.wrong.size() < kWrongKept) findings_.wrong.push_back(std::move(text));
}

void Commits::committed(int rank, const runtime::StepRecord& record) {
  ++findings_.commits;
  std::int64_t& next = next_[std::size_t(rank)];
  if (next != kAny && record.step != next) {
    wrong(record.step < next
              ? fmt::format("rank {} commits step {} again, in epoch {}", rank, record.step, record.epoch)
              : fmt::format("rank {} commits step {}, and never committed step {}", rank, record.step, next));
  }
  next = record.step + 1;
  const auto [at, first] = steps_.try_emplace(record.step, First{rank, record});
  if (!first) {
    ++findings_.compared;
    const std::string differs = difference(record, at->second.record);
    if (!differs.empty())
      wrong(fmt::format("step {} on rank {} and rank {}: {}", record.step, rank, at->second.rank, differs));
  }
  while (steps_.size() > kStepsKept) steps_.erase(steps_.begin());
}

void Commits::recovering(int rank, std::uint32_t epoch, std::int64_t step) {
  const auto [at, first] = under_way_.try_emplace(epoch, rank, step);
  if (!first && at->second.second != step) {
    wrong(
        fmt::format("step {} is committed by a part of the members: when epoch {} ended, rank {} was at step {} and "
                    "rank {} at step {}",
                    std::min(step, at->second.second), epoch, rank, step, at->second.first, at->second.second));
  }
  while (under_way_.size() > kEpochsKept) under_way_.erase(under_way_.begin());
}

void Commits::begin_again() {
  next_.assign(next_.size(), kAny);
  steps_.clear();
  under_way_.clear();
}

void Commits::goes_on_at(int rank, std::int64_t to_step) {
  next_[std::size_t(rank)] = to_step;
  steps_.erase(steps_.lower_bound(to_step), steps_.end());
}

}  // namespace seeksim::harness
