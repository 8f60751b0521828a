// Every scenario of scenarios/, scenarios/faults/ and scenarios/negative/ meets its `expect`; a negative one that is
// expected to pass is red; and the goldens that are stored are what the one-rank runs give today.
#include <algorithm>
#include <filesystem>
#include <set>

#include <nlohmann/json.hpp>

#include "harness/loading/load.h"
#include "harness/loading/own.h"
#include "harness/run/run.h"
#include "tests/support/paths.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

enum class Which { all, single, sweeps };

bool fits(const std::string& file, Which which) {
  if (which == Which::all) return true;
  const Json scenario = Json::parse(read_all(file));
  return (scenario.contains("sweep") || scenario.contains("fault_plan")) == (which == Which::sweeps);
}

std::vector<std::string> files_in(const std::string& folder, Which which = Which::all) {
  std::vector<std::string> files;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(seeksim::paths::source_dir() + '/' + folder, none)) {
    const std::string name = entry.path().filename().string();
    const bool is_scenario = entry.path().extension() == ".json" && name != "schema.json";
    if (is_scenario && fits(entry.path().string(), which)) files.push_back(folder + '/' + name);
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string test_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = std::filesystem::path(info.param).stem().string();
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

std::string path(const std::string& file) { return seeksim::paths::source_dir() + '/' + file; }

class Scenarios : public ::testing::TestWithParam<std::string> {};
class SlowSweeps : public ::testing::TestWithParam<std::string> {};  // of scenarios/: hundreds of rows or of faults
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

INSTANTIATE_TEST_SUITE_P(All, Scenarios, ::testing::ValuesIn(files_in("scenarios", Which::single)), test_name);
INSTANTIATE_TEST_SUITE_P(All, SlowSweeps, ::testing::ValuesIn(files_in("scenarios", Which::sweeps)), test_name);
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

// Each scenario whose golden is stored; one file serves all that share a key.
TEST(StoredGoldens, AreWhatOneRankGivesToday) {
  std::set<std::string> done;
  for (const char* folder : {"scenarios", "scenarios/faults", "scenarios/negative"}) {
    for (const std::string& file : files_in(folder)) {
      const Scenario scenario = load_scenario(path(file));
      const std::optional<Golden> stored = stored_golden(scenario);
      if (!stored || !done.insert(stored->key).second) continue;
      const Golden fresh = run_golden(scenario, stored->key);
      EXPECT_EQ(difference(*stored, fresh.state), "") << stored->origin;
      EXPECT_EQ(stored->loss, fresh.loss) << stored->origin;
      EXPECT_EQ(stored->grad_norm, fresh.grad_norm) << stored->origin;
    }
  }
  for (const std::string& file : files_in("golden")) {
    EXPECT_TRUE(done.count(read_golden(read_all(path(file)), file).key))
        << file << " serves no scenario: remove it or write it again";
  }
  EXPECT_GT(done.size(), 0u);
}

}  // namespace
}  // namespace seeksim::harness
