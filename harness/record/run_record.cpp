#include "harness/record/run_record.h"

#include "kernels/digest.h"

namespace seeksim::harness {

const char* name(RankRecord::How how) {
  switch (how) {
    case RankRecord::How::running:
      return "did not end";
    case RankRecord::How::finished:
      return "finished";
    case RankRecord::How::evicted:
      return "evicted";
    case RankRecord::How::stopped:
      return "stopped";
    case RankRecord::How::died:
      return "died";
    case RankRecord::How::threw:
      return "threw";
    case RankRecord::How::spare:
      return "spare";
  }
  return "?";
}

std::optional<runtime::StateDigest> RunRecord::state() const {
  for (const RankRecord& rank : ranks) {
    if (rank.how == RankRecord::How::finished && has_values) return rank.state;
  }
  return std::nullopt;
}

std::uint64_t RunRecord::ranges_left_out() const {
  std::uint64_t sum = 0;
  for (const RangeLog& log : numbers.ranges) sum += log.left_out;
  return sum;
}

std::uint64_t RunRecord::Alike::digest() const {
  std::uint64_t sum = 0;
  for (const std::uint64_t course : courses) sum += kernels::combine(0, course);
  return sum;
}

runtime::Layout RunRecord::layout() const {
  for (const RankRecord& rank : ranks) {
    if (rank.how == RankRecord::How::finished) return rank.layout;
  }
  return ranks.empty() ? runtime::Layout{} : ranks.front().layout;
}

}  // namespace seeksim::harness
