// Tensors alone: what a rank holds, its first values, one update.
#include "runtime/trainer/tensors.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/trainer_parts.h"

namespace seeksim::test {
namespace {

std::vector<float> values_of(AnyVec values) {
  std::vector<float> all(std::size_t(values.n));
  widen_to(values, all.data());
  return all;
}

TEST(Tensors, FirstValuesAreThoseOfTheDefinition) {
  TrainerParts parts;
  parts.allocate_tensors();
  const ParameterInfo& wte = parts.tensors.parameters().wte();
  for (const NamedTensor& tensor : initial_weights(parts.plan.definition)) {
    if (tensor.name != wte.name) continue;
    EXPECT_EQ(values_of(parts.tensors.weights_of(wte)), tensor.values);
  }
  EXPECT_EQ(parts.tensors.optimizer_steps(), 0);
}

TEST(Tensors, MastersAreHeldBeside16BitParametersAlone) {
  for (const ElementType type : {ElementType::f32, ElementType::bf16}) {
    TrainPlan plan = tiny_plan();
    plan.definition.precision.compute = plan.definition.precision.gradients = type;
    TrainerParts parts(plan);
    parts.allocate_tensors();
    EXPECT_EQ(parts.tensors.has_masters(), type == ElementType::bf16);
    EXPECT_EQ(parts.tensors.rounds_gradients(), type == ElementType::bf16);
    EXPECT_EQ(parts.tensors.flat_parameters().type, type);
    EXPECT_EQ(parts.tensors.flat_weights().type, ElementType::f32);
  }
}

TEST(Tensors, AnUpdateMovesWhatHasAGradient) {
  TrainPlan plan = tiny_plan();
  plan.definition.optimizer.weight_decay = 0;
  TrainerParts parts(plan);
  parts.allocate_tensors();
  const std::vector<float> before = values_of(parts.tensors.flat_weights());
  clear_values(parts.bench.compute, "gradients", SEEKSIM_SITE, parts.tensors.flat_gradients());
  parts.tensors.sums(3, 1).get().data[0] = 1;
  parts.tensors.update(1.0f, 0.5);
  const std::vector<float> after = values_of(parts.tensors.flat_weights());
  EXPECT_LT(after[3], before[3]);
  EXPECT_TRUE(std::equal(after.begin() + 4, after.end(), before.begin() + 4));
  EXPECT_EQ(parts.tensors.optimizer_steps(), 1);
}

TEST(Tensors, GoOnAfterAsManyStepsAsTheyAreTold) {
  TrainerParts parts;
  parts.allocate_tensors();
  parts.tensors.continue_at(12);
  EXPECT_EQ(parts.tensors.optimizer_steps(), 12);
}

TEST(Tensors, AreSplitBetweenKeeperAndFlatSpaceByThePlacement) {
  TrainPlan plan = tiny_plan();
  plan.layout.zero.stage = 1;
  TrainerParts parts(plan);
  parts.allocate_tensors();
  EXPECT_NE(parts.tensors.keeper(), nullptr);
  EXPECT_EQ(parts.tensors.gathered(), nullptr);
  EXPECT_TRUE(parts.tensors.flat_weights_here());
  EXPECT_FALSE(parts.tensors.has_flat_optimizer());
}

TEST(Tensors, AnElementOfAWayIsFoundInTheWholeModel) {
  TrainPlan plan = tiny_plan();
  plan.definition.model.heads = 8;
  plan.layout.parallel.tensor = 2;
  TrainerParts parts(plan, 2);
  const Parameters& here = parts.tensors.parameters();
  const Parameters& whole = parts.tensors.whole();
  EXPECT_LT(here.trainable_size(), whole.trainable_size());
  EXPECT_EQ(parts.tensors.place_in_whole(here.loss_offset()), whole.loss_offset());
  for (const ParameterInfo* p : here.trainable())
    EXPECT_EQ(parts.tensors.place_in_whole(p->offset), whole.all()[p->number].offset + p->first) << p->name;
}

}  // namespace
}  // namespace seeksim::test
