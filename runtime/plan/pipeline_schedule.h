// Pipeline schedules as lists of instructions: what each stage does, in its order. The same lists are printed
// (`seeksim list schedule`), played through on paper (pipeline_times.cpp) and run (trainer/passes.cpp).
//
// GPipe (Huang et al. 2019): all forwards, then all backwards. 1F1B (PipeDream-Flush, Narayanan et al. 2021), placed in
// ticks as DeepSpeed 0.19.6's TrainSchedule does. Interleaved: each stage holds `chunks` pieces of the model, in the
// order of Megatron-LM. Zero bubble: backward split into the gradient of the input, which the stage before waits for,
// and of the weights, which no stage waits for (Qi et al. 2023, ZB-H1: the memory of 1F1B).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace seeksim::runtime {

class ScheduleRule;

enum class PipelineSchedule : std::uint8_t { gpipe, one_f_one_b, interleaved, zero_bubble, own, count_ };
// "gpipe", "1f1b", "interleaved", "zero_bubble"; "own": PipelineShape::rule.
std::string_view name(PipelineSchedule schedule);
PipelineSchedule pipeline_schedule(std::string_view name);  // count_ where there is no such name

struct PipelineShape {
  PipelineSchedule schedule = PipelineSchedule::one_f_one_b;
  int stages = 1;
  int micro_batches = 1;
  int chunks = 1;  // pieces of the model a stage, interleaved only; piece c of stage s is number c * stages + s
  int group = 0;   // micro-batches in a row of one chunk, interleaved only; 0: as many as stages
  std::shared_ptr<const ScheduleRule> rule = {};  // of the schedule `own`, and of no other
};
// Why there is no such pipeline; empty: there is.
std::string problem(const PipelineShape& shape);

enum class InstructionKind : std::uint8_t {
  load,             // tokens or targets of a micro-batch, on the first and the last piece
  recv_activation,  // from the piece before
  forward,
  send_activation,  // to the piece after
  recv_gradient,    // of this piece's output, from the piece after
  backward,         // whole
  backward_input,   // gradient of the piece's input
  backward_weight,  // gradients of its parameters
  send_gradient,    // of this piece's input, to the piece before
  reduce_tied,      // gradients of parameters that several stages share
  reduce_gradients,
  step,
  count_
};
std::string_view name(InstructionKind kind);

struct Instruction {
  InstructionKind kind = InstructionKind::forward;
  int micro_batch = -1;  // -1: of the whole step
  int chunk = 0;
  friend bool operator==(const Instruction&, const Instruction&) = default;
};
// A schedule of one's own: in which order a stage computes. Where messages stand around that is not its business: each
// is taken just before what needs it, and sent just after what made it.
class ScheduleRule {
 public:
  virtual ~ScheduleRule() = default;

  // What this stage computes in a step: each micro-batch forward once, then backward once, or, where the rule splits
  // backward, backward_input and later backward_weight. Neighbours take micro-batches in one order, since messages do
  // not overtake each other. Depends on nothing but its arguments: stages ask for it one by one, and again after each
  // change of the world, which changes micro_batches.
  virtual std::vector<Instruction> order(const PipelineShape& shape, int stage) const = 0;

  // backward in two parts. Then activations are kept until the second one, so there can be no checkpointing.
  virtual bool splits_backward() const { return false; }
};
// What is wrong with the lists of shape.rule, stage by stage, or that stages wait for each other; empty: they hold.
std::string problem_of_rule(const PipelineShape& shape);

// "F3", "B0.1" (micro-batch 0 of chunk 1), "send_activation3", "step".
std::string text(const Instruction& instruction);

// What happens between two looks at the neighbours: at most one forward or backward, and messages around it. Ticks of
// different stages are numbered alike only where the schedule is 1F1B.
using Tick = std::vector<Instruction>;

// One stage's list, reductions and step in its last tick. Throws std::invalid_argument(problem(shape)).
std::vector<Tick> stage_schedule(const PipelineShape& shape, int stage);
// Messages and reductions around what a stage computes, each just before or after what it belongs to.
std::vector<Tick> with_messages(const PipelineShape& shape, int stage, const std::vector<Instruction>& order);
// Only what computes, in order.
std::vector<Instruction> compute_order(const PipelineShape& shape, int stage);

// Where each instruction of each stage stands in time, if computing takes these times and messages none.
struct PipelineCosts {
  std::int64_t forward = 1;
  std::int64_t backward_input = 1;
  std::int64_t backward_weight = 1;
};
struct TimedInstruction {
  Instruction instruction;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
struct PipelineTimes {
  std::vector<std::vector<TimedInstruction>> stages;  // computing only
  std::int64_t end = 0;
  // Share of all stages' time in which they wait.
  double bubble() const;
  // Micro-batches (of any chunk) that have gone forward on a stage and not yet through its backward, at most.
  std::vector<int> live_activations;
};
// Throws std::logic_error with the instructions that wait for each other when the lists cannot be run to their end.
PipelineTimes pipeline_times(const PipelineShape& shape, const PipelineCosts& costs = {});
// The same of given lists, one a stage.
PipelineTimes pipeline_times(const PipelineShape& shape, const std::vector<std::vector<Tick>>& lists,
                             const PipelineCosts& costs = {});

// A table of pipeline_times(): a line a stage, a column a unit of time.
std::string schedule_table(const PipelineShape& shape, const PipelineCosts& costs = {});

// ---- which layers a stage has -------------------------------------------------------------------------------------

// First layer of each part and, at the end, the number of layers. "uniform" as DeepSpeed's partition_uniform: the first
// parts get one more where it does not come out even.
std::vector<int> partition_uniform(int layers, int parts);
// The largest part as small as it can be, by each layer's weight (DeepSpeed's method "parameters").
std::vector<int> partition_balanced(const std::vector<std::int64_t>& weights, int parts);

}  // namespace seeksim::runtime
