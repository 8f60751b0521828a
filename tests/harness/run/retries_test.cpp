// --retries: what came to no end is run again, and nothing else.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "harness/run/one_run.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

// What becomes of runs that end like this, one after the other.
struct Tried {
  Outcome outcome;
  std::size_t runs = 0;
  std::string text;
};
Tried tried(int retries, const std::vector<ExitStatus>& ends) {
  Tried out;
  out.outcome = retried(
      retries, [&](std::string_view text) { out.text += text; },
      [&] {
        return Outcome{ends.at(out.runs++), "slow", Json::object(), {}};
      });
  return out;
}

TEST(Retries, EndWithTheFirstRunThatComesToAnEnd) {
  constexpr ExitStatus kLate = ExitStatus::no_progress;
  const Tried second = tried(3, {kLate, ExitStatus::as_expected});
  EXPECT_EQ(second.runs, 2u);
  EXPECT_EQ(second.outcome.status, ExitStatus::as_expected);
  EXPECT_EQ(second.outcome.report["retries"], 1);
  EXPECT_NE(second.text.find("slow: it came to no end; retry 1 of 3"), std::string::npos) << second.text;
  EXPECT_EQ(tried(3, {kLate, kLate, ExitStatus::check_failed}).outcome.status, ExitStatus::check_failed);
  const Tried never = tried(2, {kLate, kLate, kLate});
  EXPECT_EQ(never.runs, 3u);
  EXPECT_EQ(never.outcome.status, kLate);
  EXPECT_EQ(never.outcome.report["retries"], 2);
}

// It would be red again: a retry that hides a red run is no retry here.
TEST(Retries, LeaveWhatCameToAnEndAlone) {
  for (const ExitStatus end :
       {ExitStatus::as_expected, ExitStatus::check_failed, ExitStatus::bad_input, ExitStatus::bug}) {
    const Tried once = tried(5, {end});
    EXPECT_EQ(once.runs, 1u);
    EXPECT_FALSE(once.outcome.report.contains("retries"));
  }
}

TEST(Retries, AreOfARunAndOfEachRowOfASweep) {
  TemporaryFolder folder;
  const std::string file = folder.write("s.json", small_text_with(8, ""));
  const std::vector<std::string> late = {"run",          file,        "--set", "checks=[]", "--wall-limit",
                                         "0.0000000001", "--retries", "2",     "--report",  folder.file("r")};
  const Ran one = seeksim(late);
  EXPECT_EQ(one.status, 3) << one.out << one.err;
  EXPECT_EQ(Json::parse(read_all(folder.file("r")))["retries"], 2);
  std::vector<std::string> sweep = late;
  sweep.insert(sweep.end(), {"--set", "sweep={\"training_seed\":[1,2]}"});
  const Ran rows = seeksim(sweep);
  EXPECT_EQ(rows.status, 3) << rows.out << rows.err;
  const Json report = Json::parse(read_all(folder.file("r")));
  EXPECT_FALSE(report.contains("retries"));
  for (const Json& row : report["rows"]) EXPECT_EQ(row["retries"], 2) << row;
}

}  // namespace
}  // namespace seeksim::harness
