#include "harness/run/determinism.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "harness/record/golden.h"

namespace seeksim::harness {
namespace {

using runtime::FingerprintEntry;

bool same(const char* a, const char* b) { return std::strcmp(a ? a : "", b ? b : "") == 0; }

bool same(const FingerprintEntry& x, const FingerprintEntry& y) {
  const runtime::Op &a = x.op, &b = y.op;
  return x.value == y.value && a.kind == b.kind && a.phase == b.phase && a.axis == b.axis && a.epoch == b.epoch &&
         a.rank == b.rank && a.peer == b.peer && a.micro_batch == b.micro_batch && a.step == b.step &&
         a.sequence == b.sequence && a.bytes == b.bytes && same(a.tensor, b.tensor);
}

std::string shown(const FingerprintEntry& entry) {
  return fmt::format("{} -> {}", describe(entry.op), hex(entry.value));
}

}  // namespace

std::string first_difference(const Simulation& a, const RunRecord& run_a, const Simulation& b, const RunRecord& run_b) {
  // The earliest step over all ranks: later differences are its consequences.
  std::string found;
  std::int64_t found_step = 0;
  for (std::size_t rank = 0; rank < run_a.ranks.size(); ++rank) {
    const auto &first = a.recorder(int(rank)).log(), &second = b.recorder(int(rank)).log();
    std::size_t i = 0;
    while (i < std::min(first.size(), second.size()) && same(first[i], second[i])) ++i;
    if (i == first.size() && i == second.size()) continue;
    const std::int64_t step = i < first.size() ? first[i].op.step : second[i].op.step;
    if (!found.empty() && step >= found_step) continue;
    found_step = step;
    found = fmt::format("entry {} of rank {}: first run {}; second run {}", i, rank,
                        i < first.size() ? shown(first[i]) : "had ended",
                        i < second.size() ? shown(second[i]) : "had ended");
  }
  if (!found.empty()) return found;
  if (run_a.virtual_ns != run_b.virtual_ns) {
    return fmt::format("virtual time: {} ns and {} ns, though every Op is the same", run_a.virtual_ns,
                       run_b.virtual_ns);
  }
  if (run_a.fingerprint != run_b.fingerprint) {
    return fmt::format("the schedules differ (fingerprints {} and {}), though every Op is the same",
                       hex(run_a.fingerprint), hex(run_b.fingerprint));
  }
  return "";
}

}  // namespace seeksim::harness
