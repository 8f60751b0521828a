// `seeksim doctor`: what this machine offers, what is missing and how to get it, and what of the environment, of a
// ds_config.json and of a hostfile cannot mean what was intended.
#pragma once

#include <string>

#include "harness/report/report.h"
#include "harness/verdict/exit_status.h"

namespace seeksim::harness {

struct DoctorArguments {
  std::string config;    // a ds_config.json; empty: none
  std::string hostfile;  // empty: none
  int gpus = 0;          // that the config is to run on; 0: not known
};

// Status 1: advice says "wrong"; 2: seeksim cannot be trusted on this machine. Throws BadInput on a file that cannot be
// read.
ExitStatus doctor_command(const DoctorArguments& arguments, const Style& style);

}  // namespace seeksim::harness
