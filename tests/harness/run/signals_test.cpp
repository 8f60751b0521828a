// Somebody asks the program to end: what is known is reported, workers end, and the status says which signal it was.
#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "tests/support/running_program.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;
namespace fs = std::filesystem;

std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> all;
  std::ifstream list("/proc/" + std::to_string(parent) + "/task/" + std::to_string(parent) + "/children");
  for (pid_t child = 0; list >> child;) all.push_back(child);
  return all;
}
bool is_gone(pid_t pid) { return ::kill(pid, 0) != 0; }

// A run of hours.
std::string endless(const TemporaryFolder& folder) {
  return folder.write("s.json", small_text_with(7, "  \"steps\": 10000000,"));
}
const std::vector<std::string> kAlone = {"--set", "faults=[]", "--set", R"(checks=["ranks_agree","no_recovery"])"};

class EndedBy : public ::testing::TestWithParam<int> {};

TEST_P(EndedBy, ARunReportsWhatItKnows) {
  TemporaryFolder folder;
  std::vector<std::string> arguments = {
      "run",       endless(folder), "--out", folder.file("out"),
      "--storage", "real",          "--set", R"(checkpoint={"path":"kept","every_steps":5,"keep":1})"};
  arguments.insert(arguments.end(), kAlone.begin(), kAlone.end());
  Running run(arguments, folder.file("text"));
  ASSERT_TRUE(soon([&] { return fs::exists(folder.file("out/kept")) && !fs::is_empty(folder.file("out/kept")); }));
  run.tell(GetParam());
  const int status = run.wait();
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == GetParam()) << status;
  const Json report = Json::parse(read_all(folder.file("out/report.json")));
  EXPECT_EQ(report.at("exit_code"), 3);
  EXPECT_GT(report.at("steps_committed").get<int>(), 0);
  EXPECT_NE(report.at("stopped").get<std::string>().find("interrupted: signal " + std::to_string(GetParam())),
            std::string::npos);
  EXPECT_NE(read_all(folder.file("out/junit.xml")).find("<testsuite"), std::string::npos);
  EXPECT_NE(read_all(folder.file("text")).find("interrupted: signal"), std::string::npos);
}

TEST_P(EndedBy, ASweepTellsItsRowsAndLeavesNobody) {
  TemporaryFolder folder;
  std::vector<std::string> arguments = {"run",      endless(folder),
                                        "--report", folder.file("report.json"),
                                        "-j",       "2",
                                        "--set",    R"(sweep={"seed":[1,2,3,4]})"};
  arguments.insert(arguments.end(), kAlone.begin(), kAlone.end());
  Running run(arguments, folder.file("text"));
  ASSERT_TRUE(soon([&] { return children_of(run.pid()).size() == 2; }));
  const std::vector<pid_t> workers = children_of(run.pid());
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  run.tell(GetParam());
  const int status = run.wait();
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == GetParam()) << status;
  for (const pid_t worker : workers) EXPECT_TRUE(soon([&] { return is_gone(worker); }));
  const Json report = Json::parse(read_all(folder.file("report.json")));
  EXPECT_NE(report.dump().find("signal"), std::string::npos);
  EXPECT_EQ(report.at("rows_red"), 0) << "what was not run is not red";
  EXPECT_EQ(report.at("rows_not_run"), 4);
  EXPECT_EQ(report.at("exit_code"), 3);
}

TEST_P(EndedBy, AnExplorationSaysWhatItFound) {
  TemporaryFolder folder;
  Running run({"explore", folder.write("s.json", small_text()), "--budget", "endless", "-j", "2", "--out",
               folder.file("found"), "--report", folder.file("report.json")},
              folder.file("text"));
  ASSERT_TRUE(soon([&] { return children_of(run.pid()).size() == 2; }));
  const std::vector<pid_t> workers = children_of(run.pid());
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  run.tell(GetParam());
  const int status = run.wait();
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == GetParam()) << status;
  for (const pid_t worker : workers) EXPECT_TRUE(soon([&] { return is_gone(worker); }));
  EXPECT_TRUE(Json::parse(read_all(folder.file("report.json"))).contains("cases"));
  EXPECT_NE(read_all(folder.file("text")).find("ended by signal"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Signals, EndedBy, ::testing::Values(SIGINT, SIGTERM, SIGHUP));

TEST(Signals, WorkersDoNotOutliveAParentThatIsKilled) {
  TemporaryFolder folder;
  Running run(
      {"explore", folder.write("s.json", small_text()), "--budget", "300s", "-j", "2", "--out", folder.file("found")},
      folder.file("text"));
  ASSERT_TRUE(soon([&] { return children_of(run.pid()).size() == 2; }));
  const std::vector<pid_t> workers = children_of(run.pid());
  run.tell(SIGKILL);
  run.wait();
  for (const pid_t worker : workers) EXPECT_TRUE(soon([&] { return is_gone(worker); }));
}

TEST(Files, TwoRunsDoNotWriteIntoOneFolder) {
  TemporaryFolder folder;
  const std::string file = endless(folder);
  std::vector<std::string> arguments = {"run", file, "--out", folder.file("out")};
  arguments.insert(arguments.end(), kAlone.begin(), kAlone.end());
  Running run(arguments, folder.file("text"));
  ASSERT_TRUE(soon([&] { return fs::exists(folder.file("out/.seeksim-lock")); }));
  arguments.insert(arguments.end(), {"--set", "steps=2"});
  Ran second;
  ASSERT_TRUE(soon([&] {
    second = seeksim(arguments);
    return second.status == 2;
  }));
  EXPECT_NE(second.err.find("another run writes there now"), std::string::npos) << second.err;
  run.tell(SIGKILL);
  run.wait();
  EXPECT_EQ(seeksim(arguments).status, 0) << "a killed run leaves a name, and no lock";
  EXPECT_FALSE(fs::exists(folder.file("out/.seeksim-lock")));
}

// In a folder that all may write to, somebody has laid a link where a temporary file of ours would be.
TEST(Files, ALinkUnderATemporaryNameIsNotFollowed) {
  TemporaryFolder folder;
  const std::string victim = folder.write("victim", "precious"), report = folder.file("report.json");
  for (const std::string& name :
       {report + '.' + std::to_string(::getpid()) + ".tmp", report + '.' + std::to_string(::getpid()) + ".0.tmp"})
    fs::create_symlink(victim, name);
  EXPECT_EQ(seeksim({"run", folder.write("s.json", small_text()), "--report", report}).status, 0);
  EXPECT_EQ(read_all(victim), "precious");
  EXPECT_FALSE(read_all(report).empty());
}

// What cannot be written keeps none of the others from being tried.
TEST(Files, AFileThatCannotBeWrittenIsTheOnlyOneThatIsMissing) {
  TemporaryFolder folder;
  const Ran ran = seeksim({"run", folder.write("s.json", small_text()), "--out", folder.file("out"), "--save-final",
                           "/dev/full", "--report", folder.file("report.json")});
  EXPECT_EQ(ran.status, 2) << ran.out;
  EXPECT_NE(ran.err.find("/dev/full"), std::string::npos) << ran.err;
  EXPECT_FALSE(read_all(folder.file("out/report.json")).empty());
  EXPECT_FALSE(read_all(folder.file("report.json")).empty());
}

}  // namespace
}  // namespace seeksim::harness
