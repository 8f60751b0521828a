// Violations: use of CUDA or NCCL that the documents forbid or leave undefined. On a GPU it would hang, or give wrong
// bits on some days. Here it ends the process and says why, unless a test collects it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace seeksim::standin {

void violation(const std::string& what);

// While one lives, violations are kept and do not end the process.
class Collected {
 public:
  Collected();
  ~Collected();
  Collected(const Collected&) = delete;
  Collected& operator=(const Collected&) = delete;
  std::vector<std::string> all() const;
};

// An environment variable as a number.
std::uint64_t setting(const char* name, std::uint64_t otherwise);

// Numbers that look random, from a seed (splitmix64).
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();

 private:
  std::uint64_t state_;
};

// SEEKSIM_STANDIN_DELAYS=seed: before each item of a stream, and before a group's work reaches its stream, a delay
// that is drawn: mostly none, some under a millisecond, now and then a few.
void dawdle(Draws& draws);
bool dawdles();
std::uint64_t delay_seed();

}  // namespace seeksim::standin
