// Ranks that are alike: in place, in work and in fate. One of them is simulated and stands for the others. Whoever says
// that ranks are alike (harness/scenario/classes.h) has to be right: a world of classes holds two of each class against
// each other, and tests hold it against the same world rank by rank.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/seams/op.h"
#include "runtime/seams/time.h"

namespace seeksim::sim {

using runtime::TimeNs;

struct RankClasses {
  int count = 0;                           // of classes
  std::vector<int> stand_in;               // by rank: who is simulated in its place; itself where it is
  std::vector<std::int32_t> weight;        // by rank: how many ranks it stands for, itself included; 0: not simulated
  std::vector<int> simulated;              // ascending
  std::vector<std::pair<int, int>> twins;  // two of one class: what they did must be the same
};

// What a rank did and when, as a sum: the same for ranks that are alike, whatever their numbers, and whichever of two
// things at one instant is told first.
class Course {
 public:
  void did(const runtime::Op& op, TimeNs from, TimeNs until) {
    std::uint64_t h = mix(std::uint64_t(op.kind) << 48 | std::uint64_t(op.phase) << 32 | op.epoch);
    h = mix(h ^ std::uint64_t(op.step) << 24 ^ std::uint32_t(op.micro_batch));
    h = mix(h ^ op.bytes ^ op.sequence << 40);
    holds(mix(h ^ std::uint64_t(from)) ^ std::uint64_t(until));
  }
  void holds(std::uint64_t value) { sum_ += mix(value); }
  std::uint64_t digest() const { return sum_; }

  static std::uint64_t mix(std::uint64_t value) {
    value = (value ^ value >> 32 ^ 0xa0761d6478bd642full) * 0x9fb21c651e98df25ull;
    return value ^ value >> 29;
  }

 private:
  std::uint64_t sum_ = 0;
};

struct Core;
struct WorldResult;
// Into the result of a steady world: the course of each rank with its peaks and its traffic; and, of a world of
// classes, whether two of one class did not do the same.
void collect_courses(Core& core, WorldResult& result);

}  // namespace seeksim::sim
