// The files that deepspeed.tensorboard and deepspeed.csv_monitor ask for, named and filled as DeepSpeed 0.19.6 does it.
#pragma once

#include <string>

#include "harness/record/run_record.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

// Makes the folders of the monitors that are on. below: a folder in each of them; empty: none. Throws BadInput, also
// where a link leads out of the working folder.
void make_monitor_folders(const Monitors& monitors, const std::string& below);

// Train/Samples/lr, train_loss and, in fp16, loss_scale of the committed steps, over the samples consumed. Rate and
// scale are those after the step, which the next one uses. A run of shapes has no losses. Throws BadInput.
void write_monitor_files(const Scenario& scenario, const RunRecord& run, const std::string& below);

}  // namespace seeksim::harness
