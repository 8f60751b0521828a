// A pipeline's lists played through on paper: who waits for whom, how large the bubble is, what is in flight. Messages
// are taken in the order of the lists, so that an order that cannot work shows here, with the instructions that wait.
#include <algorithm>
#include <map>
#include <stdexcept>
#include <tuple>

#include "kernels/check.h"
#include "runtime/plan/pipeline_schedule.h"

namespace seeksim::runtime {
namespace {

using Kind = InstructionKind;

// Its sender, its micro-batch, forward or backward.
using Message = std::tuple<int, int, bool>;  // number of the sending piece, micro-batch, gradient

class Play {
 public:
  Play(const PipelineShape& shape, const std::vector<std::vector<Tick>>& ticks, const PipelineCosts& costs)
      : shape_(shape), costs_(costs), at_(std::size_t(shape.stages)), time_(std::size_t(shape.stages)) {
    for (int s = 0; s < shape.stages; ++s) {
      std::vector<Instruction>& list = lists_.emplace_back();
      for (const Tick& tick : ticks[std::size_t(s)]) list.insert(list.end(), tick.begin(), tick.end());
    }
    times_.stages.resize(std::size_t(shape.stages));
    times_.live_activations.assign(std::size_t(shape.stages), 0);
    live_.assign(std::size_t(shape.stages), 0);
  }

  PipelineTimes run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int s = 0; s < shape_.stages; ++s)
        while (at_[s] < lists_[s].size() && play(s, lists_[s][at_[s]])) ++at_[s], moved = true;
    }
    std::string stuck;
    for (int s = 0; s < shape_.stages; ++s) {
      times_.end = std::max(times_.end, time_[s]);
      if (at_[s] < lists_[s].size()) stuck += "\n  stage " + std::to_string(s) + " waits in " + text(lists_[s][at_[s]]);
    }
    if (!stuck.empty()) throw std::logic_error("the stages wait for each other:" + stuck);
    return times_;
  }

 private:
  int piece(int stage, int chunk) const { return chunk * shape_.stages + stage; }

  bool receive(int stage, const Message& message) {
    const auto sent = sent_.find(message);
    if (sent == sent_.end()) return false;
    time_[std::size_t(stage)] = std::max(time_[std::size_t(stage)], sent->second);
    return true;
  }

  // False: what it waits for has not been sent.
  bool play(int s, const Instruction& i) {
    const int self = piece(s, i.chunk);
    switch (i.kind) {
      case Kind::recv_activation:
        return receive(s, {self - 1, i.micro_batch, false});
      case Kind::recv_gradient:
        return receive(s, {self + 1, i.micro_batch, true});
      // A message leaves when what it carries is there, however late the list says so.
      case Kind::send_activation:
        sent_[{self, i.micro_batch, false}] = made_.at({self, i.micro_batch, false});
        return true;
      case Kind::send_gradient:
        sent_[{self, i.micro_batch, true}] = made_.at({self, i.micro_batch, true});
        return true;
      case Kind::forward:
        compute(s, i, costs_.forward);
        times_.live_activations[s] = std::max(times_.live_activations[s], ++live_[s]);
        made_[{self, i.micro_batch, false}] = time_[s];
        return true;
      case Kind::backward:
        compute(s, i, costs_.backward_input + costs_.backward_weight);
        made_[{self, i.micro_batch, true}] = time_[s];
        --live_[s];
        return true;
      case Kind::backward_input:
        compute(s, i, costs_.backward_input);
        made_[{self, i.micro_batch, true}] = time_[s];
        return true;
      case Kind::backward_weight:
        compute(s, i, costs_.backward_weight);
        --live_[s];
        return true;
      default:
        return true;
    }
  }

  void compute(int s, const Instruction& i, std::int64_t cost) {
    times_.stages[std::size_t(s)].push_back({i, time_[s], time_[s] + cost});
    time_[s] += cost;
  }

  PipelineShape shape_;
  PipelineCosts costs_;
  std::vector<std::vector<Instruction>> lists_;
  std::vector<std::size_t> at_;
  std::vector<std::int64_t> time_;
  std::vector<int> live_;
  std::map<Message, std::int64_t> made_, sent_;
  PipelineTimes times_;
};

}  // namespace

PipelineTimes pipeline_times(const PipelineShape& shape, const PipelineCosts& costs) {
  std::vector<std::vector<Tick>> lists;
  for (int s = 0; s < shape.stages; ++s) lists.push_back(stage_schedule(shape, s));
  return pipeline_times(shape, lists, costs);
}

PipelineTimes pipeline_times(const PipelineShape& shape, const std::vector<std::vector<Tick>>& lists,
                             const PipelineCosts& costs) {
  SEEKSIM_CHECK(int(lists.size()) == shape.stages, "%zu lists of %d stages", lists.size(), shape.stages);
  return Play(shape, lists, costs).run();
}

double PipelineTimes::bubble() const {
  std::int64_t busy = 0;
  for (const auto& stage : stages)
    for (const TimedInstruction& i : stage) busy += i.end - i.begin;
  const auto all = double(end) * double(stages.size());
  return all > 0 ? (all - double(busy)) / all : 0;
}

std::string schedule_table(const PipelineShape& shape, const PipelineCosts& costs) {
  const PipelineTimes times = pipeline_times(shape, costs);
  std::size_t width = 2;
  for (const auto& stage : times.stages)
    for (const TimedInstruction& i : stage) width = std::max(width, text(i.instruction).size());
  std::string out;
  const std::size_t label = std::to_string(shape.stages - 1).size();
  for (std::size_t s = 0; s < times.stages.size(); ++s) {
    const std::string number = std::to_string(s);
    std::string line = "stage " + std::string(label - number.size(), ' ') + number + " |";
    std::int64_t at = 0;
    for (const TimedInstruction& i : times.stages[s]) {
      for (; at < i.begin; ++at) line += ' ' + std::string(width, '.');
      for (; at < i.end; ++at) {
        const std::string cell = at == i.begin ? text(i.instruction) : "-";
        line += ' ' + cell + std::string(width - cell.size(), ' ');
      }
    }
    for (; at < times.end; ++at) line += ' ' + std::string(width, '.');
    out += line + '\n';
  }
  return out;
}

}  // namespace seeksim::runtime
