// Processes of a job: their output, their ends, and what is done about those that do not end. The ranks are shells.
#include "harness/torch/job.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "harness/input/problem.h"
#include "harness/torch/outlet.h"
#include "harness/torch/python.h"
#include "runtime/backend/machine/interrupts.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness::torch {
namespace {

using harness::testing::read_all;
using harness::testing::TemporaryFolder;

struct Ran {
  JobRun job;
  std::string out, err;
};

// A job whose ranks run this shell script.
class Shells {
 public:
  explicit Shells(const std::string& script, int ranks = 2) {
    plan.command = {"/bin/sh", "-c", script};
    plan.ranks = ranks;
    plan.folder = folder.path();
  }
  Ran run() {
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    Ran ran;
    ran.job = run_job(plan);
    ran.out = ::testing::internal::GetCapturedStdout();
    ran.err = ::testing::internal::GetCapturedStderr();
    return ran;
  }
  TemporaryFolder folder;
  JobPlan plan;
};

bool is_alive(pid_t pid) { return ::kill(pid, 0) == 0; }

// The number that a rank wrote into a file.
pid_t pid_in(const std::string& path) { return pid_t(std::atoi(read_all(path).c_str())); }

TEST(TorchJob, EachLineHasItsRankInFrontAndIsKept) {
  Shells shells("echo hello from $RANK of $WORLD_SIZE; echo oh >&2; printf 'no end'");
  const Ran ran = shells.run();
  EXPECT_NE(ran.out.find("[rank 0] hello from 0 of 2\n"), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("[rank 1] hello from 1 of 2\n"), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("[rank 1] no end\n"), std::string::npos) << ran.out;
  EXPECT_NE(ran.err.find("[rank 0] oh\n"), std::string::npos) << ran.err;
  EXPECT_NE(read_all(shells.folder.file("output-1.txt")).find("hello from 1 of 2"), std::string::npos);
}

TEST(TorchJob, RanksGetWhatTorchWants) {
  Shells shells("echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR $MARK; test $MASTER_PORT -gt 1023",
                1);
  shells.plan.environment["MARK"] = "seen";
  const Ran ran = shells.run();
  EXPECT_EQ(ran.out, "[rank 0] 0 0 1 1 127.0.0.1 seen\n");
  EXPECT_TRUE(ran.job.processes[0].ending.good());
}

TEST(TorchJob, AnExitStatusAndTheLastWordsAreKept) {
  Shells shells("if [ $RANK = 1 ]; then echo first >&2; echo why >&2; echo >&2; exit 7; fi");
  const JobRun job = shells.run().job;
  EXPECT_TRUE(job.processes[0].ending.good());
  EXPECT_EQ(job.processes[1].ending.status, 7);
  EXPECT_EQ(job.processes[1].last_words, "why");
  EXPECT_EQ(job.stopped, Stopped::no);
}

TEST(TorchJob, ASignalIsTold) {
  Shells shells("[ $RANK = 0 ] || kill -SEGV $$");
  const JobRun job = shells.run().job;
  EXPECT_EQ(job.processes[1].ending.signal, SIGSEGV);
  EXPECT_EQ(how(job.processes[1].ending), "by signal 11 (Segmentation fault)");
}

TEST(TorchJob, WhoDoesNotFollowAFailedRankIsEnded) {
  Shells shells("[ $RANK = 0 ] && exit 1; exec sleep 600");
  const JobRun job = shells.run().job;
  EXPECT_EQ(job.stopped, Stopped::after_a_failure);
  EXPECT_EQ(job.processes[0].ending.status, 1);
  EXPECT_FALSE(job.processes[0].ended_by_us);
  EXPECT_TRUE(job.processes[1].ended_by_us);
  EXPECT_EQ(job.processes[1].ending.signal, SIGTERM);
  EXPECT_LT(job.wall_s, 60);
}

TEST(TorchJob, AJobWithoutProgressIsEnded) {
  Shells shells("exec sleep 600");
  shells.plan.patience_s = 1.5;
  const JobRun job = shells.run().job;
  EXPECT_EQ(job.stopped, Stopped::no_progress);
  EXPECT_LT(job.wall_s, 60);
}

TEST(TorchJob, WhoComputesMakesProgress) {
  Shells shells(
      "end=$(($(date +%s) + 5)); while [ $(date +%s) -lt $end ]; do i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); "
      "done; "
      "done",
      1);
  shells.plan.patience_s = 3;
  const JobRun job = shells.run().job;
  EXPECT_EQ(job.stopped, Stopped::no) << job.why;
}

TEST(TorchJob, WhoDoesNotListenIsKilled) {
  Shells shells(
      "if [ $RANK = 0 ]; then while ! [ -e \"$DEAF\" ]; do sleep 0.05; done; exit 1; fi; "
      "trap '' TERM; : > \"$DEAF\"; while :; do sleep 0.2; done");
  shells.plan.environment["DEAF"] = shells.folder.file("deaf");
  const JobRun job = shells.run().job;
  EXPECT_EQ(job.stopped, Stopped::after_a_failure);
  EXPECT_EQ(job.processes[1].ending.signal, SIGKILL);
}

TEST(TorchJob, AJobThatTakesTooLongIsEnded) {
  Shells shells("while :; do :; done", 1);
  shells.plan.wall_limit_s = 1;
  EXPECT_EQ(shells.run().job.stopped, Stopped::out_of_time);
}

TEST(TorchJob, NobodyIsLeftBehind) {
  Shells shells("setsid sh -c 'echo $$ > \"$LEFT\"; exec sleep 600' & while ! [ -s \"$LEFT\" ]; do sleep 0.05; done",
                1);
  shells.plan.environment["LEFT"] = shells.folder.file("left");
  shells.run();
  const pid_t left = pid_in(shells.folder.file("left"));
  ASSERT_GT(left, 0);
  EXPECT_FALSE(is_alive(left));
}

TEST(TorchJob, ALauncherSpeaksForItself) {
  Shells shells("echo \"I start ${RANK-no rank}\"");
  shells.plan.direct = false;
  const Ran ran = shells.run();
  EXPECT_EQ(ran.out, "I start no rank\n");
  ASSERT_EQ(ran.job.processes.size(), 1u);
  EXPECT_EQ(ran.job.processes[0].rank, -1);
}

TEST(TorchJob, AProgramIsLookedForWhereTheJobLooks) {
  Shells shells("", 1);
  const std::string script = shells.folder.write("own_program", "#!/bin/sh\necho found in ${0%/*}\n");
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  shells.plan.command = {"own_program"};
  EXPECT_THROW(shells.run(), BadInput);
  ::testing::internal::GetCapturedStdout();
  ::testing::internal::GetCapturedStderr();
  shells.plan.environment["PATH"] = shells.folder.path() + ":/usr/bin:/bin";
  EXPECT_EQ(shells.run().out, "[rank 0] found in " + shells.folder.path() + '\n');
}

TEST(TorchJob, WhatCannotBeStartedIsBadInput) {
  Shells shells("");
  shells.plan.command = {"/no/such/program"};
  EXPECT_THROW(shells.run(), BadInput);
  ::testing::internal::GetCapturedStdout();
  ::testing::internal::GetCapturedStderr();
}

// A process of its own that runs a job, and is told to end.
TEST(TorchJob, ATerminatedCommandEndsItsRanksAndReports) {
  Shells shells("echo $$ > \"$FOLDER/pid-$RANK\"; exec sleep 600");
  shells.plan.environment["FOLDER"] = shells.folder.path();
  const pid_t command = ::fork();
  ASSERT_GE(command, 0);
  if (command == 0) {
    const JobRun job = run_job(shells.plan);
    ::_exit(job.stopped == Stopped::interrupted && job.processes[0].ended_by_us ? 42 : 1);
  }
  const std::string last = shells.folder.file("pid-1");
  for (int i = 0; i < 600 && !(std::filesystem::exists(last) && pid_in(last) > 0); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  ASSERT_EQ(::kill(command, SIGTERM), 0);
  int status = 0;
  ASSERT_EQ(::waitpid(command, &status, 0), command);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 42);
  for (const char* name : {"pid-0", "pid-1"}) EXPECT_FALSE(is_alive(pid_in(shells.folder.file(name)))) << name;
}

// A build or a look at a Python is worth nothing in part: it ends at once, and the caller is told why.
TEST(TorchJob, ACommandThatIsToldToEndDoesNotWaitForWhatItStarted) {
  const pid_t command = ::fork();
  ASSERT_GE(command, 0);
  if (command == 0) {
    const runtime::Interrupts noted;
    {
      const runtime::Interrupts inner;  // as a job makes one: when it goes, signals are still noted
    }
    ::raise(SIGTERM);
    try {
      capture({"/bin/sh", "-c", "exec sleep 600"}, {}, 600);
    } catch (const AskedToStop& stop) {
      ::_exit(std::string(stop.what()) == "seeksim was asked to stop: signal 15 (Terminated)" ? 42 : 2);
    }
    ::_exit(1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(command, &status, 0), command);
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 42);
}

// And one that is killed: its ranks go with it.
TEST(TorchJob, RanksDoNotOutliveAKilledCommand) {
  Shells shells("echo $$ > \"$FOLDER/pid-$RANK\"; exec sleep 600");
  shells.plan.environment["FOLDER"] = shells.folder.path();
  const pid_t command = ::fork();
  ASSERT_GE(command, 0);
  if (command == 0) {
    run_job(shells.plan);
    ::_exit(0);
  }
  const std::string last = shells.folder.file("pid-1");
  for (int i = 0; i < 600 && !(std::filesystem::exists(last) && pid_in(last) > 0); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const pid_t rank = pid_in(last);
  ASSERT_GT(rank, 0);
  ::kill(command, SIGKILL);
  ::waitpid(command, nullptr, 0);
  bool gone = false;
  for (int i = 0; i < 200 && !gone; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const std::string state = std::filesystem::exists("/proc/" + std::to_string(rank))
                                  ? read_all("/proc/" + std::to_string(rank) + "/stat")
                                  : ") Z";
    gone = state.find(") Z") != std::string::npos;  // nobody may be there to wait for it
  }
  EXPECT_TRUE(gone);
}

std::string last_of(const std::vector<std::string>& lines) {
  LastWords words;
  for (const std::string& line : lines) words.hear(line);
  return words.text();
}

TEST(LastWords, AreTheLastLineOrWhatTheLastExceptionIs) {
  EXPECT_EQ(last_of({}), "");
  EXPECT_EQ(last_of({"one", "two", "  "}), "two");
  const std::vector<std::string> traceback = {"[rank1]: Traceback (most recent call last):",
                                              "[rank1]:   File \"a.py\"",
                                              "[rank1]:     main()",
                                              "[rank1]: RuntimeError: no reduction",
                                              "[rank1]: Set a variable.",
                                              "",
                                              "a warning at the end"};
  EXPECT_EQ(last_of(traceback), "[rank1]: RuntimeError: no reduction");
  std::vector<std::string> twice = traceback;
  twice.insert(twice.end(), {"During handling of it, another one occurred:", "Traceback (most recent call last):",
                             "  File \"b.py\"", "ValueError: worse", "in two lines"});
  EXPECT_EQ(last_of(twice), "ValueError: worse");
  // A traceback that was printed long ago is not why the process ended.
  std::vector<std::string> old = traceback;
  for (int i = 0; i < 30; ++i) old.push_back("step " + std::to_string(i));
  EXPECT_EQ(last_of(old), "step 29");
  // Without a header, as a syntax error has it, the last line says what it is.
  EXPECT_EQ(last_of({"  File \"a.py\", line 1", "    x = ", "        ^", "SyntaxError: invalid syntax"}),
            "SyntaxError: invalid syntax (a.py:1)");
  EXPECT_EQ(last_of({"SyntaxError: in a message of the script's own"}),
            "SyntaxError: in a message of the script's own");
}

TEST(TorchJob, LinesOfStandardErrorAreHandedOnAsTheyCome) {
  std::vector<std::string> lines;
  harness::testing::TemporaryFolder folder;
  const std::string seen = folder.file("seen");
  // The command ends when its first line has been heard.
  const Captured ran =
      capture({"/bin/sh", "-c", "echo note: first >&2; until [ -e " + seen + " ]; do sleep 0.01; done; echo last >&2"},
              {}, 60, [&](const std::string& line) {
                lines.push_back(line);
                std::ofstream(seen) << "yes";
              });
  EXPECT_TRUE(ran.ending.good());
  EXPECT_EQ(lines, (std::vector<std::string>{"note: first", "last"}));
  EXPECT_EQ(ran.err, "note: first\nlast\n");
}

// Nobody listens on either yet, as between the choice of a port and rank 0's coming there.
TEST(TorchJob, JobsSideBySideGetPortsOfTheirOwn) {
  const HeldPort first(7000);
  const HeldPort second(7000), third(7000);
  EXPECT_NE(second.number(), first.number());
  EXPECT_NE(third.number(), second.number());
  EXPECT_NE(third.number(), first.number());
  const int was = second.number();
  {
    HeldPort gone(9000);
    EXPECT_NE(gone.number(), was);
  }
  EXPECT_LT(HeldPort(9000).number(), 32768);
}

TEST(TorchJob, CapturedCommandsAreToldApart) {
  const Captured good = capture({"/bin/sh", "-c", "echo out; echo err >&2"}, {}, 60);
  EXPECT_EQ(good.out, "out\n");
  EXPECT_EQ(good.last_words(), "err");
  EXPECT_TRUE(good.ending.good());
  const Captured slow = capture({"/bin/sh", "-c", "exec sleep 600"}, {}, 0.3);
  EXPECT_TRUE(slow.out_of_time);
  EXPECT_EQ(slow.ending.signal, SIGKILL);
}

// The recorder is Python that runs in the user's training.
TEST(TorchPackage, IsNotTakenFromTheWorkingFolder) {
  const TemporaryFolder folder;
  const std::string planted = folder.path() + "/pytorch/python/";
  for (const char* part : {"seeksim_torch/__init__.py", "seeksim_torch-1.dist-info/entry_points.txt"}) {
    std::filesystem::create_directories(std::filesystem::path(planted + part).parent_path());
    std::ofstream(planted + part) << "raise SystemExit('a stranger')\n";
  }
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  const std::string found = package_folder();
  std::filesystem::current_path(before);
  EXPECT_EQ(found.find(folder.path()), std::string::npos) << found;
  EXPECT_TRUE(std::filesystem::exists(found + "/seeksim_torch/__init__.py")) << found;
}

}  // namespace
}  // namespace seeksim::harness::torch
