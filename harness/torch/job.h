// The processes of a run: started, listened to, watched from outside, and ended in order.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "harness/torch/child.h"
#include "harness/torch/run_record.h"

namespace seeksim::harness::torch {

struct JobPlan {
  std::vector<std::string> command;  // what each rank runs, or a launcher that starts the ranks
  bool direct = true;                // false: the command starts the ranks itself
  int ranks = 2;                     // of the whole job
  // In the direct form, where it goes over several hosts: this one's share of the ranks.
  int hosts = 1, host = 0;
  std::string master = "127.0.0.1";
  int port = 0;             // 0: a free one
  Environment environment;  // of all processes
  std::string folder;       // where the ranks write
  double patience_s = 60;   // without any progress for so long, the job is ended
  double wall_limit_s = 0;  // 0: none
  bool quiet = false;       // what the processes print goes to their files only
  // Of a job on several hosts; both may be empty. A process of this job has failed, in a sentence; and what is known of
  // such a failure on another host, empty: nothing.
  std::function<void(const std::string& what)> on_failure;
  std::function<std::string()> failed_elsewhere;
};

// A port of the loopback interface that nobody uses, and that no other HeldPort of this machine is while this one
// lives: what is free now may be taken before rank 0 comes to listen there. A socket of that name says so to other
// programs, and vanishes with its owner. Linux gives outgoing connections ports from 32768 on; this one is below, where
// it can be.
class HeldPort {
 public:
  HeldPort();                    // looks from a place that differs by process and job
  explicit HeldPort(long from);  // from this place on
  ~HeldPort();
  HeldPort(const HeldPort&) = delete;
  HeldPort& operator=(const HeldPort&) = delete;
  int number() const { return number_; }

 private:
  bool hold(int port);
  void release();

  int fd_ = -1, number_ = -1;
};

// A command that seeksim starts once a rank: a script, with the Python that runs it.
bool is_script(const std::string& word);

// Runs it to its end. What the processes print comes out as they print it, in the direct form with the rank in front,
// and goes to output-N.txt. A signal that ends this program (INT, TERM, HUP) ends the job first. Throws BadInput where
// a process cannot be started.
JobRun run_job(const JobPlan& plan);

}  // namespace seeksim::harness::torch
