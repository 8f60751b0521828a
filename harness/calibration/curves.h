// Collectives as somebody measured them on a cluster: nccl-tests' own output in place of the model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace seeksim::harness::calibration {

enum class Collective { all_reduce, all_gather, reduce_scatter };

// Sizes and times beyond these are no measurement: 2^50 bytes, and eleven days.
inline constexpr double kBytesMost = double(std::int64_t(1) << 50);
inline constexpr double kMicrosecondsMost = 1e12, kMicrosecondsLeast = 1e-3;
inline constexpr int kRanksMost = 1 << 17;

struct Curve {
  Collective what = Collective::all_reduce;
  int ranks = 0, nodes = 0;
  struct Point {
    double bytes = 0, us = 0;
  };
  std::vector<Point> points;  // by size, each once

  // Between two sizes as a power of the size; below the first as long as the first, beyond the last at its bandwidth.
  double us(double bytes) const;
};

// The out-of-place columns of an output of all_reduce_perf, all_gather_perf or reduce_scatter_perf, with the lines
// "#  Rank ..." that say who took part. Launchers' prefixes ("0: ", "[1,0]<stdout>:") are ignored. `file` names it in
// messages. Throws BadInput, which names the line of a row that is none. Sizes in any order; of a size that is there
// twice the last row counts.
Curve read_nccl_tests(const std::string& text, const std::string& file);

// The finite number that the whole word is, or NaN.
double number_or_nan(const std::string& word);

}  // namespace seeksim::harness::calibration
