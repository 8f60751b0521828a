// A job by its files: launch line, configuration and hostfile, each linted, and held against one another.
#pragma once

#include <string>
#include <vector>

#include "harness/doctor/lint.h"

namespace seeksim::harness {

struct JobFiles {
  std::string launch;              // a launch line in a file, or a batch script; empty: none
  std::string config;              // a ds_config.json; empty: the one that the launch names, if it can be read
  std::string hostfile;            // empty: likewise
  std::vector<std::string> autos;  // "lr=1e-4,batch=4"; before what the launch passes to the script
  std::int64_t gpus = 0;           // data-parallel ranks; 0: as launch or hostfile say
  std::int64_t gpus_before = 0;    // that the learning rate was chosen for; 0: not known
};

// What is said of one of the files.
struct JobAdvice {
  std::string about;
  std::vector<Advice> advice;
};

// Throws BadInput on a file that was given and cannot be read.
std::vector<JobAdvice> lint_job(const JobFiles& files);

}  // namespace seeksim::harness
