// Every scenario below scenarios/ meets its `expect` (those of the museum in museum_test.cpp); a negative one that is
// expected to pass is red; and the goldens that are stored are what the one-rank runs give today.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include <nlohmann/json.hpp>

#include "harness/input/scenario_files.h"
#include "harness/loading/extensions.h"
#include "harness/loading/load.h"
#include "harness/run/run.h"
#include "tests/support/paths.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

std::string path(const std::string& file) { return seeksim::paths::source_dir() + '/' + file; }

// From the repository's top, sorted.
std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> files = scenarios_below(path(folder));
  for (std::string& file : files) file.erase(0, path("").size());
  return files;
}

enum class Which { single, sweeps };

// Those that have no folder to themselves in the tests below.
std::vector<std::string> other_scenarios(Which which) {
  std::vector<std::string> files = files_in("scenarios");
  std::erase_if(files, [which](const std::string& file) {
    for (const char* folder : {"scenarios/faults/", "scenarios/negative/", "scenarios/museum/"})
      if (file.starts_with(folder)) return true;
    const Json scenario = Json::parse(read_all(path(file)));
    return (scenario.contains("sweep") || scenario.contains("fault_plan")) != (which == Which::sweeps);
  });
  return files;
}

// "deaths_rank_returns" for scenarios/deaths/rank_returns.json.
std::string test_name(const ::testing::TestParamInfo<std::string>& info) {
  const std::filesystem::path file = std::filesystem::path(info.param).lexically_relative("scenarios");
  std::string name = file.parent_path() / file.stem();
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

class Scenarios : public ::testing::TestWithParam<std::string> {};
class SlowSweeps : public ::testing::TestWithParam<std::string> {};  // hundreds of rows or of faults
class SlowFaultScenarios : public ::testing::TestWithParam<std::string> {
};  // of scenarios/faults/: the catalogue's rows
class NegativeScenarios : public ::testing::TestWithParam<std::string> {};

TEST_P(Scenarios, MeetTheirExpectation) {
  const Ran ran = seeksim({"run", path(GetParam())});
  EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
}

TEST_P(SlowSweeps, MeetTheirExpectation) {
  const Ran ran = seeksim({"run", path(GetParam())});
  EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
}

TEST_P(SlowFaultScenarios, MeetTheirExpectation) {
  const Ran ran = seeksim({"run", path(GetParam())});
  EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
}

TEST_P(NegativeScenarios, MeetTheirExpectation) {
  const Ran ran = seeksim({"run", path(GetParam())});
  EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
  EXPECT_FALSE(load_scenario(path(GetParam())).expect == Expect{}) << "a negative scenario says what goes red";
}

TEST_P(NegativeScenarios, AreRedWhenExpectedToPass) {
  const Ran ran = seeksim({"run", path(GetParam()), "--set", "expect=pass"});
  EXPECT_TRUE(ran.status == 1 || ran.status == 3) << ran.status << '\n' << ran.out << ran.err;
}

INSTANTIATE_TEST_SUITE_P(All, Scenarios, ::testing::ValuesIn(other_scenarios(Which::single)), test_name);
INSTANTIATE_TEST_SUITE_P(All, SlowSweeps, ::testing::ValuesIn(other_scenarios(Which::sweeps)), test_name);
INSTANTIATE_TEST_SUITE_P(All, SlowFaultScenarios, ::testing::ValuesIn(files_in("scenarios/faults")), test_name);
INSTANTIATE_TEST_SUITE_P(All, NegativeScenarios, ::testing::ValuesIn(files_in("scenarios/negative")), test_name);

TEST(NegativeScenariosTogether, ShowEachCheckTurningRed) {
  std::set<std::string> shown;
  for (const std::string& file : files_in("scenarios/negative")) {
    const Expect expect = load_scenario(path(file)).expect;
    if (expect.what != Expect::What::check_fails) continue;
    for (const std::string& name : expect.names()) shown.insert(name.substr(0, name.find(':')));
  }
  for (const CheckInfo& info : check_catalogue())
    EXPECT_TRUE(own_check(info.name) != nullptr || shown.count(info.name))
        << "no negative scenario turns " << info.name << " red";
}

// Lines of the lists that .ci/run runs: a scenario, and what of it is set. Those who run them find a mistake late.
TEST(ScenarioLists, EachLineLoads) {
  int lines = 0;
  for (const auto& entry : std::filesystem::directory_iterator(path("tests"))) {
    if (!entry.path().filename().string().ends_with("_scenarios.txt")) continue;
    std::ifstream list(entry.path());
    for (std::string line; std::getline(list, line);) {
      std::istringstream words(line.substr(0, line.find('#')));
      std::string file, word;
      if (!(words >> file)) continue;
      ++lines;
      LoadOptions options;
      while (words >> word)
        if (word != "--set") options.sets.push_back(word);
      EXPECT_NO_THROW(load_scenario(path(file), options)) << entry.path().filename() << ": " << line;
    }
  }
  EXPECT_GT(lines, 50);
}

// Each scenario whose golden is stored; one file serves all that share a key.
TEST(StoredGoldens, AreWhatOneRankGivesToday) {
  std::set<std::string> done;
  for (const std::string& file : files_in("scenarios")) {
    const Scenario scenario = load_scenario(path(file));
    const std::optional<Golden> stored = stored_golden(scenario);
    if (!stored || !done.insert(stored->key).second) continue;
    const Golden fresh = run_golden(scenario, stored->key);
    EXPECT_EQ(difference(*stored, fresh.state), "") << stored->origin;
    EXPECT_EQ(stored->loss, fresh.loss) << stored->origin;
    EXPECT_EQ(stored->grad_norm, fresh.grad_norm) << stored->origin;
  }
  for (const auto& entry : std::filesystem::directory_iterator(path("golden"))) {
    if (entry.path().extension() != ".json") continue;
    EXPECT_TRUE(done.count(read_golden(read_all(entry.path()), entry.path()).key))
        << entry.path() << " serves no scenario: remove it or write it again";
  }
  EXPECT_GT(done.size(), 0u);
}

}  // namespace
}  // namespace seeksim::harness
