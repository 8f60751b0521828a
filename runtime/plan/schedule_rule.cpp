// Whether the lists of a schedule that somebody added can be run.
#include <algorithm>
#include <exception>

#include "runtime/plan/pipeline_schedule.h"

namespace seeksim::runtime {
namespace {

using Kind = InstructionKind;

// Where each micro-batch stands in a list, by kind; -1: nowhere.
struct Places {
  explicit Places(int micro_batches) : forward(std::size_t(micro_batches), -1), backward(forward), weight(forward) {}
  std::vector<int>* of(Kind kind) {
    switch (kind) {
      case Kind::forward:
        return &forward;
      case Kind::backward:
      case Kind::backward_input:
        return &backward;
      case Kind::backward_weight:
        return &weight;
      default:
        return nullptr;
    }
  }
  std::vector<int> forward, backward, weight;
};

std::string said(int stage, const Instruction& i, const char* what) {
  return "stage " + std::to_string(stage) + ": " + text(i) + ' ' + what;
}

// Fills `places`; empty: each instruction is one that may stand here, and stands once.
std::string place(const PipelineShape& shape, int stage, const std::vector<Instruction>& order, Places& places) {
  const bool split = shape.rule->splits_backward();
  int at = 0;
  for (const Instruction& i : order) {
    std::vector<int>* const of = places.of(i.kind);
    if (of == nullptr)
      return said(stage, i, "is not for a schedule to give: messages and reductions stand by themselves");
    if (i.chunk != 0) return said(stage, i, "is of a second piece of the model, and a stage has one");
    if (i.micro_batch < 0 || i.micro_batch >= shape.micro_batches)
      return said(stage, i, ("is of no micro-batch of " + std::to_string(shape.micro_batches)).c_str());
    if (i.kind != Kind::forward && split == (i.kind == Kind::backward))
      return said(stage, i, split ? "is whole, and the rule splits backward" : "is half, and the rule splits nothing");
    int& here = (*of)[std::size_t(i.micro_batch)];
    if (here >= 0) return said(stage, i, "stands there twice");
    here = at++;
  }
  return "";
}

std::string problem_of_order(const PipelineShape& shape, int stage, const Places& places) {
  for (int m = 0; m < shape.micro_batches; ++m) {
    const auto at = std::size_t(m);
    const std::string micro_batch = "stage " + std::to_string(stage) + ": micro-batch " + std::to_string(m);
    if (places.forward[at] < 0) return micro_batch + " never goes forward";
    if (places.backward[at] < 0) return micro_batch + " never goes backward";
    if (places.backward[at] < places.forward[at]) return micro_batch + " goes backward before it goes forward";
    if (!shape.rule->splits_backward()) continue;
    if (places.weight[at] < 0) return micro_batch + " has no gradients of weights";
    if (places.weight[at] < places.backward[at]) return micro_batch + " has gradients of weights before its input's";
  }
  return "";
}

// Micro-batches in the order in which they stand in a list.
std::vector<int> by_place(const std::vector<int>& places) {
  std::vector<int> order(places.size());
  for (std::size_t m = 0; m < places.size(); ++m) order[m] = int(m);
  std::sort(order.begin(), order.end(), [&](int a, int b) { return places[std::size_t(a)] < places[std::size_t(b)]; });
  return order;
}

std::string overtakes(int stage, const char* which, const std::vector<int>& before, const std::vector<int>& here) {
  const std::vector<int> a = by_place(before), b = by_place(here);
  const auto [first, second] = std::mismatch(a.begin(), a.end(), b.begin());
  if (first == a.end()) return "";
  return "stage " + std::to_string(stage) + " takes micro-batch " + std::to_string(*second) + ' ' + which +
         " where stage " + std::to_string(stage - 1) + " has " + std::to_string(*first) +
         ", and messages do not overtake each other";
}

}  // namespace

std::string problem_of_rule(const PipelineShape& shape) try {
  std::vector<Places> stages;
  std::vector<std::vector<Tick>> lists;
  for (int stage = 0; stage < shape.stages; ++stage) {
    stages.emplace_back(shape.micro_batches);
    const std::vector<Instruction> order = shape.rule->order(shape, stage);
    if (std::string why = place(shape, stage, order, stages.back()); !why.empty()) return why;
    if (std::string why = problem_of_order(shape, stage, stages.back()); !why.empty()) return why;
    lists.push_back(with_messages(shape, stage, order));
    if (stage == 0) continue;
    const Places &before = stages[std::size_t(stage) - 1], &here = stages.back();
    for (const std::string& why : {overtakes(stage, "forward", before.forward, here.forward),
                                   overtakes(stage, "backward", before.backward, here.backward)})
      if (!why.empty()) return why;
  }
  pipeline_times(shape, lists);
  return "";
} catch (const std::exception& wrong) {  // stages that wait for each other, or what the rule itself throws
  return wrong.what();
}

}  // namespace seeksim::runtime
