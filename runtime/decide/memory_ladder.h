// What to try when memory is short: the layout in use once more, then layouts that need less and give the same bits. A
// pure function of what all agreed on, so that all ranks take the same rung without asking.
#pragma once

#include <optional>
#include <string>

#include "runtime/plan/plan.h"
#include "runtime/seams/seams.h"

namespace seeksim::runtime {

// What an agreement says of memory.
struct Shortage {
  bool there = false;           // some rank was out of memory
  bool of_activations = false;  // ... with activations in its memory, or on their way into it: fewer of them help
  friend bool operator==(const Shortage&, const Shortage&) = default;
};
Shortage shortage(const Agreement& agreement);

// A ballot says whether activations were there.
inline constexpr std::size_t kActivationsWord = 0;

// How far the run is.
struct LadderPlace {
  bool tried_again = false;        // the layout in use had its second chance since the last commit
  bool nothing_committed = false;  // nothing durable is lost by starting anew with other shards
  int members = 1;
};

// The next layout to try; nullopt: the ladder ends here. Equal to `now`: the same once more.
std::optional<Layout> next_rung(const Layout& now, const Definition& definition, const Shortage& shortage,
                                const LadderPlace& place);

// "micro-batch 4, stage 0, no checkpointing, no offload"
std::string text(const Layout& layout);
// What differs: "micro-batch 4 -> 2"; where nothing does: "the same once more".
std::string change(const Layout& from, const Layout& to);

}  // namespace seeksim::runtime
