// What a run of a script left behind, as plain values: how its processes ended, and the record of each rank.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/torch/child.h"
#include "harness/torch/plan.h"
#include "pytorch/core/record.h"

namespace seeksim::harness::torch {

// Why the command ended the job before it ended by itself.
enum class Stopped : std::uint8_t {
  no,
  after_a_failure,  // a rank had ended with an error, and the others did not follow
  no_progress,      // nobody did anything any more
  out_of_time,      // --wall-limit
  interrupted,      // by a signal to the command
  count_
};

// One process that the command started: a rank, or the user's launcher.
struct ProcessRun {
  int rank = -1;  // -1: a launcher
  Ending ending;
  bool ended_by_us = false;
  double after_s = 0;      // since the start
  std::string last_words;  // of its error output: see LastWords
  int host = 0;
};

struct JobRun {
  std::vector<ProcessRun> processes;
  Stopped stopped = Stopped::no;
  std::string why;  // it was stopped, in a sentence; empty: it was not
  double wall_s = 0;
};

// What one rank left in the run's folder.
struct RankRun {
  int rank = 0;
  int host = 0;
  std::optional<pytorch::RankRecord> record;
  std::string problem;  // why the record cannot be read; empty where there is none, or it could
  std::string refused;  // why the package did not start there
  std::string stack;    // its Python stacks, as faulthandler wrote them
};

// One of several hosts of a job.
struct HostRun {
  std::string name;
  std::vector<int> ranks;     // that left files there; of a lost host those that left none elsewhere
  std::string problem;        // why what it knows is missing here, or not whole; empty: it is all here
  std::int64_t clock_ns = 0;  // how much more its monotonic clock shows than the first host's
};

struct TorchRun {
  TorchScenario scenario;
  std::string folder;
  std::vector<std::string> command;
  JobRun job;
  std::vector<RankRun> ranks;  // one for each rank of the plan
  std::vector<HostRun> hosts;  // empty: all was on this one
  // On a host that is not the first: what that one found, for all.
  std::optional<std::string> verdict;
};

// "host 1 (node2)"; empty where all was on one.
std::string host_name(const TorchRun& run, int host);
// The host of a rank, by the files that it left; -1: unknown.
int host_of(const TorchRun& run, int rank);

// What the command of one host says of its job to the first one.
std::string summary_text(const JobRun& job, const std::vector<int>& ranks);
// Adds it to the run of the first host: processes of that host, and its ranks. What makes no sense becomes the host's
// problem.
void add_summary(TorchRun& run, int host, const std::string& text);
// Where one host is lost, the ranks that no other host had were there.
void add_lost_ranks(TorchRun& run);
// The ranks that have files in a folder, but for files of these names, which came from elsewhere.
std::vector<int> ranks_in(const std::string& folder, int ranks, const std::vector<std::string>& but = {});
// hosts.json of a folder: who was where, and how far clocks are apart.
void write_hosts(const std::string& folder, const std::vector<HostRun>& hosts);

// The record of a rank in a folder: of the last attempt, where a launcher restarted the job. Empty: there is none.
std::string record_file(const std::string& folder, int rank);
// Reads what ranks left in a folder: `ranks` of them, or as many as there are files, where it is 0. Times are those of
// the first host's clock.
std::vector<RankRun> read_ranks(const std::string& folder, int ranks);
// Removes what an earlier run left there.
void clear_run_folder(const std::string& folder);

// A group of ranks as all its members know it: its name and the launch ranks in it.
struct GroupId {
  std::string name;
  std::vector<int> ranks;
  friend auto operator<=>(const GroupId&, const GroupId&) = default;
};
GroupId group_of(const pytorch::RankRecord& record, std::int32_t group);

// The value of a loss.
double value_of(const pytorch::LossEntry& loss);

// The script's own frame in a stack, as "train.py:51 main": the innermost one that is neither torch's nor Python's.
// From "file:line function" lines, or from faulthandler's. Empty where there is none.
std::string own_frame(const std::string& stack);

// "all_reduce #8 of group 0 (step 2, backward)"
std::string describe(const pytorch::RankRecord& record, const pytorch::CallEntry& call);

}  // namespace seeksim::harness::torch
