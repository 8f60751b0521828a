// The loop that a real rank's host turns: a part that has left it is not called any more, though others still turn it
// while they end.
#include "runtime/backend/machine/progress.h"

#include <gtest/gtest.h>

#include <memory>

#include "runtime/backend/machine/wall_clock.h"

namespace seeksim::test {
namespace {

using namespace runtime;

struct Counted final : Poller {
  explicit Counted(int& asked) : asked(asked) {}
  bool poll() override {
    ++asked;
    return true;
  }
  int& asked;
};

TEST(Progress, WhoHasLeftIsNotAsked) {
  WallClock wall;
  ProgressLoop loop(wall);
  int first = 0, second = 0;
  Counted stays(second);
  auto goes = std::make_unique<Counted>(first);
  loop.add(*goes);
  loop.add(stays);
  loop.turn();
  loop.remove(*goes);
  goes.reset();
  loop.turn();
  loop.remove(stays);
  loop.turn();
  EXPECT_EQ(first, 1);
  EXPECT_EQ(second, 2);
}

}  // namespace
}  // namespace seeksim::test
