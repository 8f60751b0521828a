// DeepSpeed's monitors of a training that write files: deepspeed.tensorboard and deepspeed.csv_monitor.
#pragma once

#include <string>

namespace seeksim::harness {

struct Monitor {
  bool enabled = false;
  std::string output_path;                    // empty: the working folder
  std::string job_name = "DeepSpeedJobName";  // a folder in it
};

struct Monitors {
  Monitor tensorboard, csv;
};

// Where a monitor's files go, below the working folder. Empty: it names a folder elsewhere, and writes nothing.
std::string folder_of(const Monitor& monitor);

}  // namespace seeksim::harness
