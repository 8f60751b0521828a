// Jobs in forked processes: reported in order, whatever order they end in; a crash is one job's, wherever in its
// process's row of jobs it comes.
#include "harness/run/forked.h"

#include <unistd.h>

#include <csignal>
#include <set>

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace seeksim::harness {
namespace {

struct Told {
  std::vector<Outcome> outcomes;
  std::vector<std::string> texts;
  std::set<int> processes;
};

Told run(int count, int processes, int jobs_each, const std::set<std::size_t>& crashing) {
  Told told;
  Forked work;
  work.count = std::size_t(count);
  work.processes = processes;
  work.jobs_each = jobs_each;
  work.name = [](std::size_t job) { return "job " + std::to_string(job); };
  work.run = [&](std::size_t job, const Print& print) {
    print("hello from " + std::to_string(job));
    if (crashing.contains(job)) std::raise(SIGKILL);
    Outcome outcome;
    outcome.status = job % 2 == 0 ? ExitStatus::as_expected : ExitStatus::check_failed;
    outcome.name = std::to_string(job);
    outcome.report = {{"pid", int(::getpid())}};
    return outcome;
  };
  work.done = [&](std::size_t job, const std::string& text, const Outcome& outcome) {
    EXPECT_EQ(job, told.texts.size());
    told.texts.push_back(text);
    if (outcome.report.contains("pid")) told.processes.insert(outcome.report["pid"].get<int>());
  };
  told.outcomes = run_forked(work);
  return told;
}

TEST(Batch, JobsShareProcessesAndAreToldInOrder) {
  const Told told = run(200, 2, 16, {});
  ASSERT_EQ(told.outcomes.size(), 200u);
  for (std::size_t job = 0; job < 200; ++job) {
    EXPECT_EQ(told.texts[job], "hello from " + std::to_string(job));
    EXPECT_EQ(told.outcomes[job].name, std::to_string(job));
    EXPECT_EQ(told.outcomes[job].status, job % 2 == 0 ? ExitStatus::as_expected : ExitStatus::check_failed);
  }
  EXPECT_EQ(told.processes.size(), 17u);  // 200 jobs by stretches of 12
  EXPECT_EQ(run(20, 2, 1, {}).processes.size(), 20u);
}

TEST(Batch, ACrashIsOneJobsAndTheRestIsDone) {
  const std::set<std::size_t> crashing = {0, 5, 6, 30, 199};
  const Told told = run(200, 3, 16, crashing);
  for (std::size_t job = 0; job < 200; ++job) {
    const bool crashed = crashing.contains(job);
    EXPECT_EQ(told.outcomes[job].status == ExitStatus::bug, crashed) << job;
    EXPECT_EQ(told.texts[job].find("was ended by signal 9") != std::string::npos, crashed) << told.texts[job];
    EXPECT_EQ(told.texts[job].find("hello from " + std::to_string(job)), 0u) << told.texts[job];
    EXPECT_EQ(told.texts[job].find("seeksim: job " + std::to_string(job)) != std::string::npos, crashed);
  }
}

}  // namespace
}  // namespace seeksim::harness
