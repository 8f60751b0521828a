// A script's run as one HTML file: verdict, checks, what each rank did when, who waited for whom. It computes nothing
// that the JSON report or the ranks' records do not say.
#pragma once

#include <string>

#include "harness/input/json.h"
#include "harness/torch/run_record.h"

namespace seeksim::harness::torch {

// report: of the same run ("seeksim-torch-report-1"). command: that makes the page again.
std::string run_page(const TorchRun& run, const Json& report, const std::string& command);

}  // namespace seeksim::harness::torch
