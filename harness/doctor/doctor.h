// `seeksim doctor`: what this machine offers, what is missing and how to get it, and what of the environment, of a
// ds_config.json and of a hostfile cannot mean what was intended.
#pragma once

#include "harness/doctor/job.h"
#include "harness/report/report.h"
#include "harness/verdict/exit_status.h"

namespace seeksim::harness {

// The files of a job, as they stand on the command line.
using DoctorArguments = JobFiles;

// Status 1: advice says "wrong"; 2: seeksim cannot be trusted on this machine. Throws BadInput on a file that cannot be
// read.
ExitStatus doctor_command(const DoctorArguments& arguments, const Style& style);

}  // namespace seeksim::harness
