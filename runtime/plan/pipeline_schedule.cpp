// The lists themselves. Which forward or backward comes next is each schedule's own; where messages stand around them
// is one rule for all but 1F1B, which follows DeepSpeed's ticks.
#include "runtime/plan/pipeline_schedule.h"

#include <algorithm>
#include <exception>
#include <stdexcept>

#include "kernels/check.h"
#include "runtime/seams/enum_names.h"

namespace seeksim::runtime {
namespace {

using Kind = InstructionKind;

constexpr EnumNames<PipelineSchedule> kSchedules({{PipelineSchedule::gpipe, "gpipe"},
                                                  {PipelineSchedule::one_f_one_b, "1f1b"},
                                                  {PipelineSchedule::interleaved, "interleaved"},
                                                  {PipelineSchedule::zero_bubble, "zero_bubble"},
                                                  {PipelineSchedule::own, "own"}});
constexpr EnumNames<Kind> kKinds({{Kind::load, "load"},
                                  {Kind::recv_activation, "recv_activation"},
                                  {Kind::forward, "F"},
                                  {Kind::send_activation, "send_activation"},
                                  {Kind::recv_gradient, "recv_gradient"},
                                  {Kind::backward, "B"},
                                  {Kind::backward_input, "backward_input"},
                                  {Kind::backward_weight, "backward_weight"},
                                  {Kind::send_gradient, "send_gradient"},
                                  {Kind::reduce_tied, "reduce_tied"},
                                  {Kind::reduce_gradients, "reduce_gradients"},
                                  {Kind::step, "step"}});

// Forwards that a stage makes before its first backward, in 1F1B: enough for the gradient to come back meanwhile.
int warmup_forwards(int stages, int stage, int micro_batches) { return std::min(stages - stage - 1, micro_batches); }

std::vector<Instruction> gpipe(const PipelineShape& p) {
  std::vector<Instruction> order;
  for (int m = 0; m < p.micro_batches; ++m) order.push_back({Kind::forward, m});
  for (int m = 0; m < p.micro_batches; ++m) order.push_back({Kind::backward, m});
  return order;
}

std::vector<Instruction> one_f_one_b(const PipelineShape& p, int stage) {
  std::vector<Instruction> order;
  const int warmup = warmup_forwards(p.stages, stage, p.micro_batches);
  for (int m = 0; m < warmup; ++m) order.push_back({Kind::forward, m});
  for (int m = warmup; m < p.micro_batches; ++m) {
    order.push_back({Kind::forward, m});
    order.push_back({Kind::backward, m - warmup});
  }
  for (int m = p.micro_batches - warmup; m < p.micro_batches; ++m) order.push_back({Kind::backward, m});
  return order;
}

struct Virtual {
  int micro_batch;
  int chunk;
};

// The forwards of all chunks in order: a group of micro-batches through chunk 0, the same through chunk 1, ..., the
// next group. The last group is what is left.
std::vector<Virtual> virtual_order(const PipelineShape& p) {
  const int group = p.group > 0 ? p.group : p.stages;
  std::vector<Virtual> order;
  for (int first = 0; first < p.micro_batches; first += group) {
    const int end = std::min(first + group, p.micro_batches);
    for (int chunk = 0; chunk < p.chunks; ++chunk)
      for (int m = first; m < end; ++m) order.push_back({m, chunk});
  }
  return order;
}

std::vector<Instruction> interleaved(const PipelineShape& p, int stage) {
  const std::vector<Virtual> forwards = virtual_order(p);
  const int total = int(forwards.size()), group = p.group > 0 ? p.group : p.stages;
  const int warmup = std::min(total, 2 * (p.stages - stage - 1) + (p.chunks - 1) * group);
  std::vector<Instruction> order;
  const auto forward = [&](int k) { order.push_back({Kind::forward, forwards[k].micro_batch, forwards[k].chunk}); };
  const auto backward = [&](int k) {  // the same order, from the last chunk to the first
    order.push_back({Kind::backward, forwards[k].micro_batch, p.chunks - 1 - forwards[k].chunk});
  };
  for (int k = 0; k < warmup; ++k) forward(k);
  for (int k = warmup; k < total; ++k) {
    forward(k);
    backward(k - warmup);
  }
  for (int k = total - warmup; k < total; ++k) backward(k);
  return order;
}

// ZB-H1. A stage owes as many weight gradients as stages lie before it: it makes its inputs' gradients that much
// earlier, for those who wait for them, and fills with weights the time in which it would wait itself. What it holds
// stays within what the first stage holds anyway.
std::vector<Instruction> zero_bubble(const PipelineShape& p, int stage) {
  std::vector<Instruction> order;
  int forwards = 0, weights = 0;
  while (forwards < std::min(p.stages - stage, p.micro_batches)) order.push_back({Kind::forward, forwards++});
  for (int m = 0; m < p.micro_batches; ++m) {
    order.push_back({Kind::backward_input, m});
    if (m >= stage) order.push_back({Kind::backward_weight, weights++});
    if (forwards < p.micro_batches) order.push_back({Kind::forward, forwards++});
  }
  while (weights < p.micro_batches) order.push_back({Kind::backward_weight, weights++});
  return order;
}

bool is_last(const PipelineShape& p, int stage, int chunk) {
  return stage == p.stages - 1 && chunk == (p.schedule == PipelineSchedule::interleaved ? p.chunks : 1) - 1;
}

// A message is taken just before what needs it and sent just after what made it.
Tick tick_of(const PipelineShape& p, int stage, const Instruction& i) {
  const bool first = stage == 0 && i.chunk == 0, last = is_last(p, stage, i.chunk);
  Tick tick;
  const auto add = [&](Kind kind) { tick.push_back({kind, i.micro_batch, i.chunk}); };
  if (i.kind == Kind::forward) {
    if (!first) add(Kind::recv_activation);
    if (first || last) add(Kind::load);
  } else if (i.kind != Kind::backward_weight && !last) {
    add(Kind::recv_gradient);
  }
  tick.push_back(i);
  if (i.kind == Kind::forward && !last) add(Kind::send_activation);
  if ((i.kind == Kind::backward || i.kind == Kind::backward_input) && !first) add(Kind::send_gradient);
  return tick;
}

// Micro-batch of a tick of 1F1B, or one that is out of range; and whether it goes forward.
struct DeepSpeedTick {
  int micro_batch;
  bool forward;
};

int floor_half(int x) { return x >= 0 ? x / 2 : -((1 - x) / 2); }

DeepSpeedTick deepspeed_tick(const PipelineShape& p, int stage, int tick) {
  const bool forward = tick % 2 == stage % 2;
  if (forward) return {floor_half(tick) - stage / 2, true};
  if (tick % 2 == 0) return {tick / 2 - p.stages + (stage + 1) / 2, false};
  return {(tick - 1) / 2 - p.stages + 1 + stage / 2, false};
}

// DeepSpeed's ticks: what was made in one tick is sent in the next, beside what that tick needs itself, so that each
// send stands opposite its receive.
std::vector<Tick> deepspeed_ticks(const PipelineShape& p, int stage) {
  std::vector<Tick> ticks;
  const auto valid = [&](int m) { return m >= 0 && m < p.micro_batches; };
  const bool first = stage == 0, last = stage == p.stages - 1;
  int previous = -1;
  for (int k = 0; k < 2 * (p.micro_batches + p.stages - 1); ++k) {
    const auto [m, forward] = deepspeed_tick(p, stage, k);
    Tick tick;
    if (forward) {
      if (!first && valid(previous)) tick.push_back({Kind::send_gradient, previous});
      if (!first && valid(m)) tick.push_back({Kind::recv_activation, m});
    } else {
      if (!last && valid(m)) tick.push_back({Kind::recv_gradient, m});
      if (!last && valid(previous)) tick.push_back({Kind::send_activation, previous});
    }
    if (forward && valid(m) && (first || last)) tick.push_back({Kind::load, m});
    if (valid(m)) tick.push_back({forward ? Kind::forward : Kind::backward, m});
    ticks.push_back(std::move(tick));
    previous = m;
  }
  return ticks;
}

}  // namespace

std::string_view name(PipelineSchedule schedule) { return kSchedules.of(schedule); }

PipelineSchedule pipeline_schedule(std::string_view name) { return kSchedules.named(name); }

std::string_view name(InstructionKind kind) { return kKinds.of(kind); }

std::string text(const Instruction& i) {
  std::string out(i.kind == Kind::backward_input ? "I" : i.kind == Kind::backward_weight ? "W" : name(i.kind));
  if (i.micro_batch >= 0) out += std::to_string(i.micro_batch);
  if (i.chunk > 0) out += '.' + std::to_string(i.chunk);
  return out;
}

std::string problem(const PipelineShape& p) {
  if (p.stages < 1) return "a pipeline has at least one stage, not " + std::to_string(p.stages);
  if (p.micro_batches < 1) return "a step has at least one micro-batch, not " + std::to_string(p.micro_batches);
  if (p.schedule >= PipelineSchedule::count_) return "there is no such schedule";
  if (p.schedule == PipelineSchedule::own && p.rule == nullptr) return "the schedule has no rule";
  if (p.schedule != PipelineSchedule::interleaved) {
    if (p.chunks != 1) return "only the interleaved schedule has several pieces of the model on a stage";
    return p.schedule == PipelineSchedule::own ? problem_of_rule(p) : "";
  }
  if (p.chunks < 2) return "the interleaved schedule needs at least 2 pieces of the model on each stage";
  if (p.stages < 2) return "the interleaved schedule needs at least 2 stages";
  const int group = p.group > 0 ? p.group : p.stages;
  if (group < p.stages || group > std::max(p.stages, p.micro_batches)) {
    return "the number of micro-batches in a row of one chunk, " + std::to_string(group) + ", lies outside [" +
           std::to_string(p.stages) + ", " + std::to_string(p.micro_batches) + "], the stages and the micro-batches";
  }
  // With fewer in the last group than stages, a stage would wait for a chunk that waits for it.
  const int rest = p.micro_batches % group;
  if (rest > 0 && rest < p.stages) {
    return "the interleaved schedule needs the last group to hold no micro-batch or at least as many as stages: " +
           std::to_string(p.micro_batches) + " micro-batches in groups of " + std::to_string(group) + " leave " +
           std::to_string(rest);
  }
  return "";
}

std::vector<Instruction> compute_order(const PipelineShape& shape, int stage) {
  if (const std::string why = problem(shape); !why.empty()) throw std::invalid_argument(why);
  SEEKSIM_CHECK(stage >= 0 && stage < shape.stages, "stage %d of %d", stage, shape.stages);
  switch (shape.schedule) {
    case PipelineSchedule::gpipe:
      return gpipe(shape);
    case PipelineSchedule::interleaved:
      return interleaved(shape, stage);
    case PipelineSchedule::zero_bubble:
      return zero_bubble(shape, stage);
    case PipelineSchedule::own:
      return shape.rule->order(shape, stage);
    default:
      return one_f_one_b(shape, stage);
  }
}

std::vector<Tick> with_messages(const PipelineShape& shape, int stage, const std::vector<Instruction>& order) {
  std::vector<Tick> ticks;
  if (shape.schedule == PipelineSchedule::one_f_one_b) {
    ticks = deepspeed_ticks(shape, stage);
  } else {
    for (const Instruction& instruction : order) ticks.push_back(tick_of(shape, stage, instruction));
  }
  for (const Kind kind : {Kind::reduce_tied, Kind::reduce_gradients, Kind::step}) ticks.back().push_back({kind});
  return ticks;
}

std::vector<Tick> stage_schedule(const PipelineShape& shape, int stage) {
  return with_messages(shape, stage, compute_order(shape, stage));
}

std::vector<int> partition_uniform(int layers, int parts) {
  SEEKSIM_CHECK(parts >= 1 && layers >= 0, "%d layers in %d parts", layers, parts);
  std::vector<int> bounds = {0};
  for (int part = 0; part < parts; ++part) bounds.push_back(bounds.back() + layers / parts + (part < layers % parts));
  return bounds;
}

std::vector<int> partition_balanced(const std::vector<std::int64_t>& weights, int parts) {
  SEEKSIM_CHECK(parts >= 1, "%d parts", parts);
  const int n = int(weights.size());
  std::int64_t low = 0, high = 0;
  for (const std::int64_t weight : weights) low = std::max(low, weight), high += weight;
  const auto cut = [&](std::int64_t limit) {  // as few parts as this limit allows, front ones filled first
    std::vector<int> bounds = {0};
    std::int64_t sum = 0;
    for (int i = 0; i < n; ++i) {
      // Behind, a layer must be left for each part that is to come.
      const bool must = n - i <= parts - int(bounds.size());
      if (i > bounds.back() && (sum + weights[std::size_t(i)] > limit || must)) bounds.push_back(i), sum = 0;
      sum += weights[std::size_t(i)];
    }
    bounds.resize(std::max<std::size_t>(bounds.size() + 1, std::size_t(parts) + 1), n);
    return bounds;
  };
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (int(cut(middle).size()) - 1 <= parts)
      high = middle;
    else
      low = middle + 1;
  }
  return cut(low);
}

// ---- whether the lists of a schedule that somebody added can be run ------------------------------------------------

namespace {

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
