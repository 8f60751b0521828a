// Rungs in the order in which they are tried. The first ones touch activations only, so that they serve at any step;
// the others move state, and nothing may be committed yet. Each makes one thing smaller for good: the ladder ends.
#include "runtime/decide/memory_ladder.h"

#include <algorithm>
#include <array>

#include "runtime/layout/shard_groups.h"

namespace seeksim::runtime {
namespace {

struct Situation {
  const Layout& now;
  const Definition& definition;
  const Shortage& shortage;
  const LadderPlace& place;
};
using Rung = std::optional<Layout> (*)(const Situation&);

int replicas(const Situation& s) { return std::max(s.place.members / s.now.parallel.ranks(), 1); }

// With other micro-batches a pipeline's schedule may not work.
bool is_scheduled(const Layout& layout, const Situation& s) {
  if (layout.parallel.pipeline == 1) return true;
  TrainPlan plan;
  plan.layout = layout;
  plan.definition = s.definition;
  return problem_of_schedule(plan, replicas(s)).empty();
}

// What was free a moment ago may be free again, and what was only cached is given back.
std::optional<Layout> once_more(const Situation& s) {
  if (s.place.tried_again) return std::nullopt;
  return s.now;
}

// The global batch stays: more micro-batches are accumulated.
std::optional<Layout> smaller_micro_batch(const Situation& s) {
  const int held = std::min(s.now.micro_batch, s.definition.global_batch);
  // With these quirks the bits depend on how samples are split.
  if (!s.shortage.of_activations || held <= 1 || s.definition.quirks.split_dependent()) return std::nullopt;
  Layout smaller = s.now;
  const int together = s.definition.model.experts.samples;  // no micro-batch cuts what a router counts
  smaller.micro_batch = held / 2 / together * together;
  if (smaller.micro_batch == 0) return std::nullopt;
  smaller.evaluation_micro_batch = std::min(s.now.evaluation_micro_batch, smaller.micro_batch);
  if (!is_scheduled(smaller, s)) return std::nullopt;
  return smaller;
}

// Only the input of each layer is kept; the rest is computed again in backward.
std::optional<Layout> checkpointing(const Situation& s) {
  if (!s.shortage.of_activations || s.now.checkpointing.any()) return std::nullopt;
  Layout fewer = s.now;
  fewer.checkpointing.every = 1;
  return fewer;
}

std::optional<Layout> next_stage(const Situation& s) {
  const bool movable = s.place.nothing_committed && replicas(s) > 1 && s.now.zero.stage < 3;
  if (!movable || s.definition.quirks.any()) return std::nullopt;  // some quirks are about a stage
  Layout more = s.now;
  ++more.zero.stage;
  if (!is_scheduled(more, s)) return std::nullopt;
  return more;
}

// Sharded state of the optimizer, and its work, to the host.
std::optional<Layout> optimizer_on_host(const Situation& s) {
  const bool movable = s.place.nothing_committed && s.now.zero.stage > 0;
  if (!movable || s.now.offload.optimizer.home != Home::device || s.definition.quirks.any()) return std::nullopt;
  Layout less = s.now;
  less.offload.optimizer.home = Home::host;
  return less;
}

// What a rank owns of them, where all gather what they need anyway.
std::optional<Layout> parameters_on_host(const Situation& s) {
  const bool movable = s.place.nothing_committed && s.now.zero.stage == 3;
  if (!movable || s.now.offload.parameters.home != Home::device || s.definition.quirks.any()) return std::nullopt;
  Layout less = s.now;
  less.offload.parameters.home = Home::host;
  return less;
}

// A host has less pinned memory than pageable memory.
std::optional<Layout> pageable(const Situation& s) {
  Layout less = s.now;
  less.offload.optimizer.pin_memory = less.offload.parameters.pin_memory = false;
  if (!s.place.nothing_committed || !s.now.offload.any() || less.offload == s.now.offload) return std::nullopt;
  return less;
}

constexpr std::array<Rung, 7> kLadder = {once_more,         smaller_micro_batch, checkpointing, next_stage,
                                         optimizer_on_host, parameters_on_host,  pageable};

std::string text_of(const CheckpointingPlan& plan) {
  if (!plan.any()) return "no checkpointing";
  std::string text = "checkpointing ";
  if (plan.every > 0)
    text += plan.every == 1 ? "every layer" : "every " + std::to_string(plan.every) + " layers";
  else
    text += std::to_string(plan.layers.size()) + (plan.layers.size() == 1 ? " layer" : " layers");
  return text + (plan.on_host ? " on host" : "");
}

std::string text_of(const OffloadPlan& plan) {
  std::string all;
  const auto add = [&all](const char* what, Home home, bool pinned) {
    if (home == Home::device) return;
    all += all.empty() ? "" : " and ";
    all += std::string(pinned ? "pinned " : "") + what + " on " + (home == Home::host ? "cpu" : "nvme");
  };
  add("optimizer", plan.optimizer.home, plan.optimizer.pin_memory);
  add("parameters", plan.parameters.home, plan.parameters.pin_memory);
  return all.empty() ? "no offload" : all;
}

// The parts of a layout, in the words of its text.
std::array<std::string, 4> parts(const Layout& layout) {
  return {"micro-batch " + std::to_string(layout.micro_batch), "stage " + std::to_string(layout.zero.stage),
          text_of(layout.checkpointing), text_of(layout.offload)};
}

}  // namespace

Shortage shortage(const Agreement& agreement) {
  Shortage found;
  for (const Ballot& ballot : agreement.ballots) {
    if (ballot.error != ErrorKind::out_of_memory) continue;
    found.there = true;
    found.of_activations |= ballot.words[kActivationsWord] != 0;
  }
  return found;
}

std::optional<Layout> next_rung(const Layout& now, const Definition& definition, const Shortage& shortage,
                                const LadderPlace& place) {
  for (const Rung rung : kLadder) {
    if (std::optional<Layout> next = rung({now, definition, shortage, place})) return next;
  }
  return std::nullopt;
}

std::string text(const Layout& layout) {
  std::string all;
  for (const std::string& part : parts(layout)) all += (all.empty() ? "" : ", ") + part;
  return all;
}

std::string change(const Layout& from, const Layout& to) {
  const auto before = parts(from), after = parts(to);
  std::string all;
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (before[i] == after[i]) continue;
    // "micro-batch 4 -> 2": the common word once.
    const std::size_t word = before[i].find(' ') + 1;
    const bool same_word = i < 2 && before[i].compare(0, word, after[i], 0, word) == 0;
    all += (all.empty() ? "" : ", ") + before[i] + " -> " + (same_word ? after[i].substr(word) : after[i]);
  }
  return all.empty() ? "the same once more" : all;
}

}  // namespace seeksim::runtime
