#include "harness/verdict/stop_reason.h"

namespace seeksim::harness {
namespace {

using runtime::ErrorKind;
using runtime::Verdict;

// The workload's own failures come back whenever it runs on the same numbers in the same memory; what machines and
// links did may be over, or elsewhere, the next time.
constexpr StopReason kWorkload = {"workload", "cannot_recover"};
constexpr StopReason kMachines = {"infrastructure", "may_recover"};

StopReason of_verdict(const runtime::Diagnosis& diagnosis, ErrorKind error) {
  switch (diagnosis.verdict) {
    case Verdict::mismatch:
      return kWorkload;
    case Verdict::local_failure:
      if (error == ErrorKind::out_of_memory || error == ErrorKind::closure) return kWorkload;
      return error == ErrorKind::data_error ? StopReason{"workload", "unknown"} : kMachines;
    case Verdict::never_joined:
    case Verdict::joined_late:
      return {"unknown", "may_recover"};  // a hang may be the program's or the machine's
    case Verdict::none:
      return {};
    default:
      return kMachines;
  }
}

}  // namespace

StopReason classify(const RunRecord& run, const std::string& stopped) {
  const auto says = [&](const char* word) { return stopped.find(word) != std::string::npos; };
  if (run.end == sim::WorldEnd::deadlock) return kWorkload;
  if (run.end == sim::WorldEnd::out_of_wall_time) return {"unknown", "unknown"};
  if (!run.detection.divergences.empty() && says("diverged")) return {"workload", "unknown"};
  if (says("nobody wrote") || says("skipped") || says("loss scale")) return kWorkload;
  if (!run.detection.recoveries.empty() && run.detection.recoveries.back().resumed_ns < 0) {
    const Recovery& last = run.detection.recoveries.back();
    return of_verdict(last.diagnosis, last.out_of_memory >= 0 ? ErrorKind::out_of_memory : last.error);
  }
  if (says("no rank survived") || says("lost")) return kMachines;
  return {};
}

}  // namespace seeksim::harness
