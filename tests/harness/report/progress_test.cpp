// How far something is, in words.
#include "harness/report/progress.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "harness/report/terminal.h"

namespace seeksim::harness {
namespace {

TEST(Progress, CountsWhatThereIsAndGuessesTheRest) {
  EXPECT_EQ(how_far({.done = 155, .total = 240, .red = 2, .elapsed_s = 31}, "row"),
            "row 155 of 240, 2 red, about 17 s left");
  EXPECT_EQ(how_far({.done = 1, .total = 240, .elapsed_s = 1}, "row"), "row 1 of 240") << "too early to guess";
  EXPECT_EQ(how_far({.done = 240, .total = 240, .elapsed_s = 9}, "row"), "row 240 of 240");
  EXPECT_EQ(how_far({.done = 10, .total = 100, .elapsed_s = 60}, "run"), "run 10 of 100, about 9 min left");
  EXPECT_EQ(how_far({.done = 10, .total = 100, .elapsed_s = 6000}, "run"), "run 10 of 100, about 15.0 h left");
  EXPECT_EQ(how_far({.done = 3, .total = 20, .elapsed_s = 3, .at_ns = 1'500'000}, "step"),
            "step 3 of 20, 0.002 s virtual, about 17 s left");
}

TEST(Progress, OfABudgetIsItsTime) {
  EXPECT_EQ(how_far({.done = 41, .red = 1, .elapsed_s = 12, .budget_s = 60}, "case"), "41 cases, 1 red, 12 s of 60 s");
  EXPECT_EQ(how_far({.done = 1, .elapsed_s = 1, .budget_s = 600}, "case"), "1 case, 1 s of 10 min");
}

TEST(Progress, WithoutAnEndIsTheTimeSoFar) {
  EXPECT_EQ(how_far({.done = 412, .red = 1, .elapsed_s = 180}, "case"), "412 cases, 1 red, after 3 min");
}

struct Variable {
  explicit Variable(const char* variable, const char* value) : name(variable) { ::setenv(name, value, 1); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() { ::unsetenv(name); }
  const char* name;
};

TEST(Colours, AreForTerminalsThatShowThem) {
  const char* const term = std::getenv("TERM");
  const std::string before = term != nullptr ? term : "";
  ::unsetenv("NO_COLOR");
  ::setenv("TERM", "xterm", 1);
  EXPECT_TRUE(shows_colour());
  {
    const Variable off("NO_COLOR", "");
    EXPECT_FALSE(shows_colour());
  }
  {
    const Variable by_mpirun("OMPI_COMM_WORLD_RANK", "0");
    EXPECT_FALSE(shows_colour());
  }
  ::setenv("TERM", "dumb", 1);
  EXPECT_FALSE(shows_colour());
  before.empty() ? ::unsetenv("TERM") : ::setenv("TERM", before.c_str(), 1);
}

}  // namespace
}  // namespace seeksim::harness
