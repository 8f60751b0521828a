// A script's run as dumps of PyTorch's flight recorder: a pickle for each rank, with PyTorch's keys. torchfrtrace and
// `seeksim analyse` read them.
#pragma once

#include <string>

#include "harness/input/json.h"
#include "harness/torch/run_record.h"

namespace seeksim::harness::torch {

// The dump of one rank.
Json flight_dump(const pytorch::RankRecord& record);
// nccl_trace_rank_0 and so on in this folder, which is made. Ranks without a record have none.
void write_flight_dumps(const std::string& folder, const TorchRun& run);

}  // namespace seeksim::harness::torch
