// Mistake: what kind of thing went wrong first in a red run, and Names: where. names.h finds them out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "harness/explain/value_judge.h"

namespace seeksim::harness {

// Kinds of mistakes. What each stands for: mistake_text().
enum class Mistake : std::uint8_t {
  unknown,
  data,
  forward,
  gradient,
  reduction,
  norm,
  update,
  publication,
  message,
  order,
  matching,
  agreement,
  state,
  placement,
  budget,
  machine,
  count_
};
std::string_view name(Mistake mistake);
std::string_view mistake_text(Mistake mistake);
Mistake mistake_named(std::string_view name);  // unknown: there is none of that name

struct Names {
  Mistake mistake = Mistake::unknown;
  std::optional<Culprit> culprit;  // by values
  // By a check, where no value tells it, or where values only show the consequence: "backward compute 'wpe.weight'".
  std::string phase, kind, tensor;
  std::string check;           // that told it: "no_races"
  std::string detail;          //   in its words
  std::string not_looked;      // why values were not held against the golden's; empty: they were
  std::string golden_differs;  // the one-rank run of this program is not the stored golden; empty: it is, or none is
  bool after_restart = false;  // the culprit is in the first step after state was read back, or handed to a joiner
  bool after_join = false;
  bool committed = false;  // some rank committed the culprit's step
  std::uint64_t compared = 0, differing = 0;

  bool names_operation() const { return !kind.empty(); }
};

}  // namespace seeksim::harness
