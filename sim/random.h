// Random streams of a world: one for each purpose, all from the world's seed, so that drawing more for one purpose
// (say, noise) changes nothing for another (say, the schedule).
#pragma once

#include <cstdint>

namespace seeksim::sim {

enum class Stream : std::uint64_t { schedule = 1, noise, control, partial };

// splitmix64.
class Random {
 public:
  Random(std::uint64_t seed, Stream stream) : state_(mix(seed) ^ mix(std::uint64_t(stream) * 0x9e3779b97f4a7c15ull)) {}

  std::uint64_t next() { return mix(state_ += 0x9e3779b97f4a7c15ull); }
  std::uint32_t below(std::uint32_t n) { return std::uint32_t((next() >> 32) * n >> 32); }  // n > 0
  double unit() { return double(next() >> 11) * 0x1p-53; }                                  // [0, 1)

 private:
  static std::uint64_t mix(std::uint64_t z) {
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
  }
  std::uint64_t state_;
};

}  // namespace seeksim::sim
