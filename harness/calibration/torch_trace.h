// Collectives as torch.profiler saw them: NCCL's kernels in a trace say their collective, sizes and group.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "harness/calibration/curves.h"

namespace seeksim::harness::calibration {

// Of several traces, of one rank or of many. A kernel runs from when its own rank is there until the last one is done,
// so that of kernels of one collective, group and size the shortest counts: it waited least.
class TraceCurves {
 public:
  // Reads a trace as export_chrome_trace() writes it, event by event. `file` names it in messages. Throws BadInput
  // where it is packed or no JSON, or has no such kernel.
  void read(std::string_view trace, const std::string& file);

  // A curve for each collective, number of ranks and number of nodes. `domain`: GPUs of a node.
  std::vector<Curve> curves(int domain) const;

  std::size_t kernels() const { return kernels_; }  // of collectives that have curves

 private:
  using Key = std::tuple<Collective, std::vector<int>>;  // the ranks; of many, the first and second one and how many
  std::map<Key, std::map<double, double>> shortest_us_;  // by bytes
  std::size_t kernels_ = 0;
};

inline constexpr std::uint64_t kTraceBytesMax = std::uint64_t(2) << 30;

}  // namespace seeksim::harness::calibration
