// What a resumed training forgot, named from records made by hand.
#include "harness/torch/check/resumed.h"

#include <gtest/gtest.h>

#include "tests/harness/torch/made_run.h"

namespace seeksim::harness::torch {
namespace {

using pytorch::SightKind;
using testing::MadeRank;
using testing::MadeRun;

// Steps `first` to 3 of a training of four. lr: of the steps; draws: the generator moves in each step, or only as step
// 3 begins. at_3: what the generator is then, and what the loss gets more.
struct Made {
  std::int64_t first = 0;
  std::string lr = "0.1";
  bool draws = false;
  std::string at_3 = "c";
  double more = 0;
};
std::vector<RankRun> made(const Made& how) {
  MadeRun run(1);
  run[0].steps(int(4 - how.first), [&](std::int64_t step, MadeRank::Step& one) {
    const std::int64_t number = step + how.first;
    one.weight = 1000 + std::uint64_t(number);
    one.loss = 4.0 - 0.25 * double(number) + (number == 3 ? how.more : 0);
    const std::string drawn = how.draws ? std::string("s") + std::to_string(number) : "a";
    run[0].sees(SightKind::state, "param_groups.0.lr", how.lr, step);
    run[0].sees(SightKind::state, "rng.torch", number == 3 ? how.at_3 : drawn, step);
  });
  return run.run().ranks;
}

TEST(TorchResumed, AGeneratorThatALoaderMovesIsNotNamedBesideARealCause) {
  const Resumption found = hold_resumed(made({}), made({.first = 2, .lr = "0.2", .at_3 = "d", .more = 1}));
  EXPECT_EQ(found.step, 3);
  EXPECT_EQ(found.differ, std::vector<Part>{Part::scheduler}) << found.text;
}

TEST(TorchResumed, AGeneratorThatEachStepDrawsFromIsNamed) {
  const Resumption found =
      hold_resumed(made({.draws = true}), made({.first = 2, .lr = "0.2", .draws = true, .at_3 = "d", .more = 1}));
  EXPECT_EQ(found.differ, (std::vector<Part>{Part::scheduler, Part::rng})) << found.text;
}

TEST(TorchResumed, AGeneratorIsNamedWhereNothingElseDiffers) {
  const Resumption found = hold_resumed(made({}), made({.first = 2, .at_3 = "d", .more = 1}));
  EXPECT_EQ(found.differ, std::vector<Part>{Part::rng}) << found.text;
}

TEST(TorchResumed, TheSameBitsAreTheSame) { EXPECT_TRUE(hold_resumed(made({}), made({.first = 2})).same); }

}  // namespace
}  // namespace seeksim::harness::torch
