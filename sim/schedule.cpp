#include "sim/schedule.h"

#include <algorithm>

#include "runtime/seams/enum_names.h"

namespace seeksim::sim {
namespace {

constexpr runtime::EnumNames<Strategy> kStrategies({{Strategy::seeded, "seeded"},
                                                    {Strategy::first, "first"},
                                                    {Strategy::random, "random"},
                                                    {Strategy::pct, "pct"},
                                                    {Strategy::swarm, "swarm"},
                                                    {Strategy::untimed, "untimed"}});
constexpr runtime::EnumNames<SlowQueue::Which> kQueues({{SlowQueue::Which::compute, "compute"},
                                                        {SlowQueue::Which::communication, "communication"},
                                                        {SlowQueue::Which::copy, "copy"},
                                                        {SlowQueue::Which::host, "host"},
                                                        {SlowQueue::Which::storage, "storage"}});

// What the seed says of one that can run: always the same, whenever it is asked.
std::uint64_t about(std::uint64_t seed, std::uint64_t candidate) {
  return Random(seed ^ candidate * 0x9e3779b97f4a7c15ull, Stream::schedule).next();
}

}  // namespace

std::string_view name(Strategy strategy) { return kStrategies.of(strategy); }
Strategy strategy(std::string_view name) { return kStrategies.named(name); }
std::string_view name(SlowQueue::Which queue) { return kQueues.of(queue); }
SlowQueue::Which slow_queue(std::string_view name) { return kQueues.named(name); }

Chooser::Chooser(const Schedule& schedule, std::uint64_t seed)
    : schedule_(schedule), seed_(seed), random_(seed, Stream::schedule), next_(schedule.first_decision) {
  while (deviation_ < schedule_.deviations.size() && schedule_.deviations[deviation_].decision < next_) ++deviation_;
  if (schedule_.strategy != Strategy::pct) return;
  const std::uint32_t within = std::uint32_t(std::min<std::uint64_t>(schedule_.horizon, 1u << 31));
  for (std::uint32_t i = 0; i < schedule_.changes && within > 0; ++i) changes_.push_back(random_.below(within));
  std::sort(changes_.begin(), changes_.end());
  while (changed_ < changes_.size() && changes_[changed_] < next_) ++changed_;
}

std::uint32_t Chooser::choose(std::span<const std::uint64_t> candidates) {
  if (candidates.size() == 1) return 0;
  std::uint32_t choice = by_strategy(candidates);
  if (deviation_ < schedule_.deviations.size() && schedule_.deviations[deviation_].decision == next_)
    choice = std::min(schedule_.deviations[deviation_++].choice, std::uint32_t(candidates.size() - 1));
  take(candidates.size(), choice);
  return choice;
}

void Chooser::take(std::size_t candidates, std::uint32_t choice) {
  if (candidates < 2) return;
  if (choice != 0) taken_.push_back({next_, choice});
  ++next_;
}

std::uint32_t Chooser::by_strategy(std::span<const std::uint64_t> candidates) {
  switch (schedule_.strategy) {
    case Strategy::random:
      return random_.below(std::uint32_t(candidates.size()));
    case Strategy::pct:
      return by_priority(candidates);
    case Strategy::swarm:
      return by_weight(candidates);
    default:
      return 0;
  }
}

// The highest runs. At a change point the one that would run becomes the lowest, above those changed before.
std::uint32_t Chooser::by_priority(std::span<const std::uint64_t> candidates) {
  const auto priority = [this](std::uint64_t candidate) {
    const auto changed = priority_.find(candidate);
    return changed != priority_.end() ? changed->second : about(seed_, candidate) | std::uint64_t(1) << 63;
  };
  const auto highest = [&] {
    std::uint32_t best = 0;
    for (std::uint32_t i = 1; i < candidates.size(); ++i) {
      if (priority(candidates[i]) > priority(candidates[best])) best = i;
    }
    return best;
  };
  for (; changed_ < changes_.size() && changes_[changed_] <= next_; ++changed_)
    priority_[candidates[highest()]] = changes_.size() - changed_;
  return highest();
}

// Each has a weight of 1, 1/8, 1/64 or 1/512 for the whole run.
std::uint32_t Chooser::by_weight(std::span<const std::uint64_t> candidates) {
  const auto weight = [this](std::uint64_t candidate) {
    return std::uint32_t(1) << 3 * (about(seed_, candidate) >> 62);
  };
  std::uint32_t sum = 0;
  for (const std::uint64_t candidate : candidates) sum += weight(candidate);
  std::uint32_t at = random_.below(sum);
  for (std::uint32_t i = 0; i < candidates.size(); ++i) {
    if (at < weight(candidates[i])) return i;
    at -= weight(candidates[i]);
  }
  return 0;
}

}  // namespace seeksim::sim
