// Schedules that somebody adds: one that can be run is run as it is; each way to be wrong is named.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <stdexcept>

#include "runtime/plan/pipeline_schedule.h"

namespace seeksim::runtime {
namespace {

using Kind = InstructionKind;
using Order = std::function<std::vector<Instruction>(const PipelineShape&, int stage)>;

class ByFunction final : public ScheduleRule {
 public:
  ByFunction(Order order, bool splits) : order_(std::move(order)), splits_(splits) {}
  std::vector<Instruction> order(const PipelineShape& shape, int stage) const override { return order_(shape, stage); }
  bool splits_backward() const override { return splits_; }

 private:
  Order order_;
  bool splits_;
};

PipelineShape own_shape(Order order, int stages = 3, int micro_batches = 4, bool splits = false) {
  return {PipelineSchedule::own, stages, micro_batches, 1, 0, std::make_shared<ByFunction>(std::move(order), splits)};
}

std::vector<Instruction> all_forward_then_back(const PipelineShape& shape, int) {
  std::vector<Instruction> order;
  for (int m = 0; m < shape.micro_batches; ++m) order.push_back({Kind::forward, m});
  for (int m = 0; m < shape.micro_batches; ++m) order.push_back({Kind::backward, m});
  return order;
}

TEST(ScheduleRule, IsRunAsTheBuiltInOneThatItCopies) {
  const PipelineShape own = own_shape(all_forward_then_back), gpipe{PipelineSchedule::gpipe, 3, 4};
  EXPECT_EQ(problem(own), "");
  for (int stage = 0; stage < 3; ++stage) EXPECT_EQ(stage_schedule(own, stage), stage_schedule(gpipe, stage));
  EXPECT_EQ(schedule_table(own), schedule_table(gpipe));
}

TEST(ScheduleRule, MaySplitBackward) {
  const PipelineShape zero_bubble{PipelineSchedule::zero_bubble, 3, 4};
  const Order copied = [&](const PipelineShape&, int stage) { return compute_order(zero_bubble, stage); };
  const PipelineShape own = own_shape(copied, 3, 4, true);
  EXPECT_EQ(problem(own), "");
  for (int stage = 0; stage < 3; ++stage) EXPECT_EQ(stage_schedule(own, stage), stage_schedule(zero_bubble, stage));
  EXPECT_NE(problem(own_shape(copied)).find("is half, and the rule splits nothing"), std::string::npos);
}

// What `edit` makes of a list that is right, on stage 1.
std::string problem_with(const std::function<void(std::vector<Instruction>&)>& edit) {
  return problem(own_shape([&](const PipelineShape& shape, int stage) {
    std::vector<Instruction> order = all_forward_then_back(shape, stage);
    if (stage == 1) edit(order);
    return order;
  }));
}

TEST(ScheduleRule, EachMistakeIsNamedWithItsStage) {
  using List = std::vector<Instruction>;
  EXPECT_EQ(problem_with([](List&) {}), "");
  EXPECT_EQ(problem_with([](List& l) { l.pop_back(); }), "stage 1: micro-batch 3 never goes backward");
  EXPECT_EQ(problem_with([](List& l) { l.erase(l.begin()); }), "stage 1: micro-batch 0 never goes forward");
  EXPECT_EQ(problem_with([](List& l) { l.push_back(l.back()); }), "stage 1: B3 stands there twice");
  EXPECT_EQ(problem_with([](List& l) { l[0].micro_batch = 9; }), "stage 1: F9 is of no micro-batch of 4");
  EXPECT_EQ(problem_with([](List& l) { l[0].chunk = 1; }),
            "stage 1: F0.1 is of a second piece of the model, and a stage has one");
  EXPECT_EQ(problem_with([](List& l) { l.push_back({Kind::step}); }),
            "stage 1: step is not for a schedule to give: messages and reductions stand by themselves");
  EXPECT_EQ(problem_with([](List& l) { std::swap(l[0], l[4]); }),
            "stage 1: micro-batch 0 goes backward before it goes forward");
  EXPECT_EQ(problem_with([](List& l) { std::swap(l[0], l[1]); }),
            "stage 1 takes micro-batch 1 forward where stage 0 has 0, and messages do not overtake each other");
  EXPECT_EQ(problem_with([](List& l) { std::swap(l[6], l[7]); }),
            "stage 1 takes micro-batch 3 backward where stage 0 has 2, and messages do not overtake each other");
  EXPECT_EQ(problem_with([](List&) { throw std::runtime_error("no such day"); }), "no such day");
}

TEST(ScheduleRule, StagesThatWaitForEachOtherAreFound) {
  const std::string why = problem(own_shape([](const PipelineShape& shape, int stage) {
    if (stage + 1 == shape.stages) return all_forward_then_back(shape, stage);
    std::vector<Instruction> order;
    for (int m = 0; m < shape.micro_batches; ++m) order.insert(order.end(), {{Kind::forward, m}, {Kind::backward, m}});
    return order;
  }));
  EXPECT_NE(why.find("the stages wait for each other"), std::string::npos) << why;
  EXPECT_NE(why.find("stage 2 waits in recv_activation1"), std::string::npos) << why;
}

TEST(ScheduleRule, WithoutOneThereIsNoScheduleOfOnesOwn) {
  EXPECT_EQ(problem({PipelineSchedule::own, 2, 2}), "the schedule has no rule");
}

}  // namespace
}  // namespace seeksim::runtime
