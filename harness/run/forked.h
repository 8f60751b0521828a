// Several runs in one call (scenarios, rows of a sweep): in forked processes, as many at once as there are cores, so
// that a crash of one is its own failure and the others go on. Told in the order given.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "harness/report/outcome.h"

namespace seeksim::harness {

// What is done in forked processes: `count` jobs, by number.
struct Forked {
  std::size_t count = 0;
  int processes = 0;                                      // at most so many at once; 0: one a core
  int jobs_each = 1;                                      // a process does at most so many, one after the other
  std::function<Outcome(std::size_t, const Print&)> run;  // in the child
  std::function<std::string(std::size_t)> name;           // for the message when a child crashed
  std::function<void(std::size_t, const std::string&, const Outcome&)>
      done;  // in the parent, in order: what it printed
};
// One outcome a job, same order.
std::vector<Outcome> run_forked(const Forked& work);
// The same jobs in this process, one after the other.
std::vector<Outcome> run_here(const Forked& work);

}  // namespace seeksim::harness
