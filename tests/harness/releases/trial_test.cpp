// A question put to a release, with a shell in place of seeksim torch run.
#include "harness/releases/trial.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "harness/input/problem.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness::releases {
namespace {

class ReleaseTrial : public ::testing::Test {
 protected:
  // A program that gets the folder behind --out, and does this.
  Answer asked(const std::string& script, const std::string& check, const std::string& says) {
    Question question;
    question.program =
        folder_.write("program", "#!/bin/sh\nwhile [ \"$1\" != --out ]; do shift; done\nOUT=$2\n" + script);
    ::chmod(question.program.c_str(), 0700);
    question.command = {"train.py"};
    question.check = check;
    question.says = says;
    return ask(question, {"python", "", 0}, folder_.file("run"));
  }
  static std::string report(bool ok) {
    return "mkdir -p $OUT; echo '{\"checks\": [{\"name\": \"replicas_equal\", \"ok\": " +
           std::string(ok ? "true" : "false") + ", \"detail\": \"step 4\"}], \"wall_s\": 2}' > $OUT/report.json\n";
  }
  harness::testing::TemporaryFolder folder_;
};

TEST_F(ReleaseTrial, ARedJudgeIsAVerdictAndNamesWhatItNames) {
  const Answer answer = asked(report(false) + "exit 1", "replicas_equal", "");
  EXPECT_EQ(answer.verdict, Verdict::red);
  EXPECT_EQ(answer.caught_by, "replicas_equal");
  EXPECT_EQ(answer.names, "step 4");
  EXPECT_EQ(answer.seconds, 2);
}

TEST_F(ReleaseTrial, WithoutARedJudgeItIsGreen) {
  EXPECT_EQ(asked(report(true), "replicas_equal", "").verdict, Verdict::green);
}

TEST_F(ReleaseTrial, AScriptThatFailsByItselfIsNoVerdictUnlessItsErrorIsTheBug) {
  const std::string fails = "echo 'RuntimeError: assertion 7' >&2; exit 2";
  EXPECT_EQ(asked(fails, "replicas_equal", "").verdict, Verdict::none);
  EXPECT_EQ(asked(fails, "finished", "assertion 8").verdict, Verdict::none);
  const Answer answer = asked(fails, "finished", "assertion 7");
  EXPECT_EQ(answer.verdict, Verdict::red);
  EXPECT_EQ(answer.names, "RuntimeError: assertion 7");
}

// In the middle of a run that was to be compared with another one.
TEST_F(ReleaseTrial, AScriptThatFailsOnItsWayIsNoVerdictUnlessItsErrorIsTheBug) {
  const auto verdict = [this](const std::string& says) {
    Question question;
    question.program = folder_.write(
        "program",
        "#!/bin/sh\nwhile [ \"$1\" != --out ]; do shift; done\nOUT=$2\nmkdir -p $OUT; echo '{\"checks\": [{\"name\": "
        "\"finished\", \"ok\": false, \"detail\": \"rank 0: TypeError: seven\"}]}' > $OUT/report.json\nexit 1\n");
    ::chmod(question.program.c_str(), 0700);
    question.command = question.against = {"train.py"};
    question.says = says;
    return ask(question, {"python", "", 0}, folder_.file("run")).verdict;
  };
  EXPECT_EQ(verdict(""), Verdict::none);
  EXPECT_EQ(verdict("KeyError"), Verdict::none);
  EXPECT_EQ(verdict("TypeError: seven"), Verdict::red);
}

TEST_F(ReleaseTrial, RunsWithoutRecordsCannotBeCompared) {
  Question question;
  question.program =
      folder_.write("program", "#!/bin/sh\nwhile [ \"$1\" != --out ]; do shift; done\nOUT=$2\n" + report(true));
  ::chmod(question.program.c_str(), 0700);
  question.command = question.against = {"train.py"};
  const Answer answer = ask(question, {"python", "", 0}, folder_.file("run"));
  EXPECT_EQ(answer.verdict, Verdict::none);
  EXPECT_NE(answer.names.find("no record"), std::string::npos) << answer.names;
}

TEST(ReleaseEnvironments, WhatIsNoPinIsBadInput) {
  EXPECT_THROW(make_environment({"deepspeed"}, "python3"), BadInput);
  EXPECT_THROW(make_environment({"a==1", "a==2"}, "python3"), BadInput);
  EXPECT_THROW(releases_of("--evil", "python3"), BadInput);
}

}  // namespace
}  // namespace seeksim::harness::releases
