// What a feature does not go together with: a row each, and all that apply are reported.
#pragma once

#include <fmt/format.h>

#include <bit>
#include <initializer_list>

#include "harness/input/reader.h"

namespace seeksim::harness {

struct Refusal {
  bool asked;        // by the scenario
  const char* at;    // JSON pointer of what to change
  const char* what;  // why it cannot be
  const char* next;  // what to do about it
};

// Adds a finding for each that was asked.
inline void refuse(const Reader& top, std::initializer_list<Refusal> all) {
  for (const Refusal& one : all)
    if (one.asked) top.findings().add(one.at, one.what, one.next);
}

// Whether a step's samples can be cut among so many workers. A finding at own's "workers" says why not; a batch that is
// wrong itself has one already.
inline bool check_workers_of(const Reader& own, int batch, int workers) {
  if (batch < 1) return false;
  if (batch % workers == 0 && std::has_single_bit(unsigned(batch / workers))) return true;
  own.problem("workers",
              fmt::format("{} samples a step for {} workers: a worker has to have a power of two of them, since its "
                          "gradient is a node of the tree in which samples are summed",
                          batch, workers),
              fmt::format("For example {}, one sample each.", batch));
  return false;
}

}  // namespace seeksim::harness
