// What a run of a script looks like to people and to programs.
#pragma once

#include <string>

#include "harness/report/report.h"
#include "harness/torch/run_record.h"
#include "harness/verdict/checks.h"

namespace seeksim::harness::torch {

inline constexpr const char* kReportSchema = "seeksim-torch-report-1";

// Before the run: what is started, on how many hosts, and what will break.
std::string header_text(const TorchScenario& scenario, const std::vector<std::string>& command,
                        const std::string& torch, int hosts, const Style& style);
// After it: the checks and the verdict.
std::string verdict_text(const TorchRun& run, const Judgement& judgement, const Style& style);
// The same behind what happened, in seconds since the start, and the losses.
std::string story_text(const TorchRun& run, const Judgement& judgement, const Style& style);

Json report_json(const TorchRun& run, const Judgement& judgement);

}  // namespace seeksim::harness::torch
