// What a feature does not go together with: a row each, and all that apply are reported.
#pragma once

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

}  // namespace seeksim::harness
