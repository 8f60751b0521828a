// Flight recorders as files: the JSON of PyTorch's flight recorder, with its keys, one file a rank. What PyTorch has no
// key for stands under "seeksim". (`seeksim analyse` reads them, and PyTorch's own: harness/analyse.)
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "harness/input/json.h"
#include "harness/record/run_record.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

// Facts about a run's ranks besides what they recorded.
struct FlightHeader {
  std::string run;  // the scenario's name
  int attempt = 0;
  int incarnation = 0;
  std::string host;
  std::string device;
};

Json to_json(const runtime::FlightDump& dump, const FlightHeader& header);

// Dumps that were read back, with the strings that their records point into.
struct ReadDumps {
  std::vector<runtime::FlightDump> dumps;
  std::vector<std::unique_ptr<std::string>> strings;
};
// Throws BadInput naming the place in `file`. Ranks that members of a communicator name and that have no file are gone.
void read_dump(const Json& json, const std::string& file, ReadDumps& into);
void add_missing_ranks(ReadDumps& dumps);

// nccl_trace_rank_0.json and so on, and for PyTorch's torchfrtrace, which takes whatever has such a name in a folder
// for a pickle, torch/nccl_trace_rank_0. Of ranks whose process is gone there is none.
void write_dumps(const std::string& folder, const Scenario& scenario, const RunRecord& run);

// {verdict, comm, comm_seq, culprit_ranks[], victims[], first_divergent, wait_for_chain[], ...}
Json analysis_json(const runtime::Analysis& analysis);

}  // namespace seeksim::harness
