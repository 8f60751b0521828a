// What ends a world besides its ranks: the machine that simulates them.
#pragma once

#include <new>
#include <string>

namespace seeksim::sim {

// The machine has no memory left for what its ranks hold. Thrown by World::run(); the ranks are over then, and what
// they did means nothing.
class OutOfMachineMemory : public std::bad_alloc {
 public:
  OutOfMachineMemory(int rank, int ranks)
      : text_("this machine ran out of memory when rank " + std::to_string(rank) + " of " + std::to_string(ranks) +
              " asked for more") {}
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

}  // namespace seeksim::sim
