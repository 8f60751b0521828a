// Scenarios and options that nobody means: each is bad input, said at once and in a page.
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include <nlohmann/json.hpp>

#include "harness/input/json_text.h"
#include "harness/loading/load.h"
#include "harness/loading/schedule_string.h"
#include "harness/record/golden.h"
#include "harness/scenario/variants.h"
#include "runtime/layout/parameters.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

void expect_problem(const std::vector<std::string>& sets, const std::string& says) {
  const std::string found = problems_of(small_text(), sets);
  EXPECT_NE(found.find(says), std::string::npos) << sets.front() << "\n  gave: " << found;
  EXPECT_EQ(found.find("bug"), std::string::npos) << found;
}

TEST(HostileScenario, ModelsThatCannotBeAreRefusedBeforeTheyAreCut) {
  expect_problem({"world.tensor=2", "model.width=10", "model.heads=4"}, "10 is not a multiple of 4 heads");
  expect_problem({"world.pipeline=2", "world.pipeline_layers=\"parameters\"", "model.width=15", "model.heads=4"},
                 "15 is not a multiple of 4 heads");
  expect_problem({"world.tensor=2", "model.family=llama", "model.width=16", "model.heads=8", "model.kv_heads=3"},
                 "8 heads are no whole number of groups for 3 of keys");
  expect_problem({"world.pipeline_layers=[1,1]"}, "world.pipeline_layers: 2 pieces are given");
  EXPECT_EQ(problems_of(small_text(), {"world.pipeline_layers=[1]"}), "");
}

TEST(HostileScenario, FilesOfARunStayBelowItsFolder) {
  for (const char* path : {"../../x", "a/..", "a/../../b"})
    expect_problem({fmt::format("checkpoint.path=\"{}\"", path)}, "Files of a run stay below --out");
  expect_problem({"deepspeed.zero_optimization={\"stage\": 1, \"offload_optimizer\": {\"device\": \"nvme\", "
                  "\"nvme_path\": \"../x\"}}"},
                 "offload_optimizer.nvme_path: \"..\"");
  EXPECT_EQ(problems_of(small_text(), {"checkpoint.path=\"a..b/..c\""}), "");
}

TEST(HostileScenario, RangesOfASweepHaveAnEnd) {
  for (const char* range : {"[-9223372036854775808,9223372036854775807]", "[0,9223372036854775807]",
                            "[9223372036854775807,-9223372036854775808]", "[0,18446744073709551615]", "[0,10000]"})
    expect_problem({fmt::format("sweep={{\"seed\":{{\"range\":{}}}}}", range)}, "a range has at most 10000");
  const std::string last = R"(sweep={"steps":{"range":[9223372036854775807,9223372036854775807]}})";
  EXPECT_EQ(problems_of(small_text(), {last}).find("range"), std::string::npos);
}

TEST(HostileScenario, FactorsAndRatesThatNoTimeHoldsAreRefused) {
  for (const char* factor : {"1e18", "1e300", "2e9"})
    expect_problem({fmt::format(R"(faults=[{{"kind":"straggler","rank":1,"factor":{}}}])", factor)}, "factor");
  expect_problem({R"(faults=[{"kind":"slow_link","link":{"from":0,"to":2},"factor":1e-18}])"}, "from 1e-9 to 1");
  expect_problem({R"(faults=[{"kind":"clock_skew","rank":1,"drift_ppm":1e300}])"}, "drift_ppm");
  for (const char* key : {"device.tflops", "device.bandwidth_gb_s", "device.copy_gb_s", "storage.read_gb_s"})
    expect_problem({fmt::format("world.{}=1e-300", key)}, "it must be at least 1e-09");
  expect_problem({"world.device.launch_us=1e300"}, "it must be at most 1000000000");
  expect_problem({R"(schedule={"strategy":"first","slow":[{"rank":4294967296,"queue":"compute","doublings":5}]})"},
                 "there is no rank 4294967296");
}

// The slowest that can be said ends as slow: by the watchdog, not with time that has run over its end.
TEST(HostileScenario, TheSlowestDeviceIsNotTheFastest) {
  TemporaryFolder folder;
  const std::string file = folder.write("s.json", small_text_with(10, R"(  "checks": [ "ranks_agree" ])"));
  for (const char* slow : {R"(faults=[{"kind":"straggler","rank":1,"factor":1e9}])", "world.device.tflops=1e-9"}) {
    const Ran ran = seeksim({"run", file, "--set", "faults=[]", "--set", slow, "--set", "recovery.watchdog_s=1e-3",
                             "--set", R"(checks=[{"finishes_within_virtual_s": 0.1}])"});
    EXPECT_NE(ran.status, 0) << slow << ran.out;
    EXPECT_NE(ran.status, 4) << slow << ran.out << ran.err;
  }
}

TEST(HostileScenario, AScheduleOfAnotherWorldIsRefused) {
  Scenario scenario = small_scenario();
  scenario.world.schedule.strategy = sim::Strategy::first;
  scenario.world.schedule.slow = {{255, sim::SlowQueue::Which::compute, 5}};
  const std::string text = schedule_string(scenario, sim::kDecisionsVersion);
  TemporaryFolder folder;
  const Ran ran = seeksim({"run", folder.write("s.json", small_text()), "--schedule", text});
  EXPECT_EQ(ran.status, 2) << ran.out << ran.err;
  EXPECT_NE(ran.err.find("it slows rank 255, and there are 4"), std::string::npos) << ran.err;
}

TEST(HostileScenario, APlanIsMadeWithoutThePlantedBug) {
  TemporaryFolder folder;
  const std::string file = folder.write("s.json", small_text());
  const Ran ran =
      seeksim({"plan", file, "--set", "bug=skipped_collective", "--set", "faults=[]", "--set", "recovery.policy=stop"});
  EXPECT_NE(ran.status, 4) << ran.err;
  EXPECT_EQ(ran.out, seeksim({"plan", file, "--set", "faults=[]", "--set", "recovery.policy=stop"}).out);
}

// ---- stored goldens ------------------------------------------------------------------------------------------------

TEST(HostileGolden, OneThatLacksSomethingIsRefused) {
  const Scenario scenario = load_scenario_text(small_text_with(8, ""), "s.json");
  const std::string key = golden_key(one_rank(scenario).train.definition);
  for (const char* lacks : {"", "grad_norm", "loss", "tensors", "one tensor"}) {
    TemporaryFolder folder;
    const std::string file = folder.write("s.json", small_text_with(8, ""));
    ASSERT_EQ(::mkdir(folder.file("golden").c_str(), 0700), 0);
    Scenario here = scenario;
    here.file = file;
    Golden golden;
    golden.key = key;
    golden.loss = golden.grad_norm = {1, 1, 1, 1};
    for (const std::string& name : runtime::parameter_names(scenario.train.definition.model))
      golden.state.by_tensor.emplace_back(name, 1);
    if (lacks == std::string("grad_norm")) golden.grad_norm = {1};
    if (lacks == std::string("loss")) golden.loss = golden.grad_norm = {1, 1};
    if (lacks == std::string("tensors")) golden.state.by_tensor.clear();
    if (lacks == std::string("one tensor")) golden.state.by_tensor.pop_back();
    folder.write("golden/" + golden_file_name(here, key), dump(to_json(golden, here)));
    const Ran ran = seeksim({"run", file, "--set", R"(checks=["golden:bitwise"])", "--set", "faults=[]"});
    EXPECT_EQ(ran.status, lacks[0] == 0 ? 1 : 2) << lacks << ran.out << ran.err;  // whole: it is another run's
  }
}

// ---- what is long ---------------------------------------------------------------------------------------------------

double seconds_of(const std::function<void()>& act) {
  const auto start = std::chrono::steady_clock::now();
  act();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Generous: the work was quadratic, and took minutes.
constexpr double kPatience_s = 5;

TEST(LongRefusals, ManyProblemsAreAPageAndTakeNoTime) {
  std::string keys, checks;
  for (int i = 0; i < 70'000; ++i) {
    keys += fmt::format("\"k{}\": 0,\n", i);
    checks += fmt::format("{}\"c{}\"", i == 0 ? "" : ",", i);
  }
  const std::string with_keys = small_text_with(2, keys),
                    with_checks = small_text_with(10, "\"checks\": [" + checks + "]");
  for (const std::string* text : {&with_keys, &with_checks}) {
    std::string found;
    EXPECT_LT(seconds_of([&] { found = problems_of(*text); }), kPatience_s);
    EXPECT_EQ(std::count(found.begin(), found.end(), '\n'), 50);
    EXPECT_LT(found.size(), 20'000u);
    EXPECT_NE(found.find("and at least "), std::string::npos) << found.substr(found.size() - 200);
  }
}

TEST(LongRefusals, AKeyOfThousandsOfPartsIsNotFollowed) {
  std::string key = "a";
  for (int i = 0; i < 60'000; ++i) key += ".a";
  std::string found;
  EXPECT_LT(seconds_of([&] { found = problems_of(small_text(), {key + "=1"}); }), kPatience_s);
  EXPECT_NE(found.find("the key has 60001 parts; at most 64 are read"), std::string::npos) << found.substr(0, 500);
  EXPECT_LT(found.size(), 1000u);
}

TEST(LongRefusals, LongValuesAreCut) {
  const std::string value(500'000, 'x');
  for (const std::string& set : {"name=" + value, "steps=" + value, "bug=" + value, "sweep={\"" + value + "\":[1]}"})
    EXPECT_LT(problems_of(small_text(), {set}).size(), 10'000u) << set.substr(0, 20);
  TemporaryFolder folder;
  const Ran ran = seeksim({"explore", folder.write("s.json", small_text()), "--budget", value});
  EXPECT_EQ(ran.status, 2);
  EXPECT_LT(ran.err.size(), 10'000u);
}

// ---- the machine's limits ------------------------------------------------------------------------------------------

#ifdef __SANITIZE_ADDRESS__
constexpr bool kLimitsHold = false;  // the address sanitizer needs more address space than these limits
#else
constexpr bool kLimitsHold = true;
#endif

// How a run ends in so much address space; -1: by a signal.
int status_within(std::size_t bytes, const std::vector<std::string>& arguments) {
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{bytes, bytes};
    ::setrlimit(RLIMIT_AS, &limit);
    ::_exit(seeksim(arguments).status);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(MachineLimits, NoAddressSpaceForTheEmulatedDeviceIsNoBug) {
  if (!kLimitsHold) GTEST_SKIP() << "the address sanitizer needs more address space than this limit";
  TemporaryFolder folder;
  const std::string file = folder.write("s.json", small_text());
  EXPECT_EQ(status_within(std::size_t{4} << 30, {"run", file, "--device", "emulated"}), 2);
}

// Wherever in the making of a world, or in taking it down, memory runs out.
TEST(MachineLimits, ALargeWorldWithoutMemoryIsNoCrash) {
  if (!kLimitsHold) GTEST_SKIP() << "the address sanitizer needs more address space than this limit";
  TemporaryFolder folder;
  const std::string file = folder.write("s.json", small_text());
  for (const std::size_t mib : {250, 300, 350, 400, 500, 600, 700}) {
    const int status =
        status_within(mib << 20, {"run", file, "--set", "world.nodes=256", "--set", "world.ranks_per_node=8", "--set",
                                  "deepspeed={\"train_batch_size\":2048}"});
    EXPECT_EQ(status, 2) << mib << " MiB";
  }
}

}  // namespace
}  // namespace seeksim::harness
