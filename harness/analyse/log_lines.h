// One line of a launcher's output: which rank wrote it, and what it says that matters for a hang.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace seeksim::harness {

// A watchdog's timeout, or a status that it prints beside it.
struct WorkReport {
  int rank = -1;      // of the job; -1: the line does not say
  std::string group;  // as the line names it ("0", "0(default_pg)"); empty: it does not
  bool timed_out = false;
  std::int64_t number = -1, enqueued = -1, completed = -1;
  std::string operation, elements;  // ALLREDUCE; NumelIn or TensorShape
};

// An error that a rank, a launcher or a library reports.
struct ErrorReport {
  int rank = -1;
  std::size_t line = 0;
  std::string text;
  bool follows = false;    // of others: a closed connection, an abort after a timeout
  bool transport = false;  // a network card, a link
};

// A rank that another one, or PyTorch, says has not come.
struct AbsenceReport {
  std::vector<int> ranks;
  std::string text;
};

// What a rank brought, by PyTorch's own check of collectives.
struct FingerprintReport {
  int rank = -1;
  std::string operation, shape;
};

struct LogFacts {
  std::size_t lines = 0;
  int world = 0;                      // ranks of the job where a line says it; 0: none does
  std::map<int, std::size_t> speaks;  // lines of each rank
  std::vector<WorkReport> works;
  std::vector<ErrorReport> errors;
  std::vector<AbsenceReport> absences;
  std::vector<FingerprintReport> fingerprints;
  bool nccl_info = false, debug_detail = false, recorder = false;  // settings whose traces are in the log
};

// Reads a file's lines into `facts`. `name` may say the rank: rank_3.log, 3/stderr.log. Lines are cut at 4096 bytes.
void read_log(std::string_view text, const std::string& name, LogFacts& facts);

}  // namespace seeksim::harness
