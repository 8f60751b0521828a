// run --watch: the program runs again when a scenario changes, and ends when it is asked to.
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/running_program.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

std::size_t times(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

class Watch : public ::testing::Test {
 protected:
  std::string said() const { return read_all(folder.file("out")); }
  // small_text(), under another name.
  std::string named(const std::string& name) const {
    std::string text = small_text();
    const std::size_t at = text.find("\"small\"");
    return at == std::string::npos ? "" : text.replace(at, 7, '"' + name + '"');
  }
  bool soon_says(const std::string& words, std::size_t n) {
    return soon([&] { return times(said(), words) >= n; });
  }
  TemporaryFolder folder;
};

TEST_F(Watch, AScenarioThatChangesRunsAgainUntilASignalComes) {
  const std::string scenario = folder.write("s.json", named("first"));
  Running watching({"run", scenario, "--watch"}, folder.file("out"));
  ASSERT_TRUE(soon_says("run 1 ended with status", 1)) << said();
  folder.write("s.json", named("second"));
  ASSERT_TRUE(soon_says("run 2 ended with status", 1)) << said();
  EXPECT_NE(said().find("PASS second"), std::string::npos) << said();
  folder.write("s.json", "this is no scenario");
  ASSERT_TRUE(soon_says("run 3 ended with status 2", 1)) << said();
  folder.write("s.json", named("third"));
  ASSERT_TRUE(soon_says("run 4 ended with status 0", 1)) << said();
  watching.tell(SIGINT);
  const int status = watching.wait();
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGINT);
  EXPECT_EQ(times(said(), "ended with status"), 4u) << "nothing ran that nobody asked for\n" << said();
}

TEST_F(Watch, AFileThatTheScenarioNamesCountsToo) {
  folder.write("text.txt", std::string(4000, 'a') + std::string(4000, 'b'));
  const std::string scenario = folder.write("s.json", R"({ "name": "s", "data": { "text": "text.txt" },
    "model": { "layers": 1, "width": 16, "heads": 2, "context": 8, "vocab": 256 },
    "world": { "nodes": 1, "ranks_per_node": 1 }, "steps": 1,
    "deepspeed": { "train_batch_size": 1 }, "checks": [] })");
  Running watching({"run", scenario, "--watch"}, folder.file("out"));
  ASSERT_TRUE(soon_says("run 1 ended with status 0", 1)) << said();
  folder.write("text.txt", std::string(9000, 'c'));
  ASSERT_TRUE(soon_says("run 2 ended with status 0", 1)) << said();
  watching.tell(SIGTERM);
  watching.wait();
}

TEST_F(Watch, ARunThatIsUnderWayEndsWithTheWatch) {
  const std::string scenario = folder.write("s.json", small_text_with(7, "  \"steps\": 10000000,"));
  Running watching({"run", scenario, "--watch", "--set", "faults=[]", "--set", R"(checks=["ranks_agree"])"},
                   folder.file("out"));
  ASSERT_TRUE(soon_says("layout", 1)) << said();
  watching.tell(SIGTERM);
  const int status = watching.wait();
  EXPECT_TRUE(WIFSIGNALED(status)) << status << said();
  EXPECT_EQ(WTERMSIG(status), SIGTERM);
}

}  // namespace
}  // namespace seeksim::harness
