// What a rank in a process of its own sends to rank 0: its notes, and what it says of itself at the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/record/run_record.h"

namespace seeksim::harness {

// One call of the observer.
struct Note {
  std::uint64_t steps = 0;  // that this rank had reported before
  std::vector<std::byte> body;
};

// What a rank says of itself at the end.
struct RankReport {
  RankRecord record;
  std::uint64_t fingerprint = 0;
  TimeNs ended_ns = 0;
  std::vector<sim::CommUse> comm;  // indexed by OpKind
  struct Memory {
    std::vector<std::size_t> peak_by_tag, at_peak;
    std::size_t peak = 0;
  };
  Memory device, host, pinned;
  std::uint64_t compared = 0;
  std::vector<std::string> mismatches;
  std::vector<runtime::NamedTensor> final_weights;  // of the lowest rank, if they were asked for
  std::vector<faults::RuleStatus> faults;           // of all rules, as this rank saw them
  std::vector<std::uint64_t> own_faults_fired;      // by fault of the user's
  std::vector<Event> events;
  std::vector<Note> notes;
  std::optional<FastAudit> audit;
};

}  // namespace seeksim::harness
