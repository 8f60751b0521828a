// Samples that no step trains on: the end of a text, one after the other and over again, or a random stream apart.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "runtime/plan/evaluation_plan.h"
#include "runtime/samples/data.h"

namespace seeksim::runtime {
namespace {

Definition definition_of(const std::string& text, std::int64_t held_out) {
  Definition d;
  d.model.context = 4;
  d.data.bytes = text;
  d.data.synthetic = text.empty();
  d.data.held_out_bytes = held_out;
  return d;
}

std::vector<std::int32_t> sample(const DataSource& source, std::int64_t g) {
  std::vector<std::int32_t> tokens(5);
  source.sample(g, tokens.data());
  return tokens;
}

TEST(HeldOut, NoStepReadsTheEndOfTheText) {
  const Definition d = definition_of(std::string(40, 'a') + std::string(11, 'b'), 11);
  const DataSource trains = data_source(d), held_out = held_out_source(d);
  for (std::int64_t g = 0; g < 2000; ++g) {
    for (const std::int32_t token : sample(trains, g)) ASSERT_EQ(token, 'a') << "sample " << g;
    for (const std::int32_t token : sample(held_out, g)) ASSERT_EQ(token, 'b') << "sample " << g;
  }
}

TEST(HeldOut, SamplesFollowEachOtherAndBeginAgain) {
  const Definition d = definition_of("aaaaaaaaaaABCDEFGHIJ", 10);
  const DataSource held_out = held_out_source(d);
  EXPECT_EQ(sample(held_out, 0), (std::vector<std::int32_t>{'A', 'B', 'C', 'D', 'E'}));
  EXPECT_EQ(sample(held_out, 1), (std::vector<std::int32_t>{'E', 'F', 'G', 'H', 'I'}));
  EXPECT_EQ(sample(held_out, 2), (std::vector<std::int32_t>{'C', 'D', 'E', 'F', 'G'})) << "8 of 6 places on";
  EXPECT_EQ(sample(held_out, 3), sample(held_out, 0));
}

TEST(HeldOut, SyntheticOnesAreNoStepsSamples) {
  const Definition d = definition_of("", 0);
  std::set<std::vector<std::int32_t>> trained;
  for (std::int64_t g = 0; g < 500; ++g) trained.insert(sample(data_source(d), g));
  for (std::int64_t g = 0; g < 500; ++g) EXPECT_FALSE(trained.count(sample(held_out_source(d), g))) << g;
  EXPECT_EQ(sample(held_out_source(d), 7), sample(held_out_source(d), 7));
}

TEST(HeldOut, EvaluationsAreDueAfterEveryFewStepsAndAtTheEnd) {
  const EvaluationPlan plan{3, 8};
  std::vector<std::int64_t> due;
  for (std::int64_t steps = 0; steps < 10; ++steps) {
    if (plan.is_due(steps)) due.push_back(steps);
  }
  EXPECT_EQ(due, (std::vector<std::int64_t>{3, 6, 9}));
  EXPECT_EQ(plan.count(9), 3) << "after 3, after 6, and at the end";
  EXPECT_EQ(plan.count(10), 4);
  EXPECT_EQ((EvaluationPlan{0, 8}.count(10)), 1);
  EXPECT_EQ((EvaluationPlan{3, 0}.count(10)), 0);
  EXPECT_FALSE((EvaluationPlan{3, 0}.is_due(3)));
}

}  // namespace
}  // namespace seeksim::runtime
